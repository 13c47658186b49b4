"""Kafka's isolation levels: what a consumer may see of open and aborted transactions."""

from enum import IntEnum


class Isolation(IntEnum):
    """The values are those of the wire."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, level: int) -> "Isolation":
        """The level that a request names. As Kafka does, any other number reads uncommitted records."""
        return cls.READ_COMMITTED if level == cls.READ_COMMITTED else cls.READ_UNCOMMITTED

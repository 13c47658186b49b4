"""Kafka's isolation levels: what a consumer may see of open and aborted transactions."""

from enum import IntEnum
from typing import Literal

IsolationLevel = Literal["read_committed", "read_uncommitted"]


class Isolation(IntEnum):
    """The values are those of the wire."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def named(cls, name: str) -> "Isolation":
        """The level with Kafka's name. Raises ValueError."""
        match name:
            case "read_committed":
                return cls.READ_COMMITTED
            case "read_uncommitted":
                return cls.READ_UNCOMMITTED
        raise ValueError(f"isolation is read_committed or read_uncommitted, not {name!r}")

    @classmethod
    def of(cls, level: int) -> "Isolation":
        """The level that a request names. As Kafka does, any other number reads uncommitted records."""
        return cls.READ_COMMITTED if level == cls.READ_COMMITTED else cls.READ_UNCOMMITTED

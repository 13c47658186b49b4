"""Kafka's isolation levels: what a consumer may see of open and aborted transactions."""

from enum import IntEnum


class Isolation(IntEnum):
    """The values are those of the wire."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

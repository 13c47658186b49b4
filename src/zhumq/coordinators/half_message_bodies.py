"""Reads the bodies of half messages back from the log of their shard."""

from typing import Final

from zhumq.coordinators.state_log import StatePartition
from zhumq.half_messages.message import Body
from zhumq.half_messages.persisted import body_of
from zhumq.records.batch import batches

READ_BYTES_MAX: Final = 64 << 10  # at a time; at least one batch


class BodyMissing(Exception):
    """The record of a half message is not in the log, or cannot be read."""


class BodyReader:
    """Reads bodies one by one. Messages that were prepared together are read together."""

    def __init__(self, partition: StatePartition) -> None:
        self._partition = partition
        self._values: dict[int, bytes] = {}  # of the last part that was read

    def read(self, offset: int) -> Body:
        """Raises BodyMissing, and BrokerError if the log cannot be read now."""
        value = self._values.get(offset)
        if value is None:
            part = self._partition.read(offset, READ_BYTES_MAX).read_bytes()
            self._values = {
                record.offset: bytes(record.value)
                for batch in batches(part)
                if not batch.header.is_control
                for record in batch.records()
                if record.value is not None
            }
            value = self._values.get(offset)
        body = None if value is None else body_of(value)
        if body is None:
            raise BodyMissing(f"there is no half message at offset {offset}")
        return body

"""Reads staged records back from the log of their shard."""

from collections import Counter
from typing import Final

from zhumq.coordinators.state_log import StatePartition
from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import HEADER_BYTES, Record, RecordBatch, batches, record_at

READ_BYTES_MAX: Final = 64 << 10  # at a time; at least one batch
SINGLE_READS_MAX: Final = 4  # of a batch, before all of it is decoded


class StagedMissing(Exception):
    """The record of a staged message is not in the log, or cannot be read."""


class StagedReader:
    """Reads records one by one. Those that were staged together are read together; a batch is decoded as a whole when
    several records of it are read."""

    def __init__(self, partition: StatePartition, *, read_bytes_max: int = READ_BYTES_MAX) -> None:
        self._partition = partition
        self._read_bytes_max = read_bytes_max
        self._batches: list[RecordBatch] = []  # of the last part that was read
        self._hits: Counter[int] = Counter()  # by base offset: records that were read one by one
        self._decoded: dict[int, Record] = {}

    def read(self, offset: int) -> Record:
        """A record with a value. Raises StagedMissing, and BrokerError if the log cannot be read now."""
        record = self._decoded.get(offset)
        if record is None:
            batch = self._find(offset)
            if batch is None:
                part = self._partition.read(offset, self._read_bytes_max).read_bytes()
                self._batches = list(batches(part))
                self._hits.clear()
                self._decoded.clear()
                batch = self._find(offset)
            record = None if batch is None else self._record(batch, offset)
        if record is None or record.value is None:
            raise StagedMissing(f"there is no staged message at offset {offset}")
        return record

    def _find(self, offset: int) -> RecordBatch | None:
        for batch in self._batches:
            header = batch.header
            if header.base_offset <= offset <= header.last_offset and not header.is_control:
                return batch
        return None

    def _record(self, batch: RecordBatch, offset: int) -> Record | None:
        header = batch.header
        try:
            if self._hits[header.base_offset] < SINGLE_READS_MAX:
                self._hits[header.base_offset] += 1
                return record_at(header, bytes(batch.data[HEADER_BYTES:]), offset)
            self._decoded.update((each.offset, each) for each in batch.records())
        except CorruptMessage as error:
            raise StagedMissing(str(error)) from None
        return self._decoded.get(offset)

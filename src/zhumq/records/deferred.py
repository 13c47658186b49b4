"""Deferred batches: control batches that hold delayed records until they are staged. Consumers skip them."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    Record,
    RecordBatch,
    TimestampType,
    batches,
)
from zhumq.records.builder import build_batch, rebuild_batch
from zhumq.records.control import MARKER_KEY

# key: | version i16 | type i16 |, as that of a transaction marker. Kafka's own types are small numbers.
DEFERRED_TYPE: Final = 20_000
# value: | version i16 | records i32 | for each: index in the batch i32, due time i64 | the batch as the producer sent it |
_VALUE = struct.Struct(">hi")
_DUE = struct.Struct(">iq")
_NO_DUE: Final = (-1, -1)
_KEY: Final = MARKER_KEY.pack(0, DEFERRED_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredRecord:
    """A delayed record, and the offset that its producer got."""

    offset: int
    due_ms: int
    record: Record


@dataclass(frozen=True, slots=True)
class DeferredBatch:
    """The delayed records of a batch, before they are decoded."""

    control: BatchHeader
    dues: memoryview  # of each, in the order of the batch: index in the batch, due time
    sent: RecordBatch  # as the producer sent it

    @property
    def needs_companion(self) -> bool:
        """Whether the batch behind it holds the other records of the same batch. Without that one the append was cut off,
        and the producer sends the batch again."""
        return self.control.last_offset_delta != self.sent.header.last_offset_delta

    def has_companion(self, following: BatchHeader) -> bool:
        """Whether this is the batch with the other records."""
        sent = self.sent.header
        return (
            following.base_offset == self.control.next_offset
            and following.producer_id == sent.producer_id
            and following.producer_epoch == sent.producer_epoch
            and following.base_sequence == sent.base_sequence
            and following.last_offset_delta == sent.last_offset_delta
            and not following.is_control
        )

    def records(self) -> Iterator[DeferredRecord]:
        """One at a time: a batch may hold a million of them. Raises CorruptMessage."""
        control = self.control
        first = control.next_offset if self.needs_companion else control.base_offset
        dues = _DUE.iter_unpack(self.dues)
        following, due_ms = next(dues, _NO_DUE)
        for index, record in enumerate(self.sent.records()):
            if index == following:
                yield DeferredRecord(offset=first + index, due_ms=due_ms, record=record)
                following, due_ms = next(dues, _NO_DUE)


def defer(
    header: BatchHeader,
    sent: bytes,
    records: Iterable[Record],
    dues: Sequence[int | None],
    now_ms: int,
) -> list[bytes]:
    """The batches that take the place of one with delayed records: its delayed records, hidden from consumers, and then
    the others, if there are any, at the offsets that they would have had.

    The last one has the producer's sequence. So a batch that is sent again is found to be a repeat.
    """
    value = bytearray(_VALUE.pack(0, len(dues) - dues.count(None)))
    for index, due_ms in enumerate(dues):
        if due_ms is not None:
            value += _DUE.pack(index, due_ms)
    value += sent
    hidden = Record(offset=header.base_offset, timestamp=now_ms, key=_KEY, value=bytes(value))
    if None in dues:
        kept = [record for record, due_ms in zip(records, dues, strict=True) if due_ms is None]
        is_stamped = bool(header.attributes & LOG_APPEND_TIME_FLAG)
        stamp = TimestampType.LOG_APPEND_TIME if is_stamped else TimestampType.CREATE_TIME
        return [
            build_batch([hidden], is_control=True, timestamp_type=stamp),
            rebuild_batch(header, kept, delete_horizon_ms=None),
        ]
    attributes = header.attributes & ~COMPRESSION_MASK | CONTROL_FLAG
    alone = header._replace(attributes=attributes, base_timestamp=now_ms, max_timestamp=now_ms)
    return [rebuild_batch(alone, [hidden], delete_horizon_ms=None)]


def deferred_in(batch: RecordBatch) -> DeferredBatch | None:
    """The delayed records in a control batch; None if it is another one. Raises CorruptMessage."""
    header = batch.header
    if not header.is_control or header.is_transactional:
        return None
    for record in batch.records():
        if record.key != _KEY:
            return None
        # A view: a copy would take as much memory again, for as long as the messages are staged.
        value = memoryview(record.value or b"")
        count = _VALUE.unpack_from(value)[1] if len(value) >= _VALUE.size else -1
        end = _VALUE.size + count * _DUE.size
        if count < 0 or end > len(value):
            raise CorruptMessage(f"the deferred batch at {header.base_offset} is cut off")
        for sent in batches(value[end:]):
            return DeferredBatch(header, value[_VALUE.size : end], sent)
    return None

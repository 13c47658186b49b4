"""Transaction markers: the control records that end a transaction."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import Record, TimestampType
from zhumq.records.builder import build_batch

# key: | version i16 | type i16 |     value: | version i16 | coordinator epoch i32 |
MARKER_KEY = struct.Struct(">hh")
MARKER_VALUE = struct.Struct(">hi")
MARKER_BATCH_BYTES = 78  # the header and one record, always the same


class MarkerType(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMarker:
    """The end of a producer's transaction on one partition."""

    marker_type: MarkerType
    coordinator_epoch: int


def encode_end_marker(marker: EndMarker, *, timestamp: int) -> Record:
    """The one record of a marker's control batch."""
    return Record(
        timestamp=timestamp,
        key=MARKER_KEY.pack(0, marker.marker_type),
        value=MARKER_VALUE.pack(0, marker.coordinator_epoch),
    )


def build_marker_batch(
    marker: EndMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """The control batch that ends the transaction of a producer."""
    return build_batch(
        [encode_end_marker(marker, timestamp=timestamp)],
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_end_marker(record: Record) -> EndMarker | None:
    """The marker in a control record; None for control records of other types."""
    try:
        _, marker_type = MARKER_KEY.unpack_from(record.key or b"")
        if marker_type not in (MarkerType.ABORT, MarkerType.COMMIT):
            return None
        _, coordinator_epoch = MARKER_VALUE.unpack_from(record.value or b"")
    except struct.error:
        raise CorruptMessage(f"the control record at {record.offset} is malformed") from None
    return EndMarker(marker_type=MarkerType(marker_type), coordinator_epoch=coordinator_epoch)

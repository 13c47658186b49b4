"""The `.snapshot` files: producer state as of an offset, in Kafka's format with our trailer."""

import struct

from zhumq.records.codecs import crc32c
from zhumq.storage.producer_state import ProducerEntry, ProducerState, WrittenBatch

# | version i16 | crc32c of all that follows u32 | number of entries i32 | entries |
# Entry: | producer id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32 |
#        | timestamp i64 | coordinator epoch i32 | first offset of the open transaction i64 |
# Kafka's format ends there and holds one batch for each producer. Kafka's reader ignores our trailer:
# all remembered batches of the producers for which that one batch is not enough, so that duplicates
# are detected across a restart as well:
#        | "zhmq" | number i32 | (producer id i64, last sequence i32, last offset i64,
#          offset delta i32, timestamp i64)* | in the order in which they were written |
VERSION = 1
PREFIX = struct.Struct(">hI")
COUNT = struct.Struct(">i")
ENTRY = struct.Struct(">qhiqiqiq")
TRAILER_MAGIC = b"zhmq"
REMEMBERED_BATCH = struct.Struct(">qiqiq")


class SnapshotCorrupt(ValueError):
    """The file is not a snapshot or is damaged. The caller replays the log instead."""


def encode_snapshot(state: ProducerState) -> bytes:
    """The content of a snapshot file."""
    parts = [COUNT.pack(len(state.producers))]
    remembered: list[bytes] = []
    for producer_id, entry in state.producers.items():
        last = entry.batches[-1] if entry.batches else WrittenBatch(-1, -1, 0, -1)
        parts.append(
            ENTRY.pack(
                producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
        if len(entry.batches) > 1 or (entry.batches and last.timestamp != entry.last_timestamp):
            remembered.extend(REMEMBERED_BATCH.pack(producer_id, *each) for each in entry.batches)
    if remembered:
        parts.append(TRAILER_MAGIC + COUNT.pack(len(remembered)))
        parts.extend(remembered)
    content = b"".join(parts)
    return PREFIX.pack(VERSION, crc32c(content)) + content


def decode_snapshot(data: bytes) -> ProducerState:
    """The state in a snapshot file. Raises SnapshotCorrupt."""
    try:
        return _decode(data)
    except struct.error:
        raise SnapshotCorrupt("the file is cut off") from None


def _decode(data: bytes) -> ProducerState:
    version, checksum = PREFIX.unpack_from(data)
    content = memoryview(data)[PREFIX.size :]
    if version != VERSION:
        raise SnapshotCorrupt(f"version {version} is unknown")
    if crc32c(content) != checksum:
        raise SnapshotCorrupt("the checksum does not match")
    (count,) = COUNT.unpack_from(content)
    entries_end = COUNT.size + count * ENTRY.size
    if count < 0 or entries_end > len(content):
        raise SnapshotCorrupt(f"{count} entries do not fit into {len(data)} bytes")
    remembered = _decode_remembered(content[entries_end:])
    producers: dict[int, ProducerEntry] = {}
    for fields in ENTRY.iter_unpack(content[COUNT.size : entries_end]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first_offset = fields
        batches = remembered.get(producer_id)
        if batches is None:
            known = offset >= 0
            batches = [WrittenBatch(sequence, offset, delta, timestamp)] if known else []
        producers[producer_id] = ProducerEntry(
            epoch=epoch,
            coordinator_epoch=coordinator,
            last_timestamp=timestamp,
            transaction_first_offset=first_offset,
            batches=batches,
        )
    state = ProducerState()
    state.restore(producers)
    return state


def _decode_remembered(trailer: memoryview) -> dict[int, list[WrittenBatch]]:
    remembered: dict[int, list[WrittenBatch]] = {}
    if trailer[: len(TRAILER_MAGIC)] != TRAILER_MAGIC:
        return remembered
    (count,) = COUNT.unpack_from(trailer, len(TRAILER_MAGIC))
    start = len(TRAILER_MAGIC) + COUNT.size
    if len(trailer) - start != count * REMEMBERED_BATCH.size:
        raise SnapshotCorrupt(f"{count} remembered batches do not fit")
    for producer_id, *batch in REMEMBERED_BATCH.iter_unpack(trailer[start:]):
        remembered.setdefault(producer_id, []).append(WrittenBatch(*batch))
    return remembered

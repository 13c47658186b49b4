"""Prints the content of segment, index and snapshot files in the format of Kafka's DumpLogSegments."""

from collections.abc import Iterator
from dataclasses import dataclass

from zhumq.host.disk import Disk, DiskFile
from zhumq.model.errors import CorruptMessage, ZhumqError
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    COMPRESSION_MASK,
    HEADER_BYTES,
    MAGIC,
    SEQUENCE_MAX,
    BatchHeader,
    Record,
    RecordBatch,
    TimestampType,
    decode_header,
)
from zhumq.records.codecs import Compression
from zhumq.records.control import decode_end_marker
from zhumq.storage.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY, TIME_ENTRY_BYTES
from zhumq.storage.log_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_in,
)
from zhumq.storage.producer_snapshot import SnapshotCorrupt, decode_snapshot
from zhumq.storage.producer_state import NO_OFFSET, ProducerEntry
from zhumq.storage.transaction_index import ENTRY, ENTRY_BYTES, AbortedTransaction

DUMPED_SUFFIXES = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
)
TIMESTAMP_NAMES = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class NotDumpable(ZhumqError):
    """The file is not one of a partition's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    """A batch in a log file."""

    header: BatchHeader
    position: int
    is_valid: bool

    def __str__(self) -> str:
        header = self.header
        horizon = header.delete_horizon_ms
        code = header.attributes & COMPRESSION_MASK
        known = code in list(Compression)
        facts = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.records_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": (
                "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]"
            ),
            "position": self.position,
            TIMESTAMP_NAMES[header.timestamp_type]: header.max_timestamp,
            "size": header.size,
            "magic": header.magic,
            "compresscodec": Compression(code).name.lower() if known else f"unknown({code})",
            "crc": header.crc,
            "isvalid": self.is_valid,
        }
        return _format_fields(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record in a batch of a log file."""

    header: BatchHeader
    record: Record
    show_content: bool

    def __str__(self) -> str:
        record = self.record
        first = self.header.base_sequence
        delta = record.offset - self.header.base_offset
        facts: dict[str, object] = {
            "offset": record.offset,
            TIMESTAMP_NAMES[self.header.timestamp_type]: record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": -1 if first < 0 else (first + delta) & SEQUENCE_MAX,
            "headerKeys": f"[{','.join(key for key, _ in record.headers)}]",
        }
        if self.header.is_control:
            marker = decode_end_marker(record)
            if marker is not None:
                facts["endTxnMarker"] = marker.marker_type.name
                facts["coordinatorEpoch"] = marker.coordinator_epoch
        elif self.show_content:
            if record.key is not None:
                facts["key"] = record.key.decode(errors="replace")
            if record.value is not None:
                facts["payload"] = record.value.decode(errors="replace")
        return f"| {_format_fields(facts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedOffsetEntry:
    """An entry of an offset index."""

    offset: int
    position: int

    def __str__(self) -> str:
        return _format_fields({"offset": self.offset, "position": self.position})


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedTimeEntry:
    """An entry of a time index."""

    timestamp: int
    offset: int

    def __str__(self) -> str:
        return _format_fields({"timestamp": self.timestamp, "offset": self.offset})


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedProducer:
    """A producer in a snapshot."""

    producer_id: int
    entry: ProducerEntry

    def __str__(self) -> str:
        entry = self.entry
        first_offset = entry.transaction_first_offset
        is_open = first_offset != NO_OFFSET
        facts: dict[str, object] = {
            "producerId": self.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": (
                f"OptionalLong[{first_offset}]" if is_open else "OptionalLong.empty"
            ),
            "lastTimestamp": entry.last_timestamp,
        }
        if entry.batches:
            last = entry.batches[-1]
            facts |= {
                "firstSequence": last.first_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": last.timestamp,
            }
        return _format_fields(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedAborted:
    """An entry of a transaction index."""

    version: int
    aborted: AbortedTransaction

    def __str__(self) -> str:
        return _format_fields(
            {
                "version": self.version,
                "producerId": self.aborted.producer_id,
                "firstOffset": self.aborted.first_offset,
                "lastOffset": self.aborted.last_offset,
                "lastStableOffset": self.aborted.last_stable_offset,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedProblem:
    """A defect of the file."""

    reason: str

    def __str__(self) -> str:
        return self.reason


Dumped = (
    DumpedBatch
    | DumpedRecord
    | DumpedOffsetEntry
    | DumpedTimeEntry
    | DumpedProducer
    | DumpedAborted
    | DumpedProblem
)


def dump_file(
    path: str, *, disk: Disk, records: bool = False, content: bool = False
) -> Iterator[Dumped]:
    """The entries of the file, in order. `records` adds the records of each batch, `content` also
    shows keys and values."""
    name = path.rpartition("/")[2]
    for suffix in DUMPED_SUFFIXES:
        base_offset = offset_in(name, suffix)
        if base_offset is None:
            continue
        if suffix == LOG_SUFFIX:
            return _dump_log(disk.open_file(path), records=records or content, content=content)
        data = disk.read_file(path)
        if data is None:
            raise NotDumpable(f"there is no file {path}")
        if suffix == SNAPSHOT_SUFFIX:
            return _dump_snapshot(data)
        if suffix == TRANSACTION_INDEX_SUFFIX:
            return _dump_transaction_index(data)
        if suffix == INDEX_SUFFIX:
            return _dump_offset_index(data, base_offset)
        return _dump_time_index(data, base_offset)
    raise NotDumpable(
        f"{name} is not a {', '.join(DUMPED_SUFFIXES[:-1])} or {DUMPED_SUFFIXES[-1]} file"
        " named by an offset"
    )


def _dump_log(file: DiskFile, *, records: bool, content: bool) -> Iterator[Dumped]:
    position = 0
    while position < file.size:
        left = file.size - position
        head = file.read_at(position, HEADER_BYTES)
        header = decode_header(head) if len(head) == HEADER_BYTES else None
        if (
            header is None
            or header.magic != MAGIC
            or header.batch_length < BATCH_LENGTH_MIN
            or header.size > left
        ):
            yield DumpedProblem(reason=f"{left} bytes from position {position} on are no batches")
            return
        batch = RecordBatch(header, memoryview(file.read_at(position, header.size)))
        is_valid = batch.crc_matches
        yield DumpedBatch(header=header, position=position, is_valid=is_valid)
        if records and is_valid:
            yield from _dump_records(batch, content=content)
        position += header.size


def _dump_records(batch: RecordBatch, *, content: bool) -> Iterator[Dumped]:
    try:
        for record in batch.records():
            yield DumpedRecord(header=batch.header, record=record, show_content=content)
    except CorruptMessage as error:
        yield DumpedProblem(reason=f"the batch at {batch.header.base_offset}: {error}")


def _dump_offset_index(data: bytes, base_offset: int) -> Iterator[Dumped]:
    for place in range(0, len(data) - OFFSET_ENTRY_BYTES + 1, OFFSET_ENTRY_BYTES):
        relative = int.from_bytes(data[place : place + 4], "big")
        position = int.from_bytes(data[place + 4 : place + 8], "big")
        yield DumpedOffsetEntry(offset=base_offset + relative, position=position)
    if len(data) % OFFSET_ENTRY_BYTES:
        yield DumpedProblem(reason=f"the last {len(data) % OFFSET_ENTRY_BYTES} bytes are no entry")


def _dump_time_index(data: bytes, base_offset: int) -> Iterator[Dumped]:
    whole = len(data) - len(data) % TIME_ENTRY_BYTES
    for timestamp, relative in TIME_ENTRY.iter_unpack(data[:whole]):
        yield DumpedTimeEntry(timestamp=timestamp, offset=base_offset + relative)
    if len(data) > whole:
        yield DumpedProblem(reason=f"the last {len(data) - whole} bytes are no entry")


def _dump_transaction_index(data: bytes) -> Iterator[Dumped]:
    whole = len(data) - len(data) % ENTRY_BYTES
    for version, *fields in ENTRY.iter_unpack(data[:whole]):
        yield DumpedAborted(version=version, aborted=AbortedTransaction(*fields))
    if len(data) > whole:
        yield DumpedProblem(reason=f"the last {len(data) - whole} bytes are no entry")


def _dump_snapshot(data: bytes) -> Iterator[Dumped]:
    try:
        state = decode_snapshot(data)
    except SnapshotCorrupt as error:
        yield DumpedProblem(reason=f"not a producer snapshot: {error}")
        return
    for producer_id, entry in state.producers.items():
        yield DumpedProducer(producer_id=producer_id, entry=entry)


def _format_fields(facts: dict[str, object]) -> str:
    """Kafka's format: each name followed by its value, booleans in lower case."""
    return " ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in facts.items()
    )

"""Helpers of the key index tests: index a log as the broker does, and look up in what is indexed."""

from collections.abc import Iterator

from tests.unit.storage.storage_support import NOW_MS

from zhumq.model.message_headers import TAGS_HEADER
from zhumq.records.batch import Record, RecordHeader, batches
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression
from zhumq.records.keys import keys_of
from zhumq.records.outline import payload_of
from zhumq.storage.indexes import IndexCorrupt
from zhumq.storage.key_index_pages import key_hash, tag_hash
from zhumq.storage.log import Log

READ_BYTES = 2_000


def keyed_batch(
    *keys: bytes | None,
    tags: bytes | None = None,
    timestamp: int = NOW_MS,
    compression: Compression = Compression.NONE,
) -> bytes:
    """A batch with one record for each key, all with the same tags header."""
    headers = () if tags is None else (RecordHeader(TAGS_HEADER, tags),)
    records = [
        Record(timestamp=timestamp, key=key, value=b"value of %a" % key, headers=headers)
        for key in keys
    ]
    return build_batch(records, compression=compression)


def append_keys(log: Log, *keys: bytes | None, tags: bytes | None = None, **more: object) -> int:
    """Append one batch; returns its base offset."""
    batch = keyed_batch(*keys, tags=tags, **more)  # type: ignore[arg-type]
    return log.append(batch, leader_epoch=0, now_ms=NOW_MS).base_offset


def indexing(log: Log) -> Iterator[None]:
    """Index a log up to its end, as the broker does. Yields between the steps."""
    indexes = log.key_indexes
    yield from indexes.resume()
    while (offset := indexes.next_offset(log.log_start_offset)) < log.log_end_offset:
        part = log.read(offset, max_bytes=READ_BYTES, up_to_offset=log.log_end_offset)
        yield from indexes.absorb(part.read_bytes(), offset, part.next_offset)


def index_all(log: Log) -> None:
    for _ in indexing(log):
        pass


def candidates(log: Log, hashed: int) -> tuple[set[int], list[tuple[int, int]]]:
    """The offsets that the index gives for a hash, and the ranges of offsets that it does not cover."""
    indexes = log.key_indexes
    found: set[int] = set()
    gaps: list[tuple[int, int]] = []
    before = log.log_end_offset
    while before > log.log_start_offset:
        index, begin = indexes.covering(before)
        if index is None:
            gaps.append((max(begin, log.log_start_offset), before))
            before = begin
            continue
        try:
            entries = [entry[0] for entry in index.find(hashed) if entry is not None]
        except IndexCorrupt as reason:
            indexes.discard(index, reason)
            continue
        assert entries == sorted(set(entries), reverse=True)
        found.update(each for each in entries if each < before)
        before = begin
    return found, gaps


def offsets_with(log: Log, *, key: bytes | None = None, tag: bytes | None = None) -> set[int]:
    """The offsets with a key or a tag, by a scan of the log."""
    found: set[int] = set()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 20, up_to_offset=log.log_end_offset)
        for batch in batches(part.read_bytes()):
            if not batch.header.is_control:
                for each, _, record_key, tags in keys_of(batch.header, payload_of(batch)):
                    if record_key == key if tag is None else tag in tags:
                        found.add(each)
        offset = part.next_offset
    return {each for each in found if each >= log.log_start_offset}


def check_lookup(log: Log, *, key: bytes | None = None, tag: bytes | None = None) -> None:
    """The index gives every message that the log has, apart from the ranges that it says it does not cover."""
    hashed = tag_hash(tag) if key is None and tag is not None else key_hash(key or b"")
    found, gaps = candidates(log, hashed)
    expected = offsets_with(log, key=key, tag=tag)
    missing = {
        each for each in expected - found if not any(first <= each < end for first, end in gaps)
    }
    assert not missing

"""Finds the messages of a partition with a key or a tag: by its index, and by a scan where it has none."""

import asyncio
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from zhumq.coordinators.key_indexer import KeyIndexer
from zhumq.host.clock import Clock
from zhumq.model.errors import InvalidConfig, InvalidRequest
from zhumq.model.ids import TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.protocol.messages.lookup import FoundHeader, FoundMessage, LookupRequest, LookupResponse
from zhumq.records.batch import BatchHeader, Record, RecordBatch, batches, record_at
from zhumq.records.keys import keys_of, tags_of
from zhumq.records.outline import payload_of
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.indexes import IndexCorrupt
from zhumq.storage.key_index_pages import key_hash, may_be_within, tag_hash
from zhumq.storage.key_indexes import KeyIndex, KeyIndexes
from zhumq.storage.log_slice import LogSlice

LIMIT_MAX: Final = 1_000
ANSWER_BYTES_MAX: Final = 1 << 20  # and one message more
ANSWER_MS_MAX: Final = 2_000  # and one step more; then the client asks for the rest
ENTRIES_PER_STEP: Final = 256
READS_PER_STEP: Final = 8
SCAN_BYTES: Final = 64 * 1024
# How many offsets are scanned at once. The log is read forwards, and the answer goes backwards.
SCAN_OFFSETS_MIN: Final = 4_096
SCAN_OFFSETS_MAX: Final = 1 << 17
SCAN_MS: Final = 200
NO_TIME: Final = -1
READ_COMMITTED: Final = Isolation.READ_COMMITTED


class Sought(IntEnum):
    """What is looked up."""

    KEY = 0
    TAG = 1


class LookupService:
    """Looks up messages of the partitions that this broker leads. Sees committed messages only."""

    def __init__(self, replicas: ReplicaManager, indexer: KeyIndexer, clock: Clock) -> None:
        self._replicas = replicas
        self._indexer = indexer
        self._clock = clock
        self.answered = 0
        self.scanned = 0  # offsets

    async def answer(self, name: TopicPartition, request: LookupRequest) -> LookupResponse:
        """The newest messages that match, as many as fit into an answer. Raises BrokerError."""
        if request.kind not in tuple(Sought) or not 1 <= request.limit <= LIMIT_MAX:
            raise InvalidRequest(
                f"a lookup is of a key (0) or a tag (1), for 1 to {LIMIT_MAX} messages"
            )
        partition = self._replicas.partition(*name)
        partition.check_leads()
        indexes = partition.key_indexes
        if indexes is None:
            raise InvalidConfig(
                f"topic {name.topic!r} has no index of keys and tags: set index.keys=true"
            )
        search = _Search(partition, indexes, request, self._clock)
        await search.run()
        self.answered += 1
        self.scanned += search.scanned
        if search.found_damage:
            self._indexer.wake(name)
        return LookupResponse(
            messages=[_found(record) for record in search.found],
            scanned=search.scanned,
            before_offset=search.before if search.before > search.floor else -1,
        )


class _Search:
    """One lookup on its way from the end of a partition to its start."""

    def __init__(
        self, partition: Partition, indexes: KeyIndexes, request: LookupRequest, clock: Clock
    ) -> None:
        self._partition = partition
        self._indexes = indexes
        self._kind = Sought(request.kind)
        self._sought = request.sought
        hash_of = key_hash if self._kind is Sought.KEY else tag_hash
        self._hash = hash_of(request.sought)
        self._from_ms = None if request.from_ms == NO_TIME else request.from_ms
        self._to_ms = None if request.to_ms == NO_TIME else request.to_ms
        self._clock = clock
        self._deadline_ms = clock.monotonic_ms() + ANSWER_MS_MAX
        self._limit = request.limit
        self._bytes_left = ANSWER_BYTES_MAX
        self._batch: tuple[BatchHeader, bytes] | None = None  # the last one, decompressed
        self._steps = 0
        self._scan_offsets = SCAN_OFFSETS_MIN
        end = partition.end_offset(READ_COMMITTED)
        # Everything from here on was looked at.
        self.before = end if request.before_offset < 0 else min(request.before_offset, end)
        self.found: list[Record] = []
        self.scanned = 0
        self.found_damage = False

    @property
    def floor(self) -> int:
        return self._partition.log_start_offset

    @property
    def _is_done(self) -> bool:
        return len(self.found) >= self._limit or self._bytes_left <= 0

    async def run(self) -> None:
        while self.before > self.floor and not self._is_done:
            index, begin = self._indexes.covering(self.before)
            if index is None:
                await self._scan(max(begin, self.floor))
            else:
                await self._walk(index)
            if self._clock.monotonic_ms() >= self._deadline_ms:
                return

    # By the index

    async def _walk(self, index: KeyIndex) -> None:
        """Look at the entries of one index before `before`."""
        if not self._is_in_time(index):
            self.before = index.begin_offset
            return
        version, begun_at = self._indexes.version, self.before
        visited = 0
        try:
            for entry in index.find(self._hash):
                visited += 1
                if visited % ENTRIES_PER_STEP == 0:
                    await asyncio.sleep(0)
                    if self._indexes.version != version:
                        return
                    if self.before < begun_at and self._is_late:
                        return
                if entry is None or entry[0] >= self.before:
                    continue
                self.before = entry[0]
                if self.before < self.floor:
                    return
                if not may_be_within(index.begin_ms, entry[1], self._from_ms, self._to_ms):
                    continue
                await self._take_if_matching(entry[0])
                if self._is_done or self._indexes.version != version:
                    return
        except IndexCorrupt as reason:
            self._indexes.discard(index, reason)
            self.found_damage = True
            return
        self.before = index.begin_offset

    def _is_in_time(self, index: KeyIndex) -> bool:
        return (self._from_ms is None or index.timestamp_max >= self._from_ms) and (
            self._to_ms is None or index.timestamp_min < self._to_ms
        )

    @property
    def _is_late(self) -> bool:
        return self._clock.monotonic_ms() >= self._deadline_ms

    async def _take_if_matching(self, offset: int) -> None:
        record = self._read(offset)
        if record is not None and self._matches(
            record.timestamp, record.key, tags_of(record.headers)
        ):
            self.found.append(record)
            self._bytes_left -= _size_of(record)
        self._steps += 1
        if self._steps % READS_PER_STEP == 0:
            await asyncio.sleep(0)

    def _read(self, offset: int) -> Record | None:
        """The record with this offset; None if it is gone, or of an aborted transaction."""
        known = self._batch
        if known is None or not known[0].base_offset <= offset <= known[0].last_offset:
            part = self._partition.read(offset, 1, isolation=READ_COMMITTED)
            first = next(batches(part.read_bytes()), None)
            if first is None or not _is_visible(first, part):
                return None
            known = self._batch = first.header, payload_of(first)
        return record_at(*known, offset)

    def _matches(self, timestamp: int, key: bytes | None, tags: tuple[bytes, ...]) -> bool:
        if self._from_ms is not None and timestamp < self._from_ms:
            return False
        if self._to_ms is not None and timestamp >= self._to_ms:
            return False
        return key == self._sought if self._kind is Sought.KEY else self._sought in tags

    # Without an index

    async def _scan(self, floor: int) -> None:
        """Read the last of the offsets before `before` that no index has."""
        begun_ms = self._clock.monotonic_ms()
        first = max(floor, self.before - self._scan_offsets)
        matching: deque[int] = deque(maxlen=self._limit - len(self.found))
        offset = first
        while offset < self.before:
            # Retention may go on meanwhile.
            offset = max(offset, self.floor)
            part = self._partition.read(offset, SCAN_BYTES, isolation=READ_COMMITTED)
            for batch in batches(part.read_bytes()):
                if _is_visible(batch, part):
                    matching.extend(self._matching(batch, first))
            if part.next_offset <= offset:
                break
            offset = part.next_offset
            await asyncio.sleep(0)
        self.scanned += self.before - first
        for each in reversed(matching):
            self.before = each
            await self._take_if_matching(each)
            if self._is_done:
                return
        self.before = first
        if self._clock.monotonic_ms() - begun_ms < SCAN_MS:
            self._scan_offsets = min(self._scan_offsets * 2, SCAN_OFFSETS_MAX)

    def _matching(self, batch: RecordBatch, first: int) -> Iterator[int]:
        """The offsets of a batch that match, from the first one to before `before`."""
        payload = payload_of(batch)
        if self._sought not in payload:
            return  # One search in C, instead of a look at every record.
        for offset, timestamp, key, tags in keys_of(batch.header, payload):
            if first <= offset < self.before and self._matches(timestamp, key, tags):
                yield offset


def _is_visible(batch: RecordBatch, part: LogSlice) -> bool:
    """Whether consumers of committed messages see the records of a batch."""
    header = batch.header
    if header.is_control:
        return False
    return not header.is_transactional or not any(
        each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset < each.last_offset
        for each in part.aborted
    )


def _size_of(record: Record) -> int:
    headers = sum(len(each.key) + len(each.value or b"") for each in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _found(record: Record) -> FoundMessage:
    return FoundMessage(
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=[FoundHeader(key=each.key, value=each.value) for each in record.headers],
    )

"""A partition in memory: the test triggers its flushes, and its disk can fail."""

import asyncio
from dataclasses import dataclass, field

from zhumq.model.errors import BrokerError
from zhumq.records.batch import batches
from zhumq.records.control import EndMarker, build_marker_batch
from zhumq.replication.pending import DurableCallback, future_of


@dataclass(frozen=True)
class MemorySlice:
    data: bytes

    def read_bytes(self) -> bytes:
        return self.data


@dataclass(frozen=True)
class MemoryAppended:
    last_offset: int


@dataclass
class MemoryPartition:
    """Batches in a list. With `holds_flushes` nothing is durable before `flush`."""

    holds_flushes: bool = False
    stored: list[tuple[int, bytes]] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int = 0
    durable_offset: int = 0
    append_error: BrokerError | None = None
    read_error: BrokerError | None = None
    appends: int = 0

    def __post_init__(self) -> None:
        self._waiters: list[tuple[int, DurableCallback]] = []

    def append(self, data: bytes | memoryview, now_ms: int) -> MemoryAppended:
        if self.append_error is not None:
            raise self.append_error
        self.appends += 1
        for batch in batches(data):
            assert batch.crc_matches
            rebased = self.high_watermark.to_bytes(8, "big") + bytes(batch.data)[8:]
            self.stored.append((self.high_watermark, rebased))
            self.high_watermark += batch.header.last_offset_delta + 1
        return MemoryAppended(self.high_watermark - 1)

    def append_own(self, data: bytes, now_ms: int) -> MemoryAppended:
        return self.append(data, now_ms)

    def append_marker(
        self,
        marker: EndMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> MemoryAppended:
        data = build_marker_batch(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms
        )
        return self.append(data, now_ms)

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return False

    def verification(self, producer_id: int) -> int:
        return 0

    def allow_transaction(self, producer_id: int, producer_epoch: int, verification: int) -> None:
        """Everything is allowed: the real log's tests are elsewhere."""

    @property
    def log_end_offset(self) -> int:
        return self.high_watermark

    def when_durable(self, next_offset: int) -> "asyncio.Future[None]":
        return future_of(lambda settle: self.call_when_durable(next_offset, settle))

    def call_when_durable(self, next_offset: int, callback: DurableCallback) -> None:
        if self.durable_offset >= next_offset:
            callback(None)
            return
        self._waiters.append((next_offset, callback))
        if not self.holds_flushes:
            self.flush()

    def flush(self) -> None:
        self.durable_offset = self.high_watermark
        waiters, self._waiters = self._waiters, []
        for next_offset, callback in waiters:
            if next_offset <= self.durable_offset:
                callback(None)
            else:
                self._waiters.append((next_offset, callback))

    def fail_flush(self, error: BrokerError) -> None:
        waiters, self._waiters = self._waiters, []
        for _, callback in waiters:
            callback(error)

    def read(self, offset: int, max_bytes: int) -> MemorySlice:
        if self.read_error is not None:
            raise self.read_error
        found = b""
        for base_offset, data in self.stored:
            if base_offset >= offset and (not found or len(found) + len(data) <= max_bytes):
                found += data
        return MemorySlice(found)

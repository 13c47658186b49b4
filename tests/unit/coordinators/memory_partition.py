"""A partition in memory: the test triggers its flushes, and its disk can fail."""

import asyncio
from dataclasses import dataclass, field

from zhumq.model.errors import BrokerError
from zhumq.records.batch import batches
from zhumq.records.control import EndMarker, build_marker_batch


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
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

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
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((next_offset, future))
        if not self.holds_flushes:
            self.flush()
        elif self.durable_offset >= next_offset:
            future.set_result(None)
        return future

    def flush(self) -> None:
        self.durable_offset = self.high_watermark
        for next_offset, future in self._waiters:
            if not future.done() and next_offset <= self.durable_offset:
                future.set_result(None)
        self._waiters = [waiter for waiter in self._waiters if not waiter[1].done()]

    def fail_flush(self, error: BrokerError) -> None:
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(error)

    def read(self, offset: int, max_bytes: int) -> MemorySlice:
        if self.read_error is not None:
            raise self.read_error
        found = b""
        for base_offset, data in self.stored:
            if base_offset >= offset and (not found or len(found) + len(data) <= max_bytes):
                found += data
        return MemorySlice(found)

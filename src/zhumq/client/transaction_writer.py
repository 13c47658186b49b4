"""Collects the messages of a transaction into batches, one of each partition."""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn

from zhumq.client.batch_queue import Batch
from zhumq.client.batch_sender import BatchSender
from zhumq.client.brokers import Brokers
from zhumq.client.errors import RequestFailed
from zhumq.client.transaction_core import TransactionCore
from zhumq.model.ids import TopicPartition
from zhumq.records.codecs import Compression
from zhumq.records.growing_batch import GrowingBatch, HeaderPair
from zhumq.records.partitioner import partition_of

BATCH_BYTES: Final = 512 * 1024  # a batch of this size is sent
BATCH_BYTES_MAX: Final = (
    1_000_000  # below Kafka's max.message.bytes; a larger message is sent alone
)
OPEN_BYTES_MAX: Final = 16 * 1024 * 1024  # of all partitions together
# KIP-794: messages without a key go to one partition until it has so many bytes, then to another one.
STICKY_BYTES: Final = 16 * 1024
COUNTS_SECONDS_MAX: Final = 300.0  # until the numbers of partitions are asked for again
CHUNK_MESSAGES: Final = 1_000  # that send_many takes from its arguments at a time
RECORD_BYTES: Final = 32  # at most, besides key, value and headers


class TransactionWriter:
    """The batches that are not sent yet."""

    def __init__(
        self,
        brokers: Brokers,
        core: TransactionCore,
        sender: BatchSender,
        *,
        compression: Compression,
    ) -> None:
        self._brokers = brokers
        self._core = core
        self._sender = sender
        self._compression = compression
        self._partition_counts: dict[str, int] = {}
        self._counted_at = 0.0
        self._open: dict[TopicPartition, GrowingBatch] = {}
        self._open_bytes = 0
        self._batches = 0
        self._sticky: dict[str, _Sticky] = {}

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[HeaderPair],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        size = RECORD_BYTES if value is None else RECORD_BYTES + len(value)
        if headers:
            size += sum(4 * len(name) + len(content or b"") + 10 for name, content in headers)
        if partition is not None:
            place = self._given(topic, partition)
        elif key is not None:
            place = TopicPartition(topic, partition_of(key, self._count(topic)))
        else:
            place = self._any(topic, size)
        if key is not None:
            size += len(key)
        batch = self._open.get(place)
        if batch is None:
            batch = self._begin(place)
        elif batch.count and batch.bytes + size > BATCH_BYTES_MAX:
            self._seal(place)
            batch = self._begin(place)
        before = batch.bytes
        batch.append(key, value, headers, _now_ms() if timestamp_ms is None else timestamp_ms)
        self._grown(place, batch, before)

    def extend(
        self,
        topic: str,
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        """Append messages without headers."""
        now = _now_ms() if timestamp_ms is None else timestamp_ms
        left = iter(values)
        left_keys = None if keys is None else iter(keys)
        while some := list(islice(left, CHUNK_MESSAGES)):
            some_keys = None if left_keys is None else list(islice(left_keys, len(some)))
            if some_keys is not None and len(some_keys) < len(some):
                raise ValueError("there are fewer keys than values")
            if some_keys is None or partition is not None:
                self._extend(topic, some_keys, some, partition, now)
                continue
            for chosen, (of_keys, of_values) in self._by_partition(topic, some_keys, some).items():
                self._extend(topic, of_keys, of_values, chosen, now)
        if left_keys is not None and next(left_keys, self) is not self:
            raise ValueError("there are more keys than values")

    def _by_partition(
        self, topic: str, keys: list[bytes | None], values: list[bytes | None]
    ) -> dict[int | None, tuple[list[bytes | None], list[bytes | None]]]:
        """Keys and values of each partition; None has those that go to any."""
        count = self._count(topic)
        found: dict[int | None, tuple[list[bytes | None], list[bytes | None]]] = {}
        for key, value in zip(keys, values, strict=True):
            chosen = None if key is None else partition_of(key, count)
            group = found.get(chosen)
            if group is None:
                group = found[chosen] = ([], [])
            group[0].append(key)
            group[1].append(value)
        return found

    def _extend(
        self,
        topic: str,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        partition: int | None,
        timestamp_ms: int,
    ) -> None:
        done = 0
        while done < len(values):
            if partition is not None:
                place, room = self._given(topic, partition), BATCH_BYTES
            else:
                place, room = self._any(topic, 0), STICKY_BYTES
            batch = self._open.get(place) or self._begin(place)
            before, first = batch.bytes, done
            done = batch.extend(
                keys,
                values,
                first,
                timestamp_ms,
                bytes_max=min(BATCH_BYTES, before + room),
                bytes_limit=BATCH_BYTES_MAX,
            )
            if partition is None:
                self._sticky[topic].bytes_left -= batch.bytes - before
            self._grown(place, batch, before)
            if done == first and place in self._open:
                self._seal(place)  # The next message is too large for this batch.

    def seal_all(self) -> None:
        """Hand all batches to the sender: those of one leader go together."""
        filled = [place for place, batch in self._open.items() if batch.count]
        self._sender.add([self._sealed(place) for place in filled])

    def begin(self) -> None:
        """A transaction begins."""
        if time.monotonic() - self._counted_at >= COUNTS_SECONDS_MAX:
            self._partition_counts.clear()

    def clear(self) -> None:
        """Drop what was not sent, and what may be the reason: partitions that are gone."""
        self._open.clear()
        self._open_bytes = 0
        self._partition_counts.clear()

    def _begin(self, place: TopicPartition) -> GrowingBatch:
        batch = self._open[place] = GrowingBatch()
        self._open_bytes += batch.bytes
        return batch

    def _grown(self, place: TopicPartition, batch: GrowingBatch, before: int) -> None:
        self._open_bytes += batch.bytes - before
        if batch.bytes >= BATCH_BYTES:
            self._seal(place)
        elif self._open_bytes >= OPEN_BYTES_MAX:
            self.seal_all()

    def _seal(self, place: TopicPartition) -> None:
        self._sender.add([self._sealed(place)])

    def _sealed(self, place: TopicPartition) -> Batch:
        batch = self._open.pop(place)
        self._open_bytes -= batch.bytes
        self._batches += 1
        data = batch.build(
            compression=self._compression,
            producer_id=self._core.producer_id,
            producer_epoch=self._core.producer_epoch,
            base_sequence=self._core.take_sequence(place, batch.count),
        )
        return Batch(place=place, number=self._batches, data=data)

    # Partitions

    def _count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            if not self._partition_counts:
                self._counted_at = time.monotonic()
            count = self._partition_counts[topic] = self._brokers.partition_count(topic)
        return count

    def _given(self, topic: str, partition: int) -> TopicPartition:
        if not 0 <= partition < self._count(topic):
            del self._partition_counts[topic]  # Partitions may have been added.
            if not 0 <= partition < self._count(topic):
                _refuse_partition(topic, partition, self._count(topic))
        return TopicPartition(topic, partition)

    def _any(self, topic: str, size: int) -> TopicPartition:
        """The partition of messages without a key, of which the next ones take so many bytes."""
        sticky = self._sticky.get(topic)
        if sticky is None or sticky.bytes_left <= 0:
            partition = random.randrange(self._count(topic))  # noqa: S311 - not for secrets
            sticky = self._sticky[topic] = _Sticky(TopicPartition(topic, partition), STICKY_BYTES)
        sticky.bytes_left -= size
        return sticky.place


@dataclass(slots=True)
class _Sticky:
    """Where messages without a key go, for so many bytes."""

    place: TopicPartition
    bytes_left: int


def _refuse_partition(topic: str, partition: int, count: int) -> NoReturn:
    raise RequestFailed(f"{topic!r} has partitions 0 to {count - 1}, not {partition}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

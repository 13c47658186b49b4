"""The producers that write to this broker: who they are, where they write, and at which rate."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from zhumq.broker.housekeeping import Chore
from zhumq.host.clock import Clock
from zhumq.model.ids import NO_PRODUCER_ID, TopicPartition
from zhumq.model.metric import Metric
from zhumq.net.service import ConnectionInfo
from zhumq.records.batch import HEADER, HEADER_BYTES, BatchHeader

# Pairs of a producer and a partition. Of more, the one that wrote least recently goes, to within a turn.
SEEN_MAX: Final = 2_000
# How often rates are computed.
TURN_MS: Final = 5_000
# Of each connection so many requests are looked at in a turn; of the rest every 64th to 191st, which then
# stands for those before it.
EXACT_PER_TURN: Final = 20
STRIDE_MIN: Final = 64
STRIDE_BITS: Final = 7
# A producer counts in the metrics for so long after its last request.
ACTIVE_MS: Final = 300_000


class ProducerKind(StrEnum):
    """What a producer asks of the broker."""

    PLAIN = "plain"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"


class ProducerKey(NamedTuple):
    """A producer and a partition that it writes to. It stays the same when the producer connects again."""

    client_id: str
    principal: str
    host: str
    producer_id: int
    topic: str
    partition: int


@dataclass(slots=True, kw_only=True)
class SeenProducer:
    """What a producer has written to a partition. Counts are estimates where it sends many requests."""

    first_ms: int
    last_ms: int = 0
    kind: ProducerKind = ProducerKind.PLAIN
    producer_epoch: int = -1
    transactional_id: str | None = None
    port: int = 0
    requests: int = 0
    messages: int = 0
    size_bytes: int = 0
    # A second, in the last turn.
    request_rate: float = 0.0
    message_rate: float = 0.0
    byte_rate: float = 0.0
    # The counts at the end of that turn.
    before: tuple[int, int, int] = (0, 0, 0)

    def add(self, requests: int, messages: int, size_bytes: int) -> None:
        self.requests += requests
        self.messages += messages
        self.size_bytes += size_bytes

    def turn(self, seconds: float) -> None:
        counts = (self.requests, self.messages, self.size_bytes)
        self.request_rate, self.message_rate, self.byte_rate = (
            (now - before) / seconds for now, before in zip(counts, self.before, strict=True)
        )
        self.before = counts


@dataclass(slots=True)
class _Turn:
    """What one connection has sent since the last turn. What it writes to again is found by its first look."""

    looks: int = 0
    seen: dict[tuple[str | None, TopicPartition, int], SeenProducer] = field(default_factory=dict)


class SeenProducers:
    """Keeps the producers that wrote last. The handler of Produce calls `look` when a connection is due."""

    def __init__(self, clock: Clock, draw_bits: Callable[[int], int]) -> None:
        self._clock = clock
        self._draw_bits = draw_bits
        self._seen: OrderedDict[ProducerKey, SeenProducer] = OrderedDict()
        self._turns: dict[ConnectionInfo, _Turn] = {}
        self._turned_ms = clock.monotonic_ms()
        self.forgotten_total = 0

    def __len__(self) -> int:
        return len(self._seen)

    def items(self) -> Iterator[tuple[ProducerKey, SeenProducer]]:
        return iter(tuple(self._seen.items()))

    def look(
        self,
        connection: ConnectionInfo,
        client_id: str | None,
        topic_partition: TopicPartition,
        records: bytes | memoryview,
        *,
        requests: int,
        messages: int,
        size_bytes: int,
        now_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        """Note requests about one partition, and with them those that were not looked at since the last look. What a
        request writes to several partitions counts as a request for each."""
        weight = connection.produced - connection.produced_seen
        connection.produced_seen = connection.produced
        turn = self._turns.get(connection)
        if turn is None:
            turn = self._turns[connection] = _Turn()
        turn.looks += 1
        is_exact = turn.looks < EXACT_PER_TURN
        stride = 1 if is_exact else STRIDE_MIN + self._draw_bits(STRIDE_BITS)
        connection.produced_due = connection.produced + stride
        if len(records) < HEADER_BYTES:
            return
        header = BatchHeader(*HEADER.unpack_from(records))
        writes = (client_id, topic_partition, header.producer_id)
        seen = turn.seen.get(writes)
        if seen is None:
            seen = self._find(connection, client_id, topic_partition, header, now_ms)
            seen.transactional_id = transactional_id or seen.transactional_id
            turn.seen[writes] = seen
        seen.last_ms = now_ms
        each = max(requests, 1)
        seen.add(weight, messages * weight // each, size_bytes * weight // each)

    def _find(
        self,
        connection: ConnectionInfo,
        client_id: str | None,
        topic_partition: TopicPartition,
        header: BatchHeader,
        now_ms: int,
    ) -> SeenProducer:
        key = ProducerKey(
            client_id or "",
            str(connection.principal),
            connection.client_host,
            header.producer_id,
            *topic_partition,
        )
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= SEEN_MAX:
                self._seen.popitem(last=False)
                self.forgotten_total += 1
            seen = self._seen[key] = SeenProducer(first_ms=now_ms)
        else:
            self._seen.move_to_end(key)
        seen.kind = _kind_of(header)
        seen.producer_epoch = header.producer_epoch
        seen.port = connection.client_port
        return seen

    def chore(self) -> Chore:
        """Computes the rates."""
        return Chore(name="rates of producers", interval_ms=TURN_MS, work=self._turn_later)

    async def _turn_later(self) -> None:
        self.turn()

    def turn(self) -> None:
        """Compute the rates since the last turn. The next request of every connection is looked at again."""
        now_ms = self._clock.monotonic_ms()
        seconds = max(now_ms - self._turned_ms, 1) / 1000
        self._turned_ms = now_ms
        for seen in self._seen.values():
            seen.turn(seconds)
        for connection in self._turns:
            connection.produced_due = 0
        self._turns.clear()

    @property
    def active_count(self) -> int:
        """Producers that have written in the last minutes."""
        return sum(map(len, self._active().values()))

    def _active(self) -> dict[ProducerKind, set[tuple[str, str, str, int]]]:
        since_ms = self._clock.now_ms() - ACTIVE_MS
        kinds: dict[ProducerKind, set[tuple[str, str, str, int]]] = {
            kind: set() for kind in ProducerKind
        }
        for key, seen in self._seen.items():
            if seen.last_ms >= since_ms:
                kinds[seen.kind].add(key[:4])
        return kinds

    def metrics(self) -> Iterable[Metric]:
        kinds = self._active()
        yield Metric(
            name="zhumq_producers",
            kind="gauge",
            help="Producers that have written to this broker in the last five minutes.",
            labels=("kind",),
            samples=[(f'{{kind="{kind}"}}', len(found)) for kind, found in kinds.items()],
        )
        yield Metric(
            name="zhumq_producers_forgotten_total",
            kind="counter",
            help="Pairs of a producer and a partition that are not kept because others wrote more recently.",
            samples=[("", self.forgotten_total)],
        )


def _kind_of(header: BatchHeader) -> ProducerKind:
    if header.is_transactional:
        return ProducerKind.TRANSACTIONAL
    return ProducerKind.PLAIN if header.producer_id == NO_PRODUCER_ID else ProducerKind.IDEMPOTENT

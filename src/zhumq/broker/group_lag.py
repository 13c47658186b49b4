"""The lag of groups: committed offsets against the ends of their partitions, in messages and in seconds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from zhumq.broker.housekeeping import Chore
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.offset_times import Place
from zhumq.groups.offsets import CommittedOffsets
from zhumq.groups.persisted import CommittedOffset, OffsetKey
from zhumq.host.clock import Clock
from zhumq.metadata.leadership import LogEnds
from zhumq.model.ids import TopicPartition
from zhumq.model.metric import Metric, escape_label
from zhumq.replication.replica_manager import ReplicaManager

SAMPLES_MAX: Final = 10_000  # of a broker; a scrape is made while clients wait
ENDS_KEPT_MS: Final = 5_000  # how long log ends of other brokers are kept
# How often the log is asked how old the first unread messages are, and for how many at once. With more,
# each is asked for in turn.
SAMPLE_MS: Final = 10_000
PLACES_PER_SAMPLE_MAX: Final = 1_000


class Times(Protocol):
    """When messages were written."""

    async def ask(self, places: Sequence[Place]) -> dict[Place, int]:
        """The times that are known."""


class Lag(NamedTuple):
    """How far a group is behind in one partition."""

    key: OffsetKey
    messages: int
    # How old the first message is that the group has not read; 0 without one, None: not known yet.
    seconds: float | None


class _Sampled(NamedTuple):
    offset: int
    time_ms: int  # of the message there
    age_ms: int  # when it was looked up


class GroupLags:
    """The lag of every group that this broker coordinates, per partition with a committed offset.

    For a partition without a replica here, the leader is asked in the background: its lag uses the log end
    known at the last scrape or sample. The age of a message is looked up by `sample`, which costs a read of the log. Commits and
    fetches cost nothing extra.
    """

    def __init__(
        self,
        committed: Callable[[], Iterable[CommittedOffsets]],
        replicas: ReplicaManager,
        store: MetadataStore,
        times: Times,
        clock: Clock,
    ) -> None:
        self._committed = committed
        self._replicas = replicas
        self._store = store
        self._times = times
        self._clock = clock
        self._remote_ends: dict[TopicPartition, int] = {}
        self._asked_at_ms: int | None = None
        self._asking: asyncio.Task[None] | None = None
        self._sampled: dict[OffsetKey, _Sampled] = {}
        self._turn = 0

    def lags(self) -> list[Lag]:
        """The current lags, at most SAMPLES_MAX; without those of partitions whose end is not known."""
        now_ms = self._clock.now_ms()
        return [
            Lag(key, messages, self._seconds(key, committed.offset, messages, now_ms))
            for key, committed, messages in self._behind()
        ]

    def metrics(self) -> Iterator[Metric]:
        messages: list[tuple[str, float]] = []
        seconds: list[tuple[str, float]] = []
        for lag in self.lags():
            key = lag.key
            labels = (
                f'{{group="{escape_label(key.group_id)}",topic="{escape_label(key.topic)}"'
                f',partition="{key.partition}"}}'
            )
            messages.append((labels, lag.messages))
            if lag.seconds is not None:
                seconds.append((labels, lag.seconds))
        yield Metric(
            name="zhumq_group_lag",
            kind="gauge",
            help="Messages between what a group has committed and the end of the partition.",
            labels=("group", "topic", "partition"),
            samples=messages,
        )
        yield Metric(
            name="zhumq_group_lag_seconds",
            kind="gauge",
            help="How old the first message is that a group has not committed; 0 without one. Sampled every ten seconds.",
            labels=("group", "topic", "partition"),
            samples=seconds,
        )
        yield Metric(
            name="zhumq_group_lag_left_out",
            kind="gauge",
            help="Committed partitions of groups beyond the most that are listed.",
            samples=[("", max(sum(map(len, self._committed())) - SAMPLES_MAX, 0))],
        )

    def chore(self) -> Chore:
        """Looks up how old the first unread messages are."""
        return Chore(name="lag of groups", interval_ms=SAMPLE_MS, work=self.sample)

    async def sample(self) -> None:
        """Look up the ages of first unread messages; those at offsets that have not moved are known."""
        behind = {
            key: Place(TopicPartition(key.topic, key.partition), committed.offset)
            for key, committed, messages in self._behind()
            if messages
        }
        before = self._sampled
        # What is not looked up in this turn keeps the age of an earlier one.
        self._sampled = {key: before[key] for key in behind if key in before}
        unknown = list(
            dict.fromkeys(
                place
                for key, place in behind.items()
                if key not in before or before[key].offset != place.offset
            )
        )
        self._turn = self._turn % max(len(unknown), 1)
        chosen = (unknown[self._turn :] + unknown[: self._turn])[:PLACES_PER_SAMPLE_MAX]
        self._turn += len(chosen)
        found = await self._times.ask(chosen)
        now_ms = self._clock.now_ms()
        for key, place in behind.items():
            time_ms = found.get(place)
            if time_ms is not None:
                self._sampled[key] = _Sampled(place.offset, time_ms, now_ms - time_ms)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _behind(self) -> list[tuple[OffsetKey, CommittedOffset, int]]:
        """Committed offsets with the messages behind them. Asks for the ends that are not known."""
        found = []
        elsewhere: set[TopicPartition] = set()
        offsets = (item for each in self._committed() for item in each.items())
        for key, committed in islice(offsets, SAMPLES_MAX):
            name = TopicPartition(key.topic, key.partition)
            partition = self._replicas.find(*name)
            end: int | None
            if partition is not None:
                end = partition.high_watermark
            else:
                elsewhere.add(name)
                end = self._remote_ends.get(name)
            if end is not None:
                found.append((key, committed, max(end - committed.offset, 0)))
        self._ask_others(elsewhere)
        return found

    def _seconds(self, key: OffsetKey, offset: int, messages: int, now_ms: int) -> float | None:
        if not messages:
            return 0.0
        sampled = self._sampled.get(key)
        if sampled is None:
            return None
        # A group that moves has the age of the last sample; one that is stuck gets older all the time.
        age_ms = now_ms - sampled.time_ms if sampled.offset == offset else sampled.age_ms
        return max(age_ms, 0) / 1000

    def _ask_others(self, partitions: set[TopicPartition]) -> None:
        now_ms = self._clock.monotonic_ms()
        is_fresh = self._asked_at_ms is not None and now_ms < self._asked_at_ms + ENDS_KEPT_MS
        if not partitions or is_fresh or (self._asking is not None and not self._asking.done()):
            return
        self._asked_at_ms = now_ms
        ask: Awaitable[LogEnds] = self._replicas.ask_log_ends(sorted(partitions))
        self._asking = asyncio.get_running_loop().create_task(self._update_remote_ends(ask))

    async def _update_remote_ends(self, asked: Awaitable[LogEnds]) -> None:
        ends = await asked
        image = self._store.image
        found: dict[TopicPartition, int] = {}
        for name, by_broker in ends.items():
            state = image.partition(name)
            if state is not None and (leader := image.leader_of(state)) in by_broker:
                found[name] = by_broker[leader].end_offset
        self._remote_ends = found

"""Metrics of group lag: committed offsets against the high watermarks of their partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from zhumq.broker.http import Metric, escape_label
from zhumq.cluster.store import MetadataStore
from zhumq.groups.offsets import CommittedOffsets
from zhumq.host.clock import Clock
from zhumq.metadata.leadership import LogEnds
from zhumq.model.ids import TopicPartition
from zhumq.replication.replica_manager import ReplicaManager

SAMPLES_MAX: Final = 10_000  # of a broker; a scrape is made while clients wait
ENDS_KEPT_MS: Final = 5_000  # how long log ends of other brokers are kept


class GroupLags:
    """The lag of every group that this broker coordinates, per partition with a committed offset.

    For a partition without a replica here, the leader is asked in the background: its lag uses the log end
    known at the last scrape. Without scrapes nothing is asked; commits and fetches cost nothing extra.
    """

    def __init__(
        self,
        committed: Callable[[], Iterable[CommittedOffsets]],
        replicas: ReplicaManager,
        store: MetadataStore,
        clock: Clock,
    ) -> None:
        self._committed = committed
        self._replicas = replicas
        self._store = store
        self._clock = clock
        self._remote_ends: dict[TopicPartition, int] = {}
        self._asked_at_ms: int | None = None
        self._asking: asyncio.Task[None] | None = None

    def metrics(self) -> Iterator[Metric]:
        samples: list[tuple[str, float]] = []
        elsewhere: set[TopicPartition] = set()
        shards = list(self._committed())
        offsets = (item for each in shards for item in each.items())
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
                labels = (
                    f'{{group="{escape_label(key.group_id)}",topic="{escape_label(key.topic)}"'
                    f',partition="{key.partition}"}}'
                )
                samples.append((labels, max(end - committed.offset, 0)))
        self._ask_others(elsewhere)
        yield Metric(
            name="zhumq_group_lag",
            kind="gauge",
            help="Messages between what a group has committed and the end of the partition.",
            samples=samples,
        )
        yield Metric(
            name="zhumq_group_lag_left_out",
            kind="gauge",
            help="Committed partitions of groups beyond the most that are listed.",
            samples=[("", max(sum(map(len, shards)) - SAMPLES_MAX, 0))],
        )

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

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

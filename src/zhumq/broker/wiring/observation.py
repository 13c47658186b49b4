"""Wiring of what a broker knows of its own past: producers, traffic by topic, history."""

import random
from collections.abc import Iterable
from pathlib import Path

from zhumq.broker.history import History, Levels, Sampler, lags_by_group
from zhumq.broker.housekeeping import Chore
from zhumq.broker.metrics import PartitionCounts, partition_counts
from zhumq.broker.seen_producers import SeenProducers
from zhumq.broker.traffic import Traffic
from zhumq.broker.wiring.coordinators import Coordinators
from zhumq.broker.wiring.foundation import Foundation
from zhumq.history.ring import FINE
from zhumq.model.metric import Metric
from zhumq.net.limits import Counters
from zhumq.storage.disk_room import DiskRoom


class Observation:
    """Looks at the other parts from time to time. They cost nothing extra in between."""

    def __init__(
        self,
        data_dir: Path,
        base: Foundation,
        coordinators: Coordinators,
        disk_room: DiskRoom,
        counters: Counters,
    ) -> None:
        self._base = base
        self._coordinators = coordinators
        self._disk_room = disk_room
        self._counters = counters
        self._counted = (-1, PartitionCounts(0, 0, 0))
        self.seen_producers = SeenProducers(base.clock, random.SystemRandom().getrandbits)
        self._traffic = Traffic(base.replicas)
        sampler = Sampler(self._traffic, self._levels, base.clock)
        self.history = (
            History(data_dir, sampler, base.clock)
            if base.settings.boolean("history.enable")
            else None
        )

    def chores(self) -> list[Chore]:
        # The history looks at the traffic, too.
        sampling = (
            Chore(name="traffic", interval_ms=FINE.step_ms, work=self._traffic.look)
            if self.history is None
            else self.history.chore()
        )
        coordinators = self._coordinators
        return [
            coordinators.groups.lags.chore(),
            coordinators.delivery.ages.chore(),
            self.seen_producers.chore(),
            sampling,
        ]

    def metrics(self) -> Iterable[Metric]:
        yield from self.seen_producers.metrics()
        yield from self._traffic.metrics()

    def _levels(self) -> Levels:
        image = self._base.store.image
        if self._counted[0] != image.version:
            self._counted = (image.version, partition_counts(image))
        counts = self._counted[1]
        usage = self._disk_room.usage
        lags = self._coordinators.groups.lags.lags()
        groups = lags_by_group((each.key.group_id, each.messages, each.seconds) for each in lags)
        # A subscription may commit its position as a group, too: then both say the same.
        groups |= lags_by_group(self._coordinators.delivery.lags())
        return Levels(
            requests_total=self._counters.requests_received,
            connections=self._counters.connections_open,
            producers=self.seen_producers.active_count,
            disk_used_bytes=usage.used_bytes,
            disk_total_bytes=usage.total_bytes,
            under_replicated=counts.under_replicated,
            leaderless=counts.leaderless,
            groups=groups,
        )

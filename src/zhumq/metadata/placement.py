"""Placement of replicas on a consistent-hash ring with virtual nodes. Pure and deterministic."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from zhumq.metadata.image import Broker
from zhumq.model.ids import BrokerId

# Chosen by measured balance: `python tests/unit/metadata/placement_spread.py` prints it. More virtual
# nodes make the ring slower to build without a better balance.
VIRTUAL_NODES: Final = 512
# A broker takes at most this percentage of its even share of one topic. A lower limit moves more data
# when a broker joins; a higher one lets a small topic crowd on few brokers.
SHARE_PERCENT_MAX: Final = 125
_POSITION_BYTES: Final = 8
_RINGS_KEPT: Final = 8


class Ring:
    """A hash ring with many positions per broker. A partition belongs to the brokers that follow it."""

    def __init__(self, racks: Mapping[BrokerId, str | None], virtual_nodes: int) -> None:
        points = sorted(
            (position, broker_id)
            for broker_id in racks
            for position in _positions(f"broker {broker_id}", virtual_nodes)
        )
        self._positions = [position for position, _ in points]
        self._brokers = [broker_id for _, broker_id in points]
        # A broker without a rack counts as a rack of its own.
        self.racks = {broker: rack or f"\0{broker}" for broker, rack in racks.items()}
        self.rack_sizes = Counter(self.racks.values())

    def after(self, topic: str, partition: int) -> Iterator[BrokerId]:
        """Every broker once, in ring order from the partition's position."""
        digest = _digest(f"partition {topic}-{partition}", 0)
        position = int.from_bytes(digest[:_POSITION_BYTES])
        start = bisect_left(self._positions, position)
        seen: set[BrokerId] = set()
        for index in range(start, start + len(self._brokers)):
            broker_id = self._brokers[index % len(self._brokers)]
            if broker_id not in seen:
                seen.add(broker_id)
                yield broker_id


def place(
    brokers: Iterable[Broker],
    topic: str,
    partition_count: int,
    replicas: int,
    *,
    present: Sequence[Sequence[BrokerId]] = (),
    virtual_nodes: int = VIRTUAL_NODES,
) -> list[tuple[BrokerId, ...]]:
    """The brokers of each new partition of a topic, the preferred leader first.

    The replicas of a partition are spread over as many racks as possible. `present` are the replicas
    of the existing partitions, which stay unchanged. There must be as many brokers as replicas.
    """
    ring = _ring(tuple(sorted((each.broker_id, each.rack) for each in brokers)), virtual_nodes)
    assert 0 < replicas <= len(ring.racks)
    even_share = partition_count * replicas * SHARE_PERCENT_MAX
    share_max = -(-even_share // (100 * len(ring.racks)))
    load = Counter(broker_id for each in present for broker_id in each)
    leads = Counter(each[0] for each in present)
    full = {broker_id for broker_id, count in load.items() if count >= share_max}
    placed: list[tuple[BrokerId, ...]] = []
    for partition in range(len(present), partition_count):
        chosen = _choose(ring, ring.after(topic, partition), replicas, full)
        # Any replica may be the preferred leader without moving data, so leaders are spread evenly.
        leader = min(chosen, key=leads.__getitem__)
        chosen.remove(leader)
        chosen.insert(0, leader)
        leads[leader] += 1
        for broker_id in chosen:
            load[broker_id] += 1
            if load[broker_id] >= share_max:
                full.add(broker_id)
        placed.append(tuple(chosen))
    return placed


def _choose(
    ring: Ring, around: Iterator[BrokerId], count: int, full: Collection[BrokerId]
) -> list[BrokerId]:
    """Prefer a new rack, then an even load, then the order on the ring.

    Stops as early as possible: with a thousand brokers a full round is slow.
    """
    chosen: list[BrokerId] = []
    passed_over: list[BrokerId] = []
    used: Counter[str] = Counter()

    def best_is(broker_id: BrokerId, fewest: int) -> bool:
        return used[ring.racks[broker_id]] == fewest and broker_id not in full

    while len(chosen) < count:
        fewest = _fewest_used(ring, used)
        best = next((each for each in passed_over if best_is(each, fewest)), None)
        if best is not None:
            passed_over.remove(best)
        else:
            for broker_id in around:
                if best_is(broker_id, fewest):
                    best = broker_id
                    break
                passed_over.append(broker_id)
        if best is None:
            # No broker fits: too few racks, or too few brokers below their share.
            best = min(passed_over, key=lambda each: (used[ring.racks[each]], each in full))
            passed_over.remove(best)
        used[ring.racks[best]] += 1
        chosen.append(best)
    return chosen


def _fewest_used(ring: Ring, used: Counter[str]) -> int:
    """The fewest replicas on any rack that still has unused brokers."""
    if len(used) < len(ring.rack_sizes):
        return 0
    return min(copies for rack, copies in used.items() if copies < ring.rack_sizes[rack])


@lru_cache(maxsize=_RINGS_KEPT)
def _ring(racks: tuple[tuple[BrokerId, str | None], ...], virtual_nodes: int) -> Ring:
    """Cached: the set of brokers seldom changes."""
    return Ring(dict(racks), virtual_nodes)


def _positions(name: str, count: int) -> list[int]:
    """Positions on the ring: the same in every process and release."""
    positions: list[int] = []
    block = 0
    while len(positions) < count:
        digest = _digest(name, block)
        positions.extend(
            int.from_bytes(digest[start : start + _POSITION_BYTES])
            for start in range(0, len(digest), _POSITION_BYTES)
        )
        block += 1
    return positions[:count]


def _digest(name: str, block: int) -> bytes:
    return blake2b(f"{name} {block}".encode()).digest()

"""Where partitions go: a consistent-hash ring with virtual nodes. Pure, and the same everywhere."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from zhumq.metadata.image import Broker
from zhumq.model.ids import BrokerId

# By measured balance: `python tests/unit/metadata/placement_spread.py` prints it. More of them
# make the ring slower to build and no evener than chance lets the partitions be.
VIRTUAL_NODES: Final = 512
# A broker takes at most so many per cent of its even share of one topic. Less moves more data when
# a broker joins; more lets a small topic crowd on few brokers.
SHARE_PERCENT_MAX: Final = 125
_POSITION_BYTES: Final = 8
_RINGS_KEPT: Final = 8


class Ring:
    """Brokers on a circle, each at many places. A partition belongs to the next ones after it."""

    def __init__(self, racks: Mapping[BrokerId, str | None], virtual_nodes: int) -> None:
        points = sorted(
            (position, broker_id)
            for broker_id in racks
            for position in _positions(f"broker {broker_id}", virtual_nodes)
        )
        self._positions = [position for position, _ in points]
        self._brokers = [broker_id for _, broker_id in points]
        # A broker that does not say where it stands shares its fate with nobody.
        self.racks = {broker: rack or f"\0{broker}" for broker, rack in racks.items()}
        self.rack_count = len(set(self.racks.values()))

    def after(self, topic: str, partition: int) -> Iterator[BrokerId]:
        """Every broker once, in the order in which the circle leads to them from the partition."""
        (position,) = _positions(f"partition {topic}-{partition}", 1)
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
    """The brokers of each partition of a topic that is not there yet, the preferred leader first.

    The copies of a partition are on as many racks as there are. `present` are the replicas of the
    first partitions, which stay as they are. There must be as many brokers as replicas.
    """
    ring = _ring(tuple(sorted((each.broker_id, each.rack) for each in brokers)), virtual_nodes)
    assert 0 < replicas <= len(ring.racks)
    even_share = partition_count * replicas * SHARE_PERCENT_MAX
    share_max = -(-even_share // (100 * len(ring.racks)))
    load = Counter(broker_id for each in present for broker_id in each)
    leads = Counter(each[0] for each in present)
    placed: list[tuple[BrokerId, ...]] = []
    for partition in range(len(present), partition_count):
        full = frozenset(broker_id for broker_id, count in load.items() if count >= share_max)
        chosen = _choose(ring, ring.after(topic, partition), replicas, full)
        # Any of them may lead, and a leader moves without its data: so leaders are spread evenly.
        leader = min(chosen, key=leads.__getitem__)
        chosen.remove(leader)
        chosen.insert(0, leader)
        leads[leader] += 1
        load.update(chosen)
        placed.append(tuple(chosen))
    return placed


def _choose(
    ring: Ring, around: Iterator[BrokerId], count: int, full: frozenset[BrokerId]
) -> list[BrokerId]:
    chosen: list[BrokerId] = []
    passed_over: list[BrokerId] = []
    used: Counter[str] = Counter()
    racks_wanted = min(count, ring.rack_count)
    for broker_id in around:
        if broker_id in full or ring.racks[broker_id] in used:
            passed_over.append(broker_id)
            continue
        used[ring.racks[broker_id]] += 1
        chosen.append(broker_id)
        if len(chosen) == count:
            return chosen
        if len(chosen) == racks_wanted:
            break
    passed_over.extend(around)
    # Too few racks, or too few brokers with room: a new rack counts for more than an even load, and
    # both for more than being next.
    while len(chosen) < count:
        broker_id = min(passed_over, key=lambda each: (used[ring.racks[each]], each in full))
        passed_over.remove(broker_id)
        used[ring.racks[broker_id]] += 1
        chosen.append(broker_id)
    return chosen


@lru_cache(maxsize=_RINGS_KEPT)
def _ring(racks: tuple[tuple[BrokerId, str | None], ...], virtual_nodes: int) -> Ring:
    """The rings of the last few sets of brokers are remembered: brokers seldom change."""
    return Ring(dict(racks), virtual_nodes)


def _positions(name: str, count: int) -> list[int]:
    """Positions on the circle: the same in every process and release."""
    positions: list[int] = []
    block = 0
    while len(positions) < count:
        digest = blake2b(f"{name} {block}".encode()).digest()
        positions.extend(
            int.from_bytes(digest[start : start + _POSITION_BYTES])
            for start in range(0, len(digest), _POSITION_BYTES)
        )
        block += 1
    return positions[:count]

"""Prints how evenly the ring spreads partitions, for several numbers of brokers and virtual nodes.

Run with `python tests/unit/metadata/placement_spread.py`.
"""

import time
from collections import Counter
from dataclasses import dataclass

from zhumq.metadata.image import Broker
from zhumq.metadata.placement import place
from zhumq.model.ids import BrokerId

TOPICS = 10
PARTITIONS = 1_000
REPLICAS = 3
BROKER_COUNTS = (3, 10, 100)
VIRTUAL_NODE_COUNTS = (16, 64, 128, 256, 512, 1_024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Shares of the least and the most loaded broker; 1.0 is an even share."""

    replicas: tuple[float, float]
    leaders: tuple[float, float]
    # The share of all replicas that move when a broker joins.
    moved: float


def brokers(count: int, racks: int = 0) -> list[Broker]:
    return [
        Broker(
            broker_id=BrokerId(number),
            host="127.0.0.1",
            port=9_092,
            rack=f"rack-{number % racks}" if racks else None,
        )
        for number in range(count)
    ]


def placement(
    members: list[Broker], virtual_nodes: int, topics: int = TOPICS, partitions: int = PARTITIONS
) -> list[tuple[BrokerId, ...]]:
    return [
        replicas
        for topic in range(topics)
        for replicas in place(
            members, f"topic-{topic}", partitions, REPLICAS, virtual_nodes=virtual_nodes
        )
    ]


def measure(
    broker_count: int, virtual_nodes: int, topics: int = TOPICS, partitions: int = PARTITIONS
) -> Spread:
    before = placement(brokers(broker_count), virtual_nodes, topics, partitions)
    after = placement(brokers(broker_count + 1), virtual_nodes, topics, partitions)
    replicas = Counter(broker for each in before for broker in each)
    leaders = Counter(each[0] for each in before)
    moved = sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))
    return Spread(
        replicas=_shares(replicas, broker_count),
        leaders=_shares(leaders, broker_count),
        moved=moved / replicas.total(),
    )


def _shares(counts: Counter[BrokerId], broker_count: int) -> tuple[float, float]:
    even = counts.total() / broker_count
    every = [counts[BrokerId(number)] / even for number in range(broker_count)]
    return min(every), max(every)


def main() -> None:
    print(f"{TOPICS} topics of {PARTITIONS} partitions with {REPLICAS} replicas")
    print("brokers  virtual nodes  replicas      leaders       moved by one more  seconds")
    for broker_count in BROKER_COUNTS:
        for virtual_nodes in VIRTUAL_NODE_COUNTS:
            started = time.perf_counter()
            spread = measure(broker_count, virtual_nodes)
            seconds = time.perf_counter() - started
            print(
                f"{broker_count:7}  {virtual_nodes:13}"
                f"  {spread.replicas[0]:.2f} - {spread.replicas[1]:.2f}"
                f"   {spread.leaders[0]:.2f} - {spread.leaders[1]:.2f}"
                f"   {spread.moved:.3f} (1/N {1 / (broker_count + 1):.3f})  {seconds:7.2f}"
            )


if __name__ == "__main__":
    main()

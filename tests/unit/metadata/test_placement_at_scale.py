"""Placement on a thousand brokers: how many brokers a partition visits on the ring."""

from collections import Counter
from collections.abc import Iterator

import pytest

from zhumq.metadata import placement
from zhumq.metadata.image import Broker
from zhumq.model.ids import BrokerId

BROKERS = 1_000
PARTITIONS = 200
REPLICAS = 3


def members(racks: int) -> list[Broker]:
    return [
        Broker(
            broker_id=BrokerId(number),
            host="h",
            port=1,
            rack=f"rack-{number % racks}" if racks else None,
        )
        for number in range(BROKERS)
    ]


@pytest.mark.parametrize("racks", [0, 1, 2, 3, 7])
def test_a_partition_visits_few_brokers_for_any_number_of_racks(
    racks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0
    after = placement.Ring.after

    def counted(ring: placement.Ring, topic: str, partition: int) -> Iterator[BrokerId]:
        nonlocal looked_at
        for broker_id in after(ring, topic, partition):
            looked_at += 1
            yield broker_id

    monkeypatch.setattr(placement.Ring, "after", counted)
    placed = placement.place(members(racks), "orders", PARTITIONS, REPLICAS, virtual_nodes=8)
    assert len(placed) == PARTITIONS
    assert looked_at < PARTITIONS * 30
    on_racks = [Counter(broker % racks if racks else broker for broker in each) for each in placed]
    assert all(len(each) == min(REPLICAS, racks or REPLICAS) for each in on_racks)

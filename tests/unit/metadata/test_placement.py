"""Placement: even, rack-aware, stable when brokers join or leave, and deterministic."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_spread import brokers, measure

from zhumq.metadata.image import Broker
from zhumq.metadata.placement import VIRTUAL_NODES, place
from zhumq.model.ids import BrokerId


@given(
    broker_count=st.integers(1, 12),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_replicas_are_on_distinct_brokers_and_on_as_many_racks_as_there_are(
    broker_count: int, partitions: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, broker_count))
    names = data.draw(
        st.lists(
            st.sampled_from(["a", "b", "c", None]), min_size=broker_count, max_size=broker_count
        )
    )
    members = [
        Broker(broker_id=BrokerId(number), host="h", port=1, rack=rack)
        for number, rack in enumerate(names)
    ]
    racks = {each.broker_id: each.rack or each.broker_id for each in members}
    rack_sizes = Counter(racks.values())
    for chosen in place(members, "t", partitions, replicas):
        assert len(chosen) == len(set(chosen)) == replicas
        used = Counter(racks[each] for each in chosen)
        assert len(used) == min(replicas, len(rack_sizes))
        # No rack holds two more than another rack that still has an unused broker.
        with_room = [used[rack] for rack, size in rack_sizes.items() if used[rack] < size]
        assert not with_room or max(used.values()) <= min(with_room) + 1


@given(broker_count=st.integers(1, 12), partitions=st.integers(1, 60), data=st.data())
def test_no_broker_takes_much_more_of_a_topic_than_its_share(
    broker_count: int, partitions: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, broker_count))
    placed = place(brokers(broker_count), "t", partitions, replicas)
    load = Counter(each for chosen in placed for each in chosen)
    share_max = -(-partitions * replicas * 125 // (100 * broker_count))
    # If no other broker is below its share, the last replicas exceed it.
    assert max(load.values()) <= share_max + replicas


def test_a_topic_with_a_replica_everywhere_has_its_leaders_spread_evenly() -> None:
    leaders = Counter(each[0] for each in place(brokers(3), "t", 12, 3))
    assert set(leaders.values()) == {4}


@pytest.mark.parametrize("broker_count", [3, 10, 100])
def test_replicas_and_leaders_are_spread_evenly(broker_count: int) -> None:
    spread = measure(broker_count, VIRTUAL_NODES, topics=3)
    least, most = (0.75, 1.3) if broker_count == 100 else (0.85, 1.15)
    assert least <= spread.replicas[0] <= spread.replicas[1] <= most
    assert 0.75 <= spread.leaders[0] <= spread.leaders[1] <= 1.25


@pytest.mark.parametrize("broker_count", [3, 10, 100])
def test_a_joining_broker_takes_about_its_share_and_little_else_moves(broker_count: int) -> None:
    spread = measure(broker_count, VIRTUAL_NODES, topics=3)
    assert spread.moved == pytest.approx(1 / (broker_count + 1), rel=0.35)


@settings(max_examples=50)
@given(gone=st.integers(0, 9), topic=st.text("abc", min_size=1, max_size=8))
def test_a_leaving_broker_moves_about_its_share(gone: int, topic: str) -> None:
    members = brokers(10)
    before = place(members, topic, 300, 3)
    after = place([each for each in members if each.broker_id != gone], topic, 300, 3)
    moved = sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))
    held = sum(gone in each for each in before)
    assert held <= moved <= held + 0.1 * 900


def test_added_partitions_leave_the_existing_ones_unchanged_and_even_out_the_load() -> None:
    present = place(brokers(3), "t", 3, 1)
    added = place(brokers(6), "t", 12, 1, present=present)
    assert len(added) == 9
    load = Counter(each[0] for each in [*present, *added])
    assert max(load.values()) <= 3


def test_every_process_places_alike() -> None:
    program = (
        "from zhumq.metadata.placement import place; from zhumq.metadata.image import Broker;"
        "print(place([Broker(broker_id=n, host='h', port=1, rack=str(n % 2)) for n in range(5)],"
        " 'orders', 6, 3))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_the_placement_of_a_release_is_the_placement_of_the_next() -> None:
    # If this changed, every rebalance after an upgrade would move nearly all data.
    assert place(brokers(5), "orders", 4, 2) == [(2, 0), (3, 4), (0, 1), (1, 4)]


def test_the_order_in_which_brokers_are_listed_does_not_matter() -> None:
    members = brokers(7)
    assert place(members, "t", 20, 3) == place(members[::-1], "t", 20, 3)

"""The nemesis injects the faults of a schedule, prints them, and always heals."""

import io
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from chaos.cluster_under_test import broker_name, zookeeper_name
from chaos.findings import Findings, Kind
from chaos.history import Recorder
from chaos.nemesis import STARTS_MAX, Nemesis
from chaos.network import CUT, OPEN, REFUSED
from chaos.schedule import (
    KILLS,
    MIXED,
    PARTITIONS,
    PAUSES,
    Fault,
    FaultKind,
    Step,
)

from zhumq.cluster.dev_zookeeper import DevZookeeperFailed

TARGETS = range(12)


class FakeBroker:
    def __init__(self) -> None:
        self.running = True
        self.paused = False
        self.log = "the end of its log"
        self.starts = 0
        self.refuses_to_start = 0
        self.stop_code = 0

    def launch(self) -> None:
        assert not self.running
        self.starts += 1

    def wait_until_ready(self) -> None:
        if self.refuses_to_start > 0:
            self.refuses_to_start -= 1
            raise RuntimeError("no ready line")
        self.running = True

    def stop(self) -> int:
        self.running = False
        return self.stop_code

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class FakeNode:
    def __init__(self, number: int) -> None:
        self.number = number
        self.running = True
        self.paused = False

    def kill(self) -> None:
        self.running = False
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class FakeClusterUnderTest:
    """Three brokers and three ZooKeeper nodes that only record the faults."""

    def __init__(self) -> None:
        self.brokers = {number: FakeBroker() for number in (1, 2, 3)}
        nodes = [FakeNode(number) for number in (1, 2, 3)]
        self.links: dict[tuple[str, str], object] = {}
        self.has_zookeeper_leader = True
        self.zookeeper = SimpleNamespace(
            nodes=nodes, leader=self._zookeeper_leader, restart=self._restart
        )
        self.cluster = SimpleNamespace(
            brokers=self.brokers, zookeeper=self.zookeeper, kill=self._kill
        )
        self.shut: set[str] = set()
        self.network = SimpleNamespace(
            heal=self.links.clear, shut=self.shut.add, reopen=self.shut.discard
        )
        self.broker_ids = [1, 2, 3]

    def leaders(self) -> dict[str, int]:
        return {"t-0": 1, "t-1": 2, "__consumer_offsets-0": 1}

    def controller(self) -> int | None:
        return 3

    def group_coordinator(self, group: str) -> int | None:
        return 2

    def log_tail(self, broker_id: int) -> str:
        return self.brokers[broker_id].log

    def set_link(self, source: int, target: int, link: object) -> None:
        self.links[broker_name(source), broker_name(target)] = link

    def set_links(self, broker_id: int, others: list[int], link: object) -> None:
        for other in others:
            self.set_link(broker_id, other, link)
            self.set_link(other, broker_id, link)

    def set_zookeeper_links(self, broker_id: int, link: object, *, both_ways: bool = True) -> None:
        for node in self.zookeeper.nodes:
            self.links[broker_name(broker_id), zookeeper_name(node.number)] = link
            if both_ways:
                self.links[zookeeper_name(node.number), broker_name(broker_id)] = link

    @property
    def is_well(self) -> bool:
        brokers = self.brokers.values()
        return (
            all(broker.running and not broker.paused for broker in brokers)
            and all(node.running and not node.paused for node in self.zookeeper.nodes)
            and not self.links
            and not self.shut
        )

    def _kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.brokers[broker_id].running = False
            self.brokers[broker_id].paused = False

    def _zookeeper_leader(self) -> FakeNode:
        if not self.has_zookeeper_leader:
            raise DevZookeeperFailed("no node leads")
        return self.zookeeper.nodes[0]

    def _restart(self, *nodes: FakeNode) -> None:
        for node in nodes:
            assert not node.running
            node.running = True


class World:
    def __init__(self) -> None:
        self.cluster_under_test = FakeClusterUnderTest()
        self.findings = Findings()
        self.printed: list[str] = []
        recorder = Recorder(io.StringIO())
        self.nemesis = Nemesis(
            self.cluster_under_test,
            recorder,
            self.findings,
            groups=["g"],
            print_line=self.printed.append,
        )

    @property
    def kinds(self) -> list[Kind]:
        return [finding.kind for finding in self.findings]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("target", [0, 1, 2])
def test_every_fault_hits_the_cluster_and_is_healed(
    world: World, kind: FaultKind, target: int
) -> None:
    injected = world.nemesis.do(Fault(kind=kind, target=target))
    assert injected is not None
    assert injected.kind is kind
    assert not world.cluster_under_test.is_well
    world.nemesis.heal()
    assert world.cluster_under_test.is_well
    assert world.nemesis.injected_faults == [injected]
    assert len(world.printed) == 1
    assert world.kinds == []


def test_a_zookeeper_that_is_paused_and_killed_is_started_and_not_resumed(world: World) -> None:
    assert world.nemesis.do(Fault(kind=FaultKind.PAUSE_ZOOKEEPER, target=0)) is not None
    # A paused node cannot name the leader, and a second pause changes nothing.
    assert world.nemesis.do(Fault(kind=FaultKind.KILL_ZOOKEEPER_LEADER, target=0)) is None
    assert world.nemesis.do(Fault(kind=FaultKind.PAUSE_ZOOKEEPER, target=0)) is None
    for node in world.cluster_under_test.zookeeper.nodes:
        node.kill()
    world.nemesis.heal()
    assert world.cluster_under_test.is_well


def test_different_numbers_choose_different_targets(world: World) -> None:
    targets = set()
    for target in TARGETS:
        injected = world.nemesis.do(Fault(kind=FaultKind.CUT_ONE_WAY, target=target))
        assert injected is not None
        targets.add(injected.target)
        world.nemesis.heal()
    assert len(targets) == 6  # every ordered pair of three


def test_the_leader_that_is_killed_is_one_of_a_partition_that_clients_write(world: World) -> None:
    for target in TARGETS:
        injected = world.nemesis.do(Fault(kind=FaultKind.KILL_LEADER, target=target))
        assert injected is not None
        assert injected.leaders_hit in ({"t-0"}, {"t-1"})
        world.nemesis.heal()
    hit = {place for each in world.nemesis.interruptions() for place in each.places}
    assert hit == {"t-0", "t-1"}


def test_a_kill_of_a_group_coordinator_records_the_group(world: World) -> None:
    injected = world.nemesis.do(Fault(kind=FaultKind.KILL_GROUP_COORDINATOR, target=0))
    assert injected is not None
    assert injected.groups_hit == {"g"}
    assert [each.places for each in world.nemesis.group_interruptions()] == [{"g"}]


def test_a_fault_that_comes_with_another_does_not_count_as_an_interruption(world: World) -> None:
    world.nemesis.do(Fault(kind=FaultKind.KILL_LEADER, target=0), is_alone=False)
    assert world.nemesis.interruptions() == []


def test_a_fault_without_a_target_is_not_injected(world: World) -> None:
    world.nemesis.do(Fault(kind=FaultKind.KILL_ALL, target=0))
    for kind in KILLS | PAUSES | PARTITIONS:
        assert world.nemesis.do(Fault(kind=kind, target=0)) is None
    world.cluster_under_test.has_zookeeper_leader = False
    assert world.nemesis.do(Fault(kind=FaultKind.KILL_ZOOKEEPER_LEADER, target=0)) is None
    world.nemesis.heal()
    assert world.cluster_under_test.is_well


def test_cuts_are_cuts_and_refusals_are_refusals(world: World) -> None:
    world.nemesis.do(Fault(kind=FaultKind.CUT_BROKER, target=0))
    assert set(world.cluster_under_test.links.values()) == {CUT}
    assert len(world.cluster_under_test.links) == 4
    world.nemesis.heal()
    world.nemesis.do(Fault(kind=FaultKind.REFUSE_BROKER, target=0))
    assert set(world.cluster_under_test.links.values()) == {REFUSED}
    world.nemesis.heal()
    world.nemesis.do(Fault(kind=FaultKind.CUT_FROM_ZOOKEEPER_ONE_WAY, target=0))
    assert all(source.startswith("broker") for source, _ in world.cluster_under_test.links)
    assert OPEN not in world.cluster_under_test.links.values()


def test_a_paused_broker_that_is_killed_too_is_started_and_not_resumed(world: World) -> None:
    world.nemesis.do(Fault(kind=FaultKind.PAUSE_BROKER, target=0))
    world.nemesis.do(Fault(kind=FaultKind.KILL_ALL, target=0))
    world.nemesis.heal()
    assert world.cluster_under_test.is_well


def test_a_broker_that_crashes_by_itself_is_a_finding_and_is_started_again(world: World) -> None:
    world.cluster_under_test.brokers[2].running = False
    world.nemesis.report_crashed_brokers()
    assert world.kinds == [Kind.BROKER_FELL]
    world.nemesis.heal()
    assert world.cluster_under_test.is_well


def test_a_killed_broker_does_not_count_as_crashed(world: World) -> None:
    world.nemesis.do(Fault(kind=FaultKind.KILL_BROKER, target=0))
    world.nemesis.report_crashed_brokers()
    assert world.kinds == []


def test_a_broker_that_does_not_start_is_a_finding_and_is_tried_again(world: World) -> None:
    world.cluster_under_test.brokers[1].refuses_to_start = 1
    world.nemesis.do(Fault(kind=FaultKind.KILL_ALL, target=0))
    world.nemesis.heal()
    assert world.cluster_under_test.is_well
    assert world.kinds == [Kind.BROKER_FELL]
    assert world.cluster_under_test.brokers[1].starts == 2


def test_a_broker_that_does_not_stop_cleanly_is_a_finding(world: World) -> None:
    for broker in world.cluster_under_test.brokers.values():
        broker.stop_code = 1
    world.nemesis.do(Fault(kind=FaultKind.STOP_BROKER, target=0))
    assert world.kinds == [Kind.BROKER_FELL]
    world.nemesis.heal()
    assert world.cluster_under_test.is_well


def test_a_broker_that_never_starts_does_not_hold_up_the_end(world: World) -> None:
    world.cluster_under_test.brokers[1].refuses_to_start = 100
    world.nemesis.do(Fault(kind=FaultKind.KILL_ALL, target=0))
    world.nemesis.heal()
    assert world.cluster_under_test.brokers[1].starts == STARTS_MAX
    assert world.cluster_under_test.brokers[2].running


def test_a_schedule_is_run_and_healed_step_by_step(world: World) -> None:
    def schedule() -> Iterator[Step]:
        for kind in (FaultKind.KILL_BROKER, FaultKind.CUT_PAIR, FaultKind.PAUSE_BROKER):
            assert world.cluster_under_test.is_well
            yield Step(calm_ms=1, faults=(Fault(kind=kind, target=1),), lasts_ms=1)

    world.nemesis.run(schedule(), seconds=60.0)
    assert world.cluster_under_test.is_well
    assert len(world.nemesis.injected_faults) == 3


def test_whatever_goes_wrong_the_cluster_is_healed(world: World) -> None:
    def schedule() -> Iterator[Step]:
        yield Step(calm_ms=1, faults=(Fault(kind=FaultKind.KILL_ALL, target=1),), lasts_ms=1)
        world.nemesis.do(Fault(kind=FaultKind.CUT_BROKER, target=1))
        raise OSError("the schedule is over")

    with pytest.raises(OSError, match="over"):
        world.nemesis.run(schedule(), seconds=60.0)
    assert world.cluster_under_test.is_well


def test_time_ends_a_schedule_that_does_not_end(world: World) -> None:
    step = Step(calm_ms=50, faults=(Fault(kind=FaultKind.CUT_PAIR, target=1),), lasts_ms=50)
    world.nemesis.run(iter(lambda: step, None), seconds=0.3)
    assert 1 <= len(world.nemesis.injected_faults) <= 3
    assert world.cluster_under_test.is_well

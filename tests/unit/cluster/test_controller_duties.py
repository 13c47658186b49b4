"""The controller's own duties: mode changes, planned moves, balance, more replicas, declined leaders."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from zhumq.cluster import controller as controller_module
from zhumq.cluster.controller import Balance, Controller
from zhumq.cluster.store import ControllerFenced, VersionConflict
from zhumq.metadata.changes import BrokerRegistered, Change, PartitionChanged, apply_changes
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import LeaderPolicy, LogEnds
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode

WAIT_SECONDS = 10.0
TURNS_MAX = 200  # of the loop; a decision and its write take a few
OFTEN = Balance(interval_seconds=0.01, tolerated_percent=10)
FETCH = LeaderPolicy(mode=Mode.FETCH)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in numbers)


def partition(*replicas: int, leader: int, mode: Mode = Mode.FETCH) -> PartitionState:
    return PartitionState(
        replicas=ids(*replicas),
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(3),
        in_sync=ids(*replicas),
        partition_epoch=5,
        leader_broker_epoch=1,
        mode=mode,
    )


class MemoryStore:
    """An in-memory ControllerStore. Another broker writes first before each of the first `conflicts` writes."""

    def __init__(self, *partitions: PartitionState, brokers: int = 3, conflicts: int = 0) -> None:
        topic = Topic(name="t", topic_id=uuid.UUID(int=1), partitions=partitions)
        self.image = ClusterImage(
            version=1,
            cluster_id="c",
            controller_id=BrokerId(1),
            brokers={each: _broker(each) for each in ids(*range(1, brokers + 1))},
            topics={"t": topic},
            topics_by_id={topic.topic_id: topic},
            partition_count=len(partitions),
        )
        self.conflicts = conflicts
        self.is_fenced = False
        self.writes = 0
        self.watcher: Callable[[ClusterImage], None] = lambda _: None

    async def propose(
        self,
        changes: Sequence[Change],
        expected_version: int,
        *,
        controller_epoch: int | None = None,
    ) -> ClusterImage:
        assert controller_epoch == 7
        if self.is_fenced:
            raise ControllerFenced("another controller")
        if self.conflicts:
            self.conflicts -= 1
            self.change()
        if expected_version != self.image.version:
            raise VersionConflict("newer")
        self.writes += 1
        self.change(*changes)
        return self.image

    def change(self, *changes: Change) -> None:
        self.image = apply_changes(self.image, changes)
        self.watcher(self.image)

    def state(self, index: int = 0) -> PartitionState:
        return self.image.topics["t"].partitions[index]

    def put(self, state: PartitionState, index: int = 0) -> None:
        self.change(PartitionChanged(name="t", partition=index, state=state))


def _broker(broker_id: BrokerId) -> Broker:
    return Broker(broker_id=broker_id, host="h", port=1, epoch=1)


async def nothing_known(_: Sequence[TopicPartition]) -> LogEnds:
    return {}


def run(
    store: MemoryStore,
    scenario: Callable[[Controller], Awaitable[None]],
    policy: LeaderPolicy = FETCH,
    balance: Balance | None = None,
    copies: dict[str, int] | None = None,
) -> None:
    async def whole() -> None:
        made = Controller(store, lambda _: policy, nothing_known, balance, copies)
        store.watcher = made.on_image_changed
        made.on_image_changed(store.image)
        task = asyncio.ensure_future(made.run())
        made.elected(7)
        made.live_brokers(frozenset(store.image.brokers))
        try:
            await scenario(made)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(whole())


async def nothing_left_to_do() -> None:
    """Let the controller finish: without a balance it does not wait for the clock."""
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not fact():
            await asyncio.sleep(0.001)


def test_preferred_leaders_are_elected_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_module, "BALANCE_RETRY_SECONDS", 0.01)
    store = MemoryStore(*[partition(1, 2, 3, leader=2)] * 120, conflicts=2)

    async def scenario(_: Controller) -> None:
        await until(lambda: all(s.leader == 1 for s in store.image.topics["t"].partitions))
        assert store.writes == 3, (
            "a few partitions per write, so that not all leaders change at the same time"
        )

    run(store, scenario, balance=OFTEN)


def test_without_the_setting_leaders_stay_where_they_are() -> None:
    store = MemoryStore(partition(1, 2, 3, leader=2))

    async def scenario(made: Controller) -> None:
        made.live_brokers(frozenset(store.image.brokers))
        store.change(BrokerRegistered(broker=_broker(BrokerId(3))))
        await nothing_left_to_do()
        assert store.writes == 0

    run(store, scenario)


def test_a_partition_is_brought_to_its_topics_mode() -> None:
    store = MemoryStore(partition(1, 2, 3, leader=1, mode=Mode.RAFT))

    async def scenario(_: Controller) -> None:
        await until(lambda: store.state().changing_mode)
        assert (store.state().mode, store.state().leader) == (Mode.FETCH, 1)
        # The leader has won the votes and a majority is in sync: no step is left.
        store.put(replace(store.state(), changing_mode=False, in_sync=ids(1, 2), partition_epoch=9))
        writes = store.writes
        await nothing_left_to_do()
        assert store.writes == writes

    run(store, scenario)


def test_a_topic_created_with_too_few_brokers_gets_more_replicas_when_brokers_join() -> None:
    store = MemoryStore(partition(1, leader=1), brokers=1)

    async def scenario(made: Controller) -> None:
        await nothing_left_to_do()
        assert store.writes == 0
        for number in (2, 3):
            store.change(BrokerRegistered(broker=_broker(BrokerId(number))))
        made.live_brokers(frozenset(ids(1, 2, 3)))
        await until(lambda: len(store.state().replicas) >= 2)
        while store.state().adding or len(store.state().replicas) < 3:
            moving = store.state()
            settled = replace(moving, in_sync=moving.replicas, adding=(), removing=())
            store.put(replace(settled, partition_epoch=moving.partition_epoch + 1))
            await asyncio.sleep(0.005)
        assert set(store.state().replicas) == {1, 2, 3}

    run(store, scenario, copies={"t": 3})


def test_the_controller_retries_a_partition_whose_leader_declined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_module, "LEADERLESS_RETRY_SECONDS", 0.01)
    only = replace(partition(1, 2, 3, leader=1), in_sync=ids(1))
    store = MemoryStore(only)

    async def scenario(_: Controller) -> None:
        for _time in range(3):
            before = store.state().leader_epoch
            declined = replace(
                store.state(), leader=NO_BROKER, leader_broker_epoch=0, partition_epoch=99
            )
            store.put(declined)
            await until(lambda: store.state().leader == 1)
            assert store.state().leader_epoch > before

    run(store, scenario)


def test_a_controller_that_was_replaced_decides_nothing() -> None:
    store = MemoryStore(partition(1, 2, 3, leader=1))
    store.is_fenced = True

    async def scenario(made: Controller) -> None:
        made.live_brokers(frozenset(ids(2, 3)))
        await nothing_left_to_do()
        assert store.state().leader == 1
        made.deposed()

    run(store, scenario)

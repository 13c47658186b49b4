"""Requests of many replicas become one write, and outdated requests become none."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from zhumq.cluster.alter_partition_writer import AlterPartitionWriter
from zhumq.cluster.store import StoreUnavailable
from zhumq.cluster.znodes import Operation
from zhumq.consensus.contract import InSyncProposal, LeadershipDeclined
from zhumq.metadata.changes import BrokerRegistered, Change, apply_changes
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import LeaderPolicy, LogEnd, LogEnds
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from zhumq.model.replication_mode import Mode

OWN = BrokerId(1)
WAIT_SECONDS = 5.0


def fetch_partition(**changes: object) -> PartitionState:
    made = PartitionState(
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        leader=OWN,
        leader_epoch=LeaderEpoch(4),
        in_sync=(BrokerId(1), BrokerId(2), BrokerId(3)),
        partition_epoch=7,
        leader_broker_epoch=1,
        mode=Mode.FETCH,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def raft_partition(**changes: object) -> PartitionState:
    return fetch_partition(
        **{"mode": Mode.RAFT, "leader": NO_BROKER, "leader_broker_epoch": 0, **changes}
    )


class MemoryStore:
    """An in-memory AlterPartitionStore: the newest metadata image, one write at a time."""

    def __init__(self, *partitions: PartitionState) -> None:
        topic = Topic(name="t", topic_id=uuid.UUID(int=1), partitions=partitions)
        self.image = ClusterImage(
            version=1,
            cluster_id="c",
            controller_id=OWN,
            brokers={
                BrokerId(each): Broker(broker_id=BrokerId(each), host="h", port=1, epoch=1)
                for each in (1, 2, 3)
            },
            topics={"t": topic},
            topics_by_id={topic.topic_id: topic},
            partition_count=len(partitions),
        )
        self.broker_epoch: int | None = 1
        self.writes = 0
        self.failures = 0

    async def transact(
        self, plan: Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]
    ) -> ClusterImage:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("not now")
        changes, _ = plan(self.image)
        self.change(*changes)
        self.writes += 1
        return self.image

    def change(self, *changes: Change) -> None:
        self.image = apply_changes(self.image, changes)

    def state(self, index: int = 0) -> PartitionState:
        return self.image.topics["t"].partitions[index]


def name(index: int = 0) -> TopicPartition:
    return TopicPartition("t", index)


def proposal(version: int = 7, *in_sync: int) -> InSyncProposal:
    return InSyncProposal(leader_id=1, epoch=4, version=version, in_sync=frozenset(in_sync))


def declined(version: int = 7, epoch: int = 9, **changes: object) -> LeadershipDeclined:
    made = LeadershipDeclined(replica_id=1, epoch=epoch, version=version, damaged=False)
    return replace(made, **changes)  # type: ignore[arg-type]


async def nothing_known(_: Sequence[TopicPartition]) -> LogEnds:
    return {}


def run(
    store: MemoryStore,
    scenario: Callable[[AlterPartitionWriter], Awaitable[None]],
    ask: Callable[[Sequence[TopicPartition]], Awaitable[LogEnds]] = nothing_known,
    policy: LeaderPolicy | None = None,
) -> None:
    async def whole() -> None:
        requests = AlterPartitionWriter(OWN, store, lambda _: policy or LeaderPolicy(), ask)
        task = asyncio.ensure_future(requests.run())
        try:
            await scenario(requests)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(whole())


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not fact():
            await asyncio.sleep(0.001)


def test_a_thousand_elections_are_one_write() -> None:
    store = MemoryStore(*[raft_partition()] * 1_000)

    async def scenario(requests: AlterPartitionWriter) -> None:
        for index in range(1_000):
            requests.elected(name(index), 5)
        await until(lambda: store.state(999).leader == OWN)
        assert store.writes == 1
        assert {state.leader_epoch for state in store.image.topics["t"].partitions} == {5}

    run(store, scenario)


def test_outdated_elections_and_elections_of_fetch_partitions_are_not_written() -> None:
    store = MemoryStore(raft_partition(leader=2, leader_broker_epoch=1), fetch_partition(leader=2))

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.elected(name(0), 4)
        requests.elected(name(1), 9)
        requests.elected(name(2), 9)
        requests.elected(TopicPartition("gone", 0), 9)
        await until(lambda: not requests._gathered)
        await asyncio.sleep(0)
        assert store.writes == 0

    run(store, scenario)


def test_an_election_is_written_again_after_the_broker_registered_again() -> None:
    store = MemoryStore(raft_partition())

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.elected(name(), 5)
        await until(lambda: store.state().leader == OWN)
        again = replace(store.image.brokers[OWN], epoch=40)
        store.change(BrokerRegistered(broker=again))
        requests.elected(name(), 5)
        await until(lambda: store.state().leader_broker_epoch == 40)
        assert store.state().leader_epoch == 5
        assert store.image.leader_of(store.state()) == OWN

    run(store, scenario)


def test_an_in_sync_set_is_written_and_a_late_one_is_not() -> None:
    store = MemoryStore(fetch_partition(), fetch_partition())

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.propose_in_sync(name(0), proposal(7, 1, 2))
        requests.propose_in_sync(name(1), proposal(6, 1, 3))
        await until(lambda: store.state(0).in_sync == (1, 2))
        assert store.state(0).partition_epoch == 8
        assert store.state(1) == fetch_partition()
        assert store.writes == 1

    run(store, scenario)


def test_an_in_sync_set_with_a_dead_broker_is_refused_and_raises_the_version() -> None:
    store = MemoryStore(fetch_partition(in_sync=(BrokerId(1),)))
    del store.image.brokers[BrokerId(3)]  # type: ignore[attr-defined]

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.propose_in_sync(name(), proposal(7, 1, 3))
        await until(lambda: store.state().partition_epoch == 8)
        assert store.state().in_sync == (1,)

    run(store, scenario)


def test_a_broker_whose_session_may_have_expired_changes_no_in_sync_set() -> None:
    store = MemoryStore(fetch_partition())
    store.broker_epoch = None

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.propose_in_sync(name(), proposal(7, 1))
        await until(lambda: not requests._gathered)
        await asyncio.sleep(0)
        assert store.writes == 0

    run(store, scenario)


def test_a_leader_that_cannot_lead_is_replaced_above_its_epoch() -> None:
    store = MemoryStore(fetch_partition(changing_mode=True, in_sync=(BrokerId(1),)))

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.decline_leadership(name(), declined())
        await until(lambda: store.state().leader == 2)
        assert (store.state().leader_epoch, store.state().in_sync) == (10, (2,))
        requests.decline_leadership(name(), declined(version=7, epoch=90))
        await until(lambda: not requests._gathered)
        await asyncio.sleep(0)
        assert store.writes == 1

    run(store, scenario)


def test_the_longest_log_is_named_where_the_replicas_could_be_asked() -> None:
    store = MemoryStore(fetch_partition(changing_mode=True, in_sync=(BrokerId(1),)))

    async def ask(partitions: Sequence[TopicPartition]) -> LogEnds:
        ends = {
            BrokerId(each): LogEnd(LeaderEpoch(3), Offset(offset))
            for each, offset in ((1, 5), (2, 6), (3, 7))
        }
        return dict.fromkeys(partitions, ends)

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.decline_leadership(name(), declined())
        await until(lambda: store.state().leader == 3)

    run(store, scenario, ask)


def test_the_only_replica_in_sync_leads_again_unless_it_is_damaged() -> None:
    alone = (BrokerId(1),)
    store = MemoryStore(fetch_partition(in_sync=alone), fetch_partition(in_sync=alone))

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.decline_leadership(name(0), declined())
        requests.decline_leadership(name(1), declined(damaged=True))
        await until(lambda: store.state(1).leader == NO_BROKER)
        assert (store.state(0).leader, store.state(0).leader_epoch) == (OWN, 10)
        assert store.state(1).in_sync == alone
        assert store.writes == 1

    run(store, scenario)


def test_a_damaged_leader_leaves_the_in_sync_set() -> None:
    store = MemoryStore(fetch_partition())

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.decline_leadership(name(), declined(damaged=True))
        await until(lambda: store.state().leader == 2)
        assert store.state().in_sync == (2, 3)

    run(store, scenario)


def test_requests_wait_for_a_store_that_does_not_answer() -> None:
    store = MemoryStore(raft_partition())
    store.failures = 2

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.elected(name(), 5)
        await until(lambda: store.state().leader == OWN)

    run(store, scenario)


def test_partitions_of_an_unreachable_broker_get_new_leaders_before_its_session_ends() -> None:
    led = {"leader": BrokerId(3)}
    store = MemoryStore(
        *[fetch_partition(**led)] * 1_500,
        fetch_partition(),
        raft_partition(**led, leader_broker_epoch=1),
        fetch_partition(**led, in_sync=(BrokerId(3),)),
    )

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.report_unreachable(3)
        await until(lambda: store.state(1_499).leader == 1)
        assert store.writes == 2
        assert store.state(0).in_sync == (1, 2)
        assert store.state(0).leader_epoch == 5
        assert store.state(1_500) == fetch_partition()
        assert store.state(1_501).leader == 3
        assert store.state(1_502).leader == 3
        assert BrokerId(3) in store.image.brokers

    run(store, scenario, policy=LeaderPolicy(unclean=True))


def test_a_broker_that_registered_again_meanwhile_keeps_its_partitions() -> None:
    store = MemoryStore(fetch_partition(leader=BrokerId(3)))

    async def ask(_: Sequence[TopicPartition]) -> LogEnds:
        store.change(BrokerRegistered(broker=replace(store.image.brokers[BrokerId(3)], epoch=9)))
        return {}

    async def scenario(requests: AlterPartitionWriter) -> None:
        requests.report_unreachable(3)
        await until(lambda: store.image.brokers[BrokerId(3)].epoch == 9)
        requests.elected(name(), 5)
        await until(lambda: not requests._gathered)
        assert store.writes == 0

    run(store, scenario, ask)

"""One of a hundred brokers fails: the changes fit into ZooKeeper's transactions for all shapes of topics."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from itertools import cycle, islice

import pytest

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.alter_partition_writer import AlterPartitionWriter
from zhumq.cluster.znodes import Operation
from zhumq.cluster.zookeeper_store import (
    CONFLICT_PAUSE_SECONDS_MAX,
    CONFLICTS_AT_ONCE_MAX,
    conflict_pause_seconds,
)
from zhumq.metadata.changes import Change, TopicCreated, apply_changes, change_to_json
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import (
    CHANGES_PER_PROPOSAL_MAX,
    LeaderPolicy,
    LogEnds,
    in_batches,
    plan_membership,
)
from zhumq.metadata.placement import place
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode

BROKERS = 100
DEAD = BrokerId(7)
WAIT_SECONDS = 20.0
# Topics, partitions of each: many small ones, some of a usual size, and a few very wide ones.
SHAPES = [(3_000, 1), (3_000, 13), (400, 100), (4, 10_000)]


def members() -> list[Broker]:
    return [
        Broker(broker_id=BrokerId(number), host="h", port=1, epoch=900_000 + number)
        for number in range(BROKERS)
    ]


def partition(replicas: tuple[BrokerId, ...], mode: Mode) -> PartitionState:
    return PartitionState(
        replicas=replicas,
        leader=replicas[0],
        leader_epoch=LeaderEpoch(12),
        in_sync=replicas,
        partition_epoch=40,
        leader_broker_epoch=900_000 + replicas[0],
        mode=mode,
    )


def image_of(topics: int, partitions: int, mode: Mode = Mode.FETCH) -> ClusterImage:
    placed = cycle(place(members(), "t", 2_000, 3))
    image = ClusterImage(
        version=1,
        cluster_id="c",
        controller_id=BrokerId(0),
        brokers={each.broker_id: each for each in members()},
        topics={},
        topics_by_id={},
    )
    made = [
        Topic(
            name=f"orders.{number}",
            topic_id=uuid.UUID(int=number),
            partitions=tuple(partition(each, mode) for each in islice(placed, partitions)),
        )
        for number in range(topics)
    ]
    return apply_changes(image, [TopicCreated(topic=each) for each in made])


def transaction(image: ClusterImage, changes: Sequence[Change]) -> ClusterImage:
    """Raises PolicyViolation if ZooKeeper would not accept it."""
    after = apply_changes(image, changes)
    layout.transaction(image, after, changes, mark=str(uuid.uuid4()), version_token=1)
    return after


@pytest.mark.parametrize(("topics", "partitions"), SHAPES)
def test_every_proposal_after_a_broker_failure_fits_into_a_transaction(
    topics: int, partitions: int
) -> None:
    image = image_of(topics, partitions)
    live = frozenset(image.brokers) - {DEAD}
    planned = list(plan_membership(image, live, lambda _: LeaderPolicy()))
    batches = list(in_batches(planned, lambda name: layout.topic_bytes(image.topics[name])))
    assert [change for batch in batches for change in batch] == planned
    assert max(map(len, batches)) <= CHANGES_PER_PROPOSAL_MAX
    for batch in batches:
        image = transaction(image, batch)
    assert not list(plan_membership(image, live, lambda _: LeaderPolicy()))


@pytest.mark.parametrize("partitions", [1, 5, 8, 9, 20, 100, 1_000])
def test_topic_bytes_is_an_upper_bound_for_a_topics_node(partitions: int) -> None:
    topic = image_of(1, partitions).topics["orders.0"]
    operations = layout.transaction(
        image_of(0, 0),
        image_of(1, partitions),
        [TopicCreated(topic=topic)],
        mark="",
        version_token=1,
    )
    (node,) = [each for each in operations if each.path == layout.topic_path(topic.name)]
    fixed = len(str(change_to_json(TopicCreated(topic=topic)) | {"partitions": []}))
    assert len(getattr(node, "data", b"")) <= layout.topic_bytes(topic) + fixed


class SizedStore:
    """A store with ZooKeeper's limit on the size of a transaction."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.broker_epoch: int | None = image.brokers[BrokerId(1)].epoch
        self.writes = 0

    async def transact(
        self, plan: Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]
    ) -> ClusterImage:
        changes, _ = plan(self.image)
        self.image = transaction(self.image, changes)
        self.writes += 1
        return self.image


async def no_log_ends(_partitions: Sequence[TopicPartition]) -> LogEnds:
    return {}


def test_elections_won_in_many_large_topics_are_published_in_transactions_that_fit() -> None:
    async def run() -> None:
        store = SizedStore(image_of(400, 100, Mode.RAFT))
        writer = AlterPartitionWriter(
            BrokerId(1), store, lambda _: LeaderPolicy(mode=Mode.RAFT), no_log_ends
        )
        won = [
            TopicPartition(topic.name, index)
            for topic in store.image.topics.values()
            for index, state in enumerate(topic.partitions)
            if BrokerId(1) in state.replicas
        ][:900]
        running = asyncio.create_task(writer.run())
        for name in won:
            writer.elected(name, 13)

        def is_known(name: TopicPartition) -> bool:
            state = store.image.partition(name)
            return state is not None and (state.leader, state.leader_epoch) == (1, 13)

        async with asyncio.timeout(WAIT_SECONDS):
            while not all(map(is_known, won)):
                await asyncio.sleep(0.01)
        running.cancel()
        assert 1 < store.writes < len(won) / 10

    asyncio.run(run())


def test_the_pause_grows_with_the_number_of_consecutive_conflicts() -> None:
    pauses = [conflict_pause_seconds(conflicts, 1.0) for conflicts in range(1, 40)]
    assert pauses[:CONFLICTS_AT_ONCE_MAX] == [0.0] * CONFLICTS_AT_ONCE_MAX
    assert pauses == sorted(pauses)
    assert pauses[-1] == CONFLICT_PAUSE_SECONDS_MAX
    assert conflict_pause_seconds(40, 0.0) == 0.0

"""Shards are loaded and unloaded with the leadership of their partitions; the topic is created on first use."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence

import pytest
from memory_partition import MemoryPartition
from test_coordinator_runtime import make_runtime

from zhumq.coordinators import internal_topic
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.metadata.image import Broker, ClusterImage, Topic
from zhumq.metadata.topics import NewTopic
from zhumq.model.errors import (
    BrokerError,
    InvalidReplicationFactor,
    StorageFailed,
    TopicAlreadyExists,
)
from zhumq.model.ids import BrokerId, TopicPartition

NAME = "__state"
Callback = Callable[[TopicPartition, bool, int], None]


class OneTopic:
    """A metadata store and its client: whether the topic exists, and the requests to create it."""

    def __init__(self, *, brokers: int = 1) -> None:
        self.image = ClusterImage(
            version=1,
            cluster_id="c",
            controller_id=BrokerId(1),
            brokers={
                BrokerId(each): Broker(broker_id=BrokerId(each), host="h", port=1)
                for each in range(1, brokers + 1)
            },
            topics={},
            topics_by_id={},
        )
        self.requested: list[NewTopic] = []
        self.refusals: list[BrokerError] = []

    async def create_topics(self, new_topics: Sequence[NewTopic]) -> list[Topic | BrokerError]:
        self.requested.extend(new_topics)
        if self.refusals and not isinstance(self.refusals[0], TopicAlreadyExists):
            return [self.refusals.pop(0)]
        topic = Topic(name=NAME, topic_id=uuid.UUID(int=1), partitions=())
        self.image.topics[NAME] = topic  # type: ignore[index]
        return [self.refusals.pop(0)] if self.refusals else [topic]


class Partitions:
    """Partitions of this broker, and the callback for leadership changes."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], MemoryPartition] = {}
        self.notify: Callback = lambda *_: None

    def find(self, topic: str, partition: int) -> MemoryPartition:
        return self.found.setdefault((topic, partition), MemoryPartition())

    def watch_leadership(self, callback: Callback) -> None:
        self.notify = callback


class RunContext:
    """An internal topic with fakes around it."""

    def __init__(self, cluster: OneTopic, copies: int = 3) -> None:
        self.partitions = Partitions()
        self.runtime: CoordinatorRuntime[str, str] = make_runtime()
        self.topic = InternalTopic(
            NewTopic(name=NAME, partitions=2, replication_factor=copies),
            store=cluster,  # type: ignore[arg-type]
            metadata_client=cluster,  # type: ignore[arg-type]
            replicas=self.partitions,
            runtime=self.runtime,
        )

    def leads(self, index: int, leads: bool = True, name: str = NAME) -> None:
        self.partitions.notify(TopicPartition(name, index), leads, 1)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(whole())


def test_a_shard_serves_while_its_partition_is_led_here() -> None:
    async def scenario() -> None:
        context = RunContext(OneTopic())
        assert await context.runtime.submit(0, "a") == "NOT_COORDINATOR"
        context.leads(0)
        context.leads(1, name="other-topic")
        await context.topic.ensure()
        assert await context.runtime.submit(0, "a") == "ok"
        assert context.runtime.led == [0]
        context.leads(0, leads=False)
        assert await context.runtime.submit(0, "a") == "NOT_COORDINATOR"
        await context.topic.close()

    run(scenario)


def test_waiting_requests_are_refused_when_leadership_is_lost() -> None:
    async def scenario() -> None:
        context = RunContext(OneTopic())
        context.leads(0)
        await context.topic.ensure()
        context.partitions.find(NAME, 0).holds_flushes = True
        waiting = context.runtime.submit(0, "a")
        await asyncio.sleep(0)
        assert not waiting.done()
        context.leads(0, leads=False)
        assert await waiting == "NOT_COORDINATOR"
        await context.topic.close()

    run(scenario)


def test_a_new_epoch_of_the_same_leader_begins_from_the_log() -> None:
    async def scenario() -> None:
        context = RunContext(OneTopic())
        context.leads(0)
        await context.topic.ensure()
        partition = context.partitions.find(NAME, 0)
        partition.holds_flushes = True
        waiting = context.runtime.submit(0, "a")
        context.leads(0)
        assert await waiting == "NOT_COORDINATOR"
        assert await context.runtime.submit(0, "b") == "COORDINATOR_LOAD_IN_PROGRESS"
        partition.holds_flushes = False
        partition.flush()
        await context.topic.ensure()
        assert await context.runtime.submit(0, "b") == "ok"
        await context.topic.close()

    run(scenario)


def test_a_shard_that_cannot_be_read_is_retried_and_delays_no_other_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(internal_topic, "LOAD_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(internal_topic, "LOAD_WAIT_SECONDS_MAX", 0.05)

    async def scenario() -> None:
        context = RunContext(OneTopic())
        broken = context.partitions.find(NAME, 0)
        broken.high_watermark = 1
        broken.read_error = StorageFailed("the disk")
        silent = context.partitions.find(NAME, 1)
        silent.high_watermark = 1
        silent.holds_flushes = True
        context.leads(0)
        context.leads(1)
        await context.topic.ensure()
        assert await context.runtime.submit(0, "a") == "COORDINATOR_NOT_AVAILABLE"
        assert await context.runtime.submit(1, "a") == "COORDINATOR_LOAD_IN_PROGRESS"
        broken.read_error = None
        broken.high_watermark = 0
        while await context.runtime.submit(0, "a") != "ok":
            await asyncio.sleep(0.001)
        await context.topic.close()

    run(scenario)


def test_the_topic_is_made_once_with_as_many_replicas_as_there_are_brokers() -> None:
    async def scenario() -> None:
        for brokers, expected in ((1, 1), (2, 2), (5, 3)):
            cluster = OneTopic(brokers=brokers)
            context = RunContext(cluster)
            await context.topic.ensure()
            await context.topic.ensure()
            assert [new_topic.replication_factor for new_topic in cluster.requested] == [expected]
            await context.topic.close()

    run(scenario)


def test_another_broker_may_create_the_topic_meanwhile_and_a_refusal_is_raised() -> None:
    async def scenario() -> None:
        cluster = OneTopic()
        context = RunContext(cluster)
        cluster.refusals = [InvalidReplicationFactor("too few")]
        with pytest.raises(InvalidReplicationFactor):
            await context.topic.ensure()
        cluster.refusals = [TopicAlreadyExists("there")]
        await context.topic.ensure()
        await context.topic.close()

    run(scenario)

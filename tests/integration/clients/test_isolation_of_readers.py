"""Every reader of a topic with committed, aborted and open transactions, at both isolation levels."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka import OFFSET_END, IsolationLevel, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from tests.integration.written_transactions import Transactions

import zhumq
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.groups import describe_group
from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 30.0
SETTINGS = {"share.coordinator.state.topic.num.partitions": "2"}
LEVELS = ["read_committed", "read_uncommitted"]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as each:
        yield each


@pytest.fixture
def topic(running: RunningBroker) -> str:
    name = f"t-{uuid.uuid4()}"
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


class Reader(Protocol):
    """Reads a topic from its first message on."""

    def poll(self) -> list[bytes]: ...

    def close(self) -> None: ...


class Pulled:
    """zhumq.Consumer in a Kafka group, or with a mode."""

    def __init__(
        self,
        running: RunningBroker,
        topic: str,
        level: Any,
        mode: Any = None,
        start: Any = "earliest",
    ) -> None:
        self._consumer = zhumq.Consumer(
            topic,
            group=topic,
            mode=mode,
            start=start,
            isolation=level,
            bootstrap=running.bootstrap,
        )

    def poll(self) -> list[bytes]:
        found = self._consumer.poll(0.2)
        for message in found:
            message.ack()
        return [message.value or b"" for message in found]

    def close(self) -> None:
        self._consumer.close()


class PulledSubscription(Pulled):
    """The same with a mode: the broker delivers."""

    def __init__(self, running: RunningBroker, topic: str, level: Any) -> None:
        super().__init__(running, topic, level, "ptp")


class Pushed:
    """zhumq.PushConsumer."""

    def __init__(self, running: RunningBroker, topic: str, level: Any) -> None:
        self._runner = asyncio.Runner()
        self._consumer = zhumq.PushConsumer(
            topic, mode="psb", isolation=level, bootstrap=running.bootstrap
        )
        self._runner.run(self._consumer.__aenter__())

    def poll(self) -> list[bytes]:
        return self._runner.run(self._poll())

    async def _poll(self) -> list[bytes]:
        found = await self._consumer.poll(0.2)
        for message in found:
            message.ack()
        return [message.value or b"" for message in found]

    def close(self) -> None:
        self._runner.run(self._consumer.__aexit__(None, None, None))
        self._runner.close()


class Shared:
    """librdkafka's share consumer, in a group with share.isolation.level."""

    def __init__(self, running: RunningBroker, topic: str, level: str) -> None:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (
                ("share.auto.offset.reset", "earliest"),
                ("share.isolation.level", level),
            )
        ]
        resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
        self._consumer = ShareConsumer(
            {"bootstrap.servers": running.bootstrap, "group.id": topic, "log_level": 0}
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        found = self._consumer.poll(0.2)
        assert all(message.error() is None for message in found)
        return [message.value() or b"" for message in found]

    def close(self) -> None:
        self._consumer.close()


def take(reader: Reader, last: bytes) -> list[bytes]:
    """The values up to the last one."""
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while last not in values:
        assert time.monotonic() < deadline, values
        values += reader.poll()
    return values


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", [Pulled, PulledSubscription, Pushed, Shared])
def test_a_reader_sees_what_its_isolation_level_says(
    running: RunningBroker, topic: str, kind: type[Any], level: str
) -> None:
    written = Transactions(running.bootstrap, topic)
    reader: Reader = kind(running, topic, level)
    try:
        before = take(reader, written.visible[level][-1])
        assert before == written.visible[level]
        written.commit()
        written.end()
        assert take(reader, b"last") == [*written.visible_later[level], b"last"]
    finally:
        reader.close()


def test_a_subscription_from_the_end_gets_what_is_committed_later(
    running: RunningBroker, topic: str
) -> None:
    written = Transactions(running.bootstrap, topic)
    reader = Pulled(running, topic, "read_committed", "psb", start="latest")
    try:
        deadline = time.monotonic() + SECONDS_MAX
        with ClusterConnection(running.bootstrap) as connection:
            while not describe_group(connection, topic).offsets:  # until it has a position
                assert time.monotonic() < deadline
                assert reader.poll() == []
        written.commit()
        assert take(reader, b"behind") == [b"open", b"behind"]
    finally:
        reader.close()


def test_an_open_transaction_whose_messages_are_deleted_holds_back_until_its_end(
    running: RunningBroker, topic: str
) -> None:
    written = Transactions(running.bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values()
    first_offset = deleted.result(SECONDS_MAX).low_watermark
    written.end()
    place = TopicPartition(topic, 0)
    spec = {place: OffsetSpec.latest()}
    (listed,) = admin.list_offsets(spec, isolation_level=IsolationLevel.READ_COMMITTED).values()
    assert listed.result(SECONDS_MAX).offset == first_offset
    written.commit()
    reader = Pulled(running, topic, "read_committed")
    try:
        assert take(reader, b"last") == [b"last"]
    finally:
        reader.close()


def test_the_isolation_level_of_a_share_group_has_kafkas_default(running: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    resource = ConfigResource(ResourceType.GROUP, "described")
    (future,) = admin.describe_configs([resource]).values()
    assert future.result(SECONDS_MAX)["share.isolation.level"].value == "read_uncommitted"


def test_an_unknown_isolation_level_is_refused(running: RunningBroker) -> None:
    level: Any = "serializable"
    for kind in (zhumq.Consumer, zhumq.PushConsumer):
        with pytest.raises(ValueError, match="isolation is read_committed or read_uncommitted"):
            kind("t", isolation=level, bootstrap=running.bootstrap)

"""librdkafka with group.protocol=consumer: the broker assigns (KIP-848), and migrates classic groups."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.process import broker_process

SECONDS_MAX = 40.0
PARTITIONS = 6
# Members learn of changes with their heartbeats: frequent ones keep the tests short.
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
}


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as started:
        yield started


def administer(bootstrap: str, operation: str, *arguments: object) -> object:
    """Run one admin operation on one topic or group, and wait for its result."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = getattr(client, operation)(list(arguments)).values()
    return future.result(SECONDS_MAX)


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    administer(bootstrap, "create_topics", NewTopic(topic, partitions))


def fill(bootstrap: str, topic: str, count: int, first: int = 0) -> None:
    sender = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        sender.produce(topic, value=b"%d" % number, partition=number % PARTITIONS)
    assert sender.flush(SECONDS_MAX) == 0


class Reader:
    """A consumer, the messages it has read, and its partitions."""

    def __init__(self, bootstrap: str, *topics: str, group: str = "g", **config: object) -> None:
        self.values: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **config,
            }
        )
        self.consumer.subscribe(list(topics))

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            self.values.append(int(message.value()))

    @property
    def has(self) -> list[tuple[str, int]]:
        return sorted((each.topic, each.partition) for each in self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


def classic_reader(bootstrap: str, *topics: str, **config: object) -> Reader:
    return Reader(
        bootstrap,
        *topics,
        **{
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **config,
        },
    )


def poll_until(readers: list[Reader], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not done():
        assert time.monotonic() < deadline, f"they have {[each.has for each in readers]}"
        for reader in readers:
            reader.poll()


def share(readers: list[Reader], topic: str, partitions: int = PARTITIONS) -> bool:
    """Whether these have the topic's partitions evenly between them, each once."""
    has = [each.has for each in readers]
    loads = [len(each) for each in has]
    return (
        sorted(each for of_reader in has for each in of_reader)
        == [(topic, index) for index in range(partitions)]
        and max(loads) - min(loads) <= 1
    )


def state_of(bootstrap: str, group: str = "g") -> tuple[ConsumerGroupType, ConsumerGroupState]:
    found = administer(bootstrap, "describe_consumer_groups", group)
    return found.type, found.state


def test_a_member_reads_everything_and_its_commits_stay(running: RunningBroker) -> None:
    create(running.bootstrap, "t")
    fill(running.bootstrap, "t", 600)
    reader = Reader(running.bootstrap, "t")
    poll_until([reader], lambda: len(reader.values) == 600)
    assert sorted(reader.values) == list(range(600))
    reader.consumer.commit(asynchronous=False)
    assert state_of(running.bootstrap) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    reader.close()
    assert state_of(running.bootstrap) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.EMPTY)
    fill(running.bootstrap, "t", 60, first=600)
    second = Reader(running.bootstrap, "t")
    poll_until([second], lambda: len(second.values) == 60)
    assert sorted(second.values) == list(range(600, 660))
    second.close()


@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
def test_partitions_are_shared_as_members_come_and_go(
    running: RunningBroker, assignor: str | None
) -> None:
    create(running.bootstrap, "t")
    config = {} if assignor is None else {"group.remote.assignor": assignor}
    readers = [Reader(running.bootstrap, "t", **config)]
    poll_until(readers, lambda: share(readers, "t"))
    for _ in range(2):
        readers.append(Reader(running.bootstrap, "t", **config))
        poll_until(readers, lambda: share(readers, "t"))
    described = administer(running.bootstrap, "describe_consumer_groups", "g")
    assert described.partition_assignor == (assignor or "uniform")
    assert len(described.members) == 3
    asked = AdminClient({"bootstrap.servers": running.bootstrap})
    futures = asked.describe_consumer_groups(["g"], include_authorized_operations=True)
    assert futures["g"].result(SECONDS_MAX).authorized_operations
    readers.pop(0).close()
    poll_until(readers, lambda: share(readers, "t"))
    for reader in readers:
        reader.close()


def test_new_partitions_and_topics_of_an_expression_are_found(running: RunningBroker) -> None:
    create(running.bootstrap, "orders-1", 2)
    create(running.bootstrap, "other", 2)
    reader = Reader(running.bootstrap, "^orders-.*")
    poll_until([reader], lambda: reader.has == [("orders-1", 0), ("orders-1", 1)])
    administer(running.bootstrap, "create_partitions", NewPartitions("orders-1", 3))
    poll_until([reader], lambda: len(reader.has) == 3)
    create(running.bootstrap, "orders-2", 1)
    poll_until([reader], lambda: ("orders-2", 0) in reader.has and len(reader.has) == 4)
    administer(running.bootstrap, "delete_topics", "orders-1")
    poll_until([reader], lambda: reader.has == [("orders-2", 0)])
    reader.close()


def test_a_static_member_comes_back_to_its_partitions(running: RunningBroker) -> None:
    create(running.bootstrap, "t")
    first = Reader(running.bootstrap, "t", **{"group.instance.id": "one"})
    second = Reader(running.bootstrap, "t", **{"group.instance.id": "two"})
    poll_until([first, second], lambda: share([first, second], "t"))
    had, others = first.has, second.has
    first.close()
    again = Reader(running.bootstrap, "t", **{"group.instance.id": "one"})
    poll_until([again, second], lambda: again.has == had)
    assert second.has == others, "the other member keeps its partitions"
    again.close()
    second.close()


def test_a_commit_of_a_consumer_outside_the_group_is_refused(running: RunningBroker) -> None:
    create(running.bootstrap, "t")
    reader = Reader(running.bootstrap, "t")
    poll_until([reader], lambda: share([reader], "t"))
    outsider = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g"})
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        outsider.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
    outsider.close()
    reader.close()


def test_a_group_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data", settings=SETTINGS) as process:
        create(process.bootstrap, "t")
        fill(process.bootstrap, "t", 300)
        readers = [Reader(process.bootstrap, "t") for _ in range(3)]
        poll_until(readers, lambda: sum(len(each.values) for each in readers) == 300)
        poll_until(readers, lambda: share(readers, "t"))
        had = [each.has for each in readers]
        for reader in readers:
            if reader.values:
                reader.consumer.commit(asynchronous=False)
        process.kill()
        process.start()
        fill(process.bootstrap, "t", 300, first=300)
        poll_until(readers, lambda: sum(len(each.values) for each in readers) >= 600)
        assert {value for each in readers for value in each.values} == set(range(600))
        assert [each.has for each in readers] == had, "assignments are recovered from the log"
        for reader in readers:
            reader.close()


@pytest.mark.thorough
def test_a_classic_group_migrates_to_the_consumer_protocol_and_back(running: RunningBroker) -> None:
    create(running.bootstrap, "t")
    fill(running.bootstrap, "t", 300)
    old = [classic_reader(running.bootstrap, "t") for _ in range(2)]
    poll_until(old, lambda: share(old, "t"))
    assert state_of(running.bootstrap)[0] is ConsumerGroupType.CLASSIC

    new = [Reader(running.bootstrap, "t")]
    poll_until(old + new, lambda: share(old + new, "t"))
    assert state_of(running.bootstrap)[0] is ConsumerGroupType.CONSUMER
    poll_until(old + new, lambda: sum(len(each.values) for each in old + new) >= 300)

    old.pop().close()
    new.append(Reader(running.bootstrap, "t"))
    poll_until(old + new, lambda: share(old + new, "t"))

    for reader in new:
        reader.close()
    poll_until(old, lambda: share(old, "t"))
    assert state_of(running.bootstrap)[0] is ConsumerGroupType.CLASSIC
    old.pop().close()


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(running: RunningBroker) -> None:
    create(running.bootstrap, "t")
    fill(running.bootstrap, "t", 60)
    read = 0
    for make in (classic_reader, Reader, classic_reader):
        reader = make(running.bootstrap, "t")
        poll_until([reader], lambda reader=reader: len(reader.values) == 60)
        assert sorted(reader.values) == list(range(read, read + 60))
        reader.consumer.commit(asynchronous=False)
        reader.close()
        read += 60
        fill(running.bootstrap, "t", 60, first=read)

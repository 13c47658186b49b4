"""A topic that was deleted and created again between two batches, and the offsets of the group."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from confluent_kafka import Consumer
from spark_support import create_topic, delete_topic, produce, wait_until

from zhumq.model.ids import TopicPartition
from zhumq.spark import stream_reader
from zhumq.spark.cluster_client import ClusterClient
from zhumq.spark.fetcher import DataLost
from zhumq.spark.options import read_options
from zhumq.spark.ranges import from_json
from zhumq.spark.reader import BatchReader
from zhumq.spark.stream_reader import StreamReader
from zhumq.testing.broker import RunningBroker, broker


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


def stream(running: RunningBroker, topic: str, **options: str) -> StreamReader:
    given = {
        "kafka.bootstrap.servers": running.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **options,
    }
    return StreamReader(read_options(given, streaming=True))


def latest(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def values(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    return [
        value
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]


def recreate(running: RunningBroker, topic: str, records: list[bytes]) -> None:
    delete_topic(running.bootstrap, topic)
    create_topic(running.bootstrap, topic)
    produce(running.bootstrap, topic, records)


@pytest.mark.parametrize("records", [2, 3, 9])  # fewer, as many and more than were read before
def test_a_topic_that_was_created_again_is_noticed_at_any_length(
    running: RunningBroker, records: int
) -> None:
    topic = f"again-{records}"
    create_topic(running.bootstrap, topic)
    produce(running.bootstrap, topic, [b"old"] * 3)
    reader = stream(running, topic)
    first = latest(reader, reader.initialOffset())
    new = [b"new %d" % number for number in range(records)]
    recreate(running, topic, new)
    with pytest.raises(
        DataLost, match=rf"{topic} was deleted and created again: its id was \S+ and"
    ):
        latest(reader, first)
    forgiving = stream(running, topic, failOnDataLoss="false")
    second = latest(forgiving, first)
    assert values(forgiving, first, second) == new
    assert latest(forgiving, second) == second


def test_a_planned_batch_is_not_read_from_a_topic_made_since(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "planned")
    produce(running.bootstrap, "planned", [b"old"] * 3)
    strict = stream(running, "planned")
    start = strict.initialOffset()
    end = latest(strict, start)
    (task,) = strict.partitions(start, end)
    recreate(running, "planned", [b"new"] * 9)
    with pytest.raises(DataLost, match="created again"):
        strict.partitions(start, end)
    with pytest.raises(DataLost, match="created again"):
        list(strict.read(task))
    forgiving = stream(running, "planned", failOnDataLoss="false")
    assert values(forgiving, start, end) == []
    assert values(forgiving, end, latest(forgiving, end)) == [b"new"] * 9


def test_a_batch_read_is_not_mixed_with_a_topic_made_since(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "snapshot")
    produce(running.bootstrap, "snapshot", [b"old"] * 3)
    given = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": "snapshot"}
    reader = BatchReader(read_options(given, streaming=False))
    (task,) = reader.partitions()
    recreate(running, "snapshot", [b"new"] * 9)
    with pytest.raises(DataLost, match="created again"):
        list(reader.read(task))


def test_a_checkpoint_without_topic_ids_still_works(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "old-checkpoint")
    produce(running.bootstrap, "old-checkpoint", [b"a", b"b", b"c"])
    reader = stream(running, "old-checkpoint")
    start = {"old-checkpoint": {"0": 1}}
    assert values(reader, start, {"old-checkpoint": {"0": 2}}) == [b"b"]
    end = latest(reader, start)
    assert from_json(end) == {TopicPartition("old-checkpoint", 0): 3}
    assert "topicId" in end["old-checkpoint"]
    assert values(reader, start, end) == [b"b", b"c"]


def test_a_commit_that_failed_is_tried_again(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(running.bootstrap, "commits")
    produce(running.bootstrap, "commits", [b"x"] * 3)
    member = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "watched"})
    member.subscribe(["commits"])

    def has_joined() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    try:
        wait_until(has_joined, "the consumer is a member of the group")
        reader = stream(running, "commits", groupId="watched")
        end = latest(reader, reader.initialOffset())
        with caplog.at_level(logging.WARNING):
            assert latest(reader, end) == end  # A group with members refuses the query's offsets.
            assert latest(reader, end) == end
        warnings = [each for each in caplog.messages if "cannot commit the progress" in each]
        assert len(warnings) == 1
    finally:
        member.close()
    assert latest(reader, end) == end
    with ClusterClient(running.bootstrap) as client:
        assert client.committed_offsets("watched") == {TopicPartition("commits", 0): 3}


@pytest.mark.parametrize("may_lose", [False, True])
def test_a_topic_that_is_deleted_while_its_offsets_are_looked_up_is_gone(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch, may_lose: bool
) -> None:
    topic = f"just-deleted-{may_lose}"
    create_topic(running.bootstrap, topic)
    produce(running.bootstrap, topic, [b"a", b"b"])
    reader = stream(running, topic, failOnDataLoss=str(not may_lose).lower())
    end = latest(reader, reader.initialOffset())
    find = stream_reader.find_partitions

    def find_and_delete(*args: Any, **named: Any) -> list[TopicPartition]:
        found = find(*args, **named)
        if found:
            delete_topic(running.bootstrap, topic)
        return found

    monkeypatch.setattr(stream_reader, "find_partitions", find_and_delete)
    if may_lose:
        assert latest(reader, end) == {}
        return
    with pytest.raises(DataLost, match=f"{topic}-0 is gone, from offset 2 on"):
        latest(reader, end)

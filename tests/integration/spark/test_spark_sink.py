"""The sink without Spark: writes Arrow batches to a broker that may refuse them or die."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from confluent_kafka.admin import AdminClient
from spark_support import create_topic, delete_topic, produce

from zhumq.model.ids import TopicPartition
from zhumq.spark.cluster_client import ClusterClient
from zhumq.spark.ledger import LEDGER, Ledger, ensure_ledger
from zhumq.spark.options import read_options, write_options
from zhumq.spark.reader import BatchReader
from zhumq.spark.rows import WriteFailed
from zhumq.spark.writer import write_rows
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.process import BrokerProcess, broker_process


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    # Some messages are of 1970.
    with broker(settings={"log.retention.ms": "-1"}) as started:
        create_topic(started.bootstrap, "t")
        yield started


def batch(first: int, until: int, **more: list[Any]) -> Any:
    return pa.record_batch({"value": [b"%06d" % n for n in range(first, until)], **more})


def write(bootstrap: str, batches: Iterator[Any], *columns: str, **settings: str) -> int:
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
    where = {} if "topic" in columns else {"topic": "t"}
    options = write_options({"kafka.bootstrap.servers": bootstrap, **where, **named})
    return write_rows(batches, options, ("value", *columns))


def values(bootstrap: str, topic: str = "t") -> list[bytes]:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "columns": "value"}
    reader = BatchReader(read_options(given, streaming=False))
    return [
        value
        for partition in reader.partitions()
        for each in reader.read(partition)
        for value in each.column("value").to_pylist()
    ]


def test_more_rows_than_the_queue_holds_arrive_in_order() -> None:
    with broker() as own:
        create_topic(own.bootstrap, "t")
        batches = iter([batch(0, 30_000), batch(30_000, 30_000), batch(30_000, 40_000)])
        count = write(own.bootstrap, batches, queue_buffering_max_messages="500")
        assert count == 40_000
        assert values(own.bootstrap) == [b"%06d" % n for n in range(40_000)]


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        ({"partition": [9]}, ["partition"], r"Unknown partition"),
        ({"value": [bytes(3_000_000)]}, [], r"size.*too large|too large"),
        ({"topic": ["no such name!"]}, ["topic"], r"rows did not reach their topic|cannot write"),
    ],
)
def test_a_row_that_the_broker_cannot_take_fails_the_task_in_words(
    running: RunningBroker, rows: dict[str, list[Any]], columns: list[str], words: str
) -> None:
    one = pa.record_batch({"value": [b"x"], **rows})
    with pytest.raises(WriteFailed, match=words):
        write(running.bootstrap, iter([one]), *columns)


@pytest.mark.thorough
def test_rows_are_written_once_though_the_broker_dies_between(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, "t")
        killed = threading.Event()

        def batches() -> Iterator[Any]:
            yield batch(0, 5000)
            again = threading.Thread(target=_kill_and_start, args=(process, killed))
            again.start()
            killed.wait(30)
            yield batch(5000, 10_000)
            again.join(60)

        assert write(process.bootstrap, batches(), reconnect_backoff_max_ms="200") == 10_000
        assert values(process.bootstrap) == [b"%06d" % n for n in range(10_000)]


def _kill_and_start(process: BrokerProcess, killed: threading.Event) -> None:
    process.kill()
    killed.set()
    process.start()


@pytest.mark.thorough
def test_a_broker_that_stays_away_fails_the_task_in_words(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, "t")

        def batches() -> Iterator[Any]:
            yield batch(0, 10)
            process.kill()
            yield batch(10, 20)

        with pytest.raises(WriteFailed, match=r"rows did not reach their topic: t: .*timed out"):
            write(process.bootstrap, batches(), message_timeout_ms="1500")
        process.start()
        found = values(process.bootstrap)
        assert len(found) == len(set(found))


def note(bootstrap: str, ledger: Ledger, batch_number: int) -> None:
    options = write_options({"kafka.bootstrap.servers": bootstrap, "topic": "t"})
    write_rows(iter([batch(0, 1)]), options, ("value",), note=ledger.note(batch_number))


def test_the_ledger_knows_the_batches_of_each_task_of_each_query(running: RunningBroker) -> None:
    ensure_ledger(running.bootstrap)
    ensure_ledger(running.bootstrap)
    task = Ledger(running.bootstrap, "query-a", 0)
    assert not task.is_done(0)
    note(running.bootstrap, task, 0)
    note(running.bootstrap, task, 1)
    assert [task.is_done(number) for number in range(3)] == [True, True, False]
    assert not Ledger(running.bootstrap, "query-a", 1).is_done(0)
    assert not Ledger(running.bootstrap, "query-b", 0).is_done(0)


@pytest.mark.thorough
def test_the_ledger_is_no_group_and_no_lag(running: RunningBroker) -> None:
    ensure_ledger(running.bootstrap)
    for task in range(20):
        ledger = Ledger(running.bootstrap, "query-c", task)
        assert not ledger.is_done(0)
        note(running.bootstrap, ledger, 0)
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    listed = admin.list_consumer_groups().result(30).valid
    assert [each.group_id for each in listed if "sink" in each.group_id] == []


def test_the_ledger_of_an_earlier_version_is_honoured_then_dropped(running: RunningBroker) -> None:
    ensure_ledger(running.bootstrap)
    group = "zhumq-sink-query-d-3"
    with ClusterClient(running.bootstrap) as client:
        client.commit_offsets(group, {TopicPartition("t", 0): 7})  # Batch 6 was the last.
    ledger = Ledger(running.bootstrap, "query-d", 3)
    assert ledger.is_done(6)
    assert not ledger.is_done(7)
    note(running.bootstrap, ledger, 7)
    ledger.drop_old_group()
    assert Ledger(running.bootstrap, "query-d", 3).is_done(7)
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    assert group not in [each.group_id for each in admin.list_consumer_groups().result(30).valid]


def test_a_ledger_that_was_deleted_is_begun_anew_and_nonsense_in_it_is_passed_over() -> None:
    with broker() as own:
        create_topic(own.bootstrap, "t")
        ensure_ledger(own.bootstrap)
        ledger = Ledger(own.bootstrap, "query-e", 0)
        note(own.bootstrap, ledger, 4)
        assert ledger.is_done(4)
        delete_topic(own.bootstrap, LEDGER.topic)
        ensure_ledger(own.bootstrap)
        assert not ledger.is_done(4)
        produce(own.bootstrap, LEDGER.topic, [b"no number", b""])
        note(own.bootstrap, ledger, 5)
        assert ledger.is_done(5)


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("pair", [{"key": None, "value": b"v"}, None])
def test_a_header_without_a_key_fails_the_task_in_words(
    running: RunningBroker, pair: dict[str, Any] | None
) -> None:
    create_topic(running.bootstrap, f"headers-{pair is None}")
    headers = pa.array([[{"key": "k", "value": None}], [pair]], HEADERS)
    rows = pa.record_batch(
        {"value": [b"x", b"y"], "headers": headers, "topic": [f"headers-{pair is None}"] * 2}
    )
    with pytest.raises(WriteFailed, match="a header of a row has no key"):
        write(running.bootstrap, iter([rows]), "headers", "topic")
    assert values(running.bootstrap, f"headers-{pair is None}") == []


def stamped(milliseconds: list[int | None], **more: list[Any]) -> Any:
    stamps = pa.array(
        [None if each is None else each * 1000 for each in milliseconds],
        pa.timestamp("us", tz="UTC"),
    )
    values = [b"%d" % number for number in range(len(milliseconds))]
    return pa.record_batch({"value": values, "timestamp": stamps, **more})


def write_stamped(bootstrap: str, topic: str, rows: Any, *columns: str) -> int:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeTimestamp": "true"}
    return write_rows(iter([rows]), write_options(given), ("value", "timestamp", *columns))


@pytest.mark.parametrize("milliseconds", [-1, -5000])
def test_a_timestamp_before_1970_fails_the_task_in_words(
    running: RunningBroker, milliseconds: int
) -> None:
    with pytest.raises(WriteFailed, match=f"timestamp is {milliseconds} ms since 1970"):
        write_stamped(running.bootstrap, "t", stamped([5, milliseconds]))


def test_the_first_moment_of_1970_stays_what_it_is(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "epoch", 3, {"retention.ms": "-1"})
    stamps = [0, 0, 7, 0, 8, 9, 0, 0] * 50
    headers = pa.array([[{"key": "h", "value": b"v"}]] * len(stamps), HEADERS)
    # A key may be text or bytes; the rows of each key keep their order.
    keys = [f"key {number % 5}" for number in range(len(stamps))]
    rows = stamped([*stamps], key=keys, headers=headers)
    assert write_stamped(running.bootstrap, "epoch", rows, "key", "headers") == len(stamps)
    given = {
        "kafka.bootstrap.servers": running.bootstrap,
        "subscribe": "epoch",
        "includeHeaders": "true",
    }
    reader = BatchReader(read_options(given, streaming=False))
    found = [
        row
        for partition in reader.partitions()
        for each in reader.read(partition)
        for row in each.to_pylist()
    ]
    assert len(found) == len(stamps)
    by_key: dict[bytes, set[int]] = {}
    for row in found:
        number = int(row["value"])
        assert row["timestamp"].timestamp() * 1000 == stamps[number]
        assert row["headers"] == [{"key": "h", "value": b"v"}]
        assert row["key"] == keys[number].encode()
        by_key.setdefault(row["key"], set()).add(row["partition"])
    # Both ways of sending choose the same partition for a key, and keep its order.
    assert [len(places) for places in by_key.values()] == [1] * 5
    for key in by_key:
        numbers = [int(row["value"]) for row in found if row["key"] == key]
        assert numbers == sorted(numbers)


def test_a_row_of_1970_that_the_broker_cannot_take_fails_the_task_in_words(
    running: RunningBroker,
) -> None:
    rows = stamped([0], partition=pa.array([9], pa.int32()))
    with pytest.raises(WriteFailed, match="t: Unknown partition 9"):
        write_stamped(running.bootstrap, "t", rows, "partition")
    with pytest.raises(WriteFailed, match="nowhere: the topic does not exist"):
        write_stamped(running.bootstrap, "nowhere", stamped([0]))
    large = pa.record_batch(
        {"value": [bytes(3_000_000)], "timestamp": pa.array([0], pa.timestamp("us", tz="UTC"))}
    )
    with pytest.raises(WriteFailed, match=r"MESSAGE_TOO_LARGE|RECORD_LIST_TOO_LARGE"):
        write_stamped(running.bootstrap, "t", large)

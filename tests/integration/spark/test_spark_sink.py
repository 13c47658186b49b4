"""The sink's own part, without Spark: rows in Arrow batches to a broker that may refuse or vanish."""

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
from zhumq.spark.writer import WriteFailed, write_rows
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.process import BrokerProcess, broker_process


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
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


@pytest.mark.parametrize("milliseconds", [0, -1, -5000])
def test_a_timestamp_that_cannot_be_sent_fails_the_task_in_words(
    running: RunningBroker, milliseconds: int
) -> None:
    stamps = pa.array([milliseconds * 1000], pa.timestamp("us", tz="UTC"))
    rows = pa.record_batch({"value": [b"x"], "timestamp": stamps})
    options = {
        "kafka.bootstrap.servers": running.bootstrap,
        "topic": "t",
        "includeTimestamp": "true",
    }
    with pytest.raises(WriteFailed, match=f"timestamp is {milliseconds} ms since 1970"):
        write_rows(iter([rows]), write_options(options), ("value", "timestamp"))

"""The exactly-once sink without Spark: attempts and drivers that die, that come late, and that run at once."""

import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from sink_support import TWO_PHASE, committed
from spark_support import create_topic, produce

from zhumq import TransactionalProducer
from zhumq.client.errors import ProducerFenced, TransactionAborted
from zhumq.client.transaction_core import PreparedState
from zhumq.model.ids import TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.spark import settlement
from zhumq.spark.cluster_client import LATEST, ClusterClient
from zhumq.spark.decisions import (
    DECISIONS,
    Decision,
    DecisionLog,
    ensure_decisions,
    ids_of,
    read_decisions,
)
from zhumq.spark.exactly_once import begin_exactly_once
from zhumq.spark.options import OptionInvalid, WriteOptions, read_options, write_options
from zhumq.spark.reader import BatchReader
from zhumq.spark.rows import WriteFailed
from zhumq.spark.settlement import Batch, finish_writes, settle
from zhumq.spark.transaction_task import Prepared, write_prepared
from zhumq.testing.broker import RunningBroker, broker

RACES = 10


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    # Some messages are of 1970.
    with broker(settings=TWO_PHASE | {"log.retention.ms": "-1"}) as started:
        yield started


class Query:
    """A query with two topics of its own, whose tasks and drivers the test plays."""

    def __init__(self, bootstrap: str) -> None:
        self.name = str(uuid.uuid4())
        self.bootstrap = bootstrap
        self.topics = (f"{self.name}-a", f"{self.name}-b")
        self.options = write_options({"kafka.bootstrap.servers": bootstrap})
        for topic in self.topics:
            create_topic(bootstrap, topic, 2)
        ensure_decisions(bootstrap, security=self.options.security.security())

    def write(
        self, run: str, batch: int, task: int, attempt: int = 0, rows: int = 10
    ) -> Prepared | None:
        """A task attempt: rows that name it, in both topics."""
        values = [b"%s/%d/%d/%d/%d" % (run.encode(), batch, task, attempt, n) for n in range(rows)]
        cells = {"value": values * 2, "topic": [each for each in self.topics for _ in range(rows)]}
        slot = f"{ids_of(self.name)}{run}.{task}.{attempt}"

        def is_decided() -> bool:
            last = self.last()
            return last is not None and last.batch >= batch

        return write_prepared(
            iter([pa.record_batch(cells)]),
            self.options,
            ("value", "topic"),
            slot,
            is_decided=is_decided,
        )

    def batch(self, run: str, number: int, *prepared: Prepared | None) -> Batch:
        chosen = tuple((each.transactional_id, each.state) for each in prepared if each is not None)
        return Batch(group=self.name, run=run, number=number, chosen=chosen)

    def last(self) -> Decision | None:
        return read_decisions(self.options).get(self.name)

    def visible(self) -> list[str]:
        """The rows at read_committed; the same ones are in both topics, and each of them once."""
        first, second = (sorted(committed(self.bootstrap, topic)) for topic in self.topics)
        assert first == second
        assert len(first) == len(set(first))
        return [each.decode() for each in first]

    def attempts(self) -> set[str]:
        return {each.rpartition("/")[0] for each in self.visible()}

    def open_ids(self) -> list[str]:
        with ClusterClient(self.bootstrap) as client:
            return client.open_transactions(ids_of(self.name))

    def check_stable(self) -> None:
        """Nothing is open, and nothing holds readers back."""
        assert self.open_ids() == []
        places = {TopicPartition(topic, index): LATEST for topic in self.topics for index in (0, 1)}
        with ClusterClient(self.bootstrap) as client:
            ends = client.list_offsets(places)
            assert client.list_offsets(places, isolation_level=Isolation.READ_COMMITTED) == ends


@pytest.fixture
def query(running: RunningBroker) -> Query:
    return Query(running.bootstrap)


def test_a_batch_appears_in_all_topics_with_its_commit_and_losers_are_rolled_back(
    query: Query,
) -> None:
    first, second = query.write("r", 0, 0), query.write("r", 0, 1)
    query.write("r", 0, 0, attempt=1)  # a speculative copy, which Spark did not choose
    assert query.visible() == []
    settle(query.options, query.batch("r", 0, first, second), is_commit=True)
    assert query.attempts() == {"r/0/0/0", "r/0/1/0"}
    assert len(query.visible()) == 20
    query.check_stable()


def test_the_next_batches_use_the_same_transactional_ids(query: Query) -> None:
    names = set()
    for number in range(3):
        prepared = query.write("r", number, 0)
        assert prepared is not None
        names.add(prepared.transactional_id)
        settle(query.options, query.batch("r", number, prepared), is_commit=True)
    assert len(names) == 1
    assert query.attempts() == {"r/0/0/0", "r/1/0/0", "r/2/0/0"}
    query.check_stable()


def test_a_driver_that_died_before_its_decision_is_rolled_back_by_the_next(query: Query) -> None:
    query.write("dead", 0, 0)
    query.write("dead", 0, 1)
    prepared = query.write("next", 0, 0)
    settle(query.options, query.batch("next", 0, prepared), is_commit=True)
    assert query.attempts() == {"next/0/0/0"}
    query.check_stable()


@pytest.mark.parametrize("completed", [0, 1, 2])
def test_a_driver_that_died_after_its_decision_is_finished_by_the_next(
    query: Query, completed: int
) -> None:
    dead = query.batch("dead", 0, query.write("dead", 0, 0), query.write("dead", 0, 1))
    replayed = query.write("next", 0, 0)  # This task began before the decision.
    with DecisionLog(query.options, query.name) as log:
        log.open()
        log.record(Decision(run="dead", batch=0, chosen=dead.chosen))
    for name, state in dead.chosen[:completed]:
        with TransactionalProducer(
            query.bootstrap, transactional_id=name, two_phase=True
        ) as producer:
            producer.complete(state)
    assert query.write("next", 0, 1) is None  # This one began after it.
    settle(query.options, query.batch("next", 0, replayed), is_commit=True)
    assert query.attempts() == {"dead/0/0/0", "dead/0/1/0"}
    query.check_stable()


def test_a_batch_that_is_settled_twice_appears_once(query: Query) -> None:
    batch = query.batch("r", 0, query.write("r", 0, 0))
    settle(query.options, batch, is_commit=True)
    settle(query.options, batch, is_commit=True)
    # Spark aborts a batch whose commit failed, whatever the commit has done.
    settle(query.options, batch, is_commit=False)
    assert query.attempts() == {"r/0/0/0"}
    query.check_stable()


def test_a_failed_batch_leaves_nothing(query: Query) -> None:
    batch = query.batch("r", 0, query.write("r", 0, 0))
    query.write("r", 0, 1)
    settle(query.options, batch, is_commit=False)
    assert query.visible() == []
    query.check_stable()
    settle(query.options, query.batch("r", 0, query.write("r", 0, 0)), is_commit=True)
    assert query.attempts() == {"r/0/0/0"}


def test_an_attempt_that_begins_after_the_decision_ends_its_transaction_itself(
    query: Query,
) -> None:
    settle(query.options, query.batch("r", 0, query.write("r", 0, 0)), is_commit=True)
    assert query.write("r", 0, 0, attempt=1) is None
    assert query.attempts() == {"r/0/0/0"}
    query.check_stable()


def test_an_attempt_that_begins_while_the_batch_is_decided_is_rolled_back(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(DecisionLog):
        """Another attempt runs between the list of open transactions and the record."""

        def record(self, decision: Decision) -> None:
            if query.last() is None:
                assert query.write("r", 0, 0, attempt=1) is not None
            super().record(decision)

    monkeypatch.setattr(settlement, "DecisionLog", Late)
    settle(query.options, query.batch("r", 0, query.write("r", 0, 0)), is_commit=True)
    assert query.attempts() == {"r/0/0/0"}
    query.check_stable()


def test_a_late_attempt_leaves_the_prepared_transaction_of_another_alone(query: Query) -> None:
    chosen = query.write("r", 0, 0)
    late = query.write("r", 0, 0)
    assert chosen is not None
    assert late is not None
    assert late.transactional_id != chosen.transactional_id
    settle(query.options, query.batch("r", 0, chosen), is_commit=True)
    assert len(query.visible()) == 10
    query.check_stable()


def test_a_transaction_that_an_operator_ended_fails_the_batch_before_its_decision(
    query: Query,
) -> None:
    first, second = query.write("r", 0, 0), query.write("r", 0, 1)
    assert second is not None
    with TransactionalProducer(
        query.bootstrap, transactional_id=second.transactional_id, two_phase=True
    ) as operator:
        operator.connect()
    with pytest.raises(WriteFailed, match="was ended before batch 0 was decided"):
        settle(query.options, query.batch("r", 0, first, second), is_commit=True)
    assert query.last() is None
    settle(query.options, query.batch("r", 0, first, second), is_commit=False)
    assert query.visible() == []
    query.check_stable()


def test_only_the_last_driver_that_opened_the_log_records(query: Query) -> None:
    with DecisionLog(query.options, query.name) as first:
        first.open()
        with DecisionLog(query.options, query.name) as second:
            assert second.open() is None
            with pytest.raises(ProducerFenced):
                first.record(Decision(run="first", batch=0))
            second.record(Decision(run="second", batch=0))
    last = query.last()
    assert last is not None
    assert last.run == "second"


@pytest.mark.thorough
def test_two_drivers_at_once_commit_one_of_their_batches(query: Query) -> None:
    choices = random.Random(1)
    for number in range(RACES):
        runs = [f"x{number}", f"y{number}"]
        batches = [
            query.batch(run, number, query.write(run, number, 0), query.write(run, number, 1))
            for run in runs
        ]
        pauses = [choices.uniform(0, 0.1) for _ in runs]
        threads = [
            threading.Thread(target=_settle_later, args=(query.options, batch, pause))
            for batch, pause in zip(batches, pauses, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        last = query.last()
        if last is None or last.batch < number:
            # Both gave up, each because of the other; the query starts again.
            again = f"z{number}"
            prepared = query.write(again, number, 0), query.write(again, number, 1)
            settle(query.options, query.batch(again, number, *prepared), is_commit=True)
        else:
            settle(query.options, query.batch("next", number), is_commit=True)
        found = {each for each in query.attempts() if each.split("/")[1] == str(number)}
        last = query.last()
        assert last is not None
        assert found == {f"{last.run}/{number}/0/0", f"{last.run}/{number}/1/0"}
        query.check_stable()


def _settle_later(options: WriteOptions, batch: Batch, seconds: float) -> None:
    threading.Event().wait(seconds)
    # The other driver may replace this one, or abort its transaction.
    with suppress(WriteFailed, ProducerFenced, TransactionAborted):
        settle(options, batch, is_commit=True)


def test_a_decided_batch_write_of_a_dead_driver_is_finished_by_the_next_write(
    query: Query,
) -> None:
    query.name = f"write-{query.name}"
    chosen = query.batch("w", 0, query.write("w", 0, 0)).chosen
    with DecisionLog(query.options, query.name) as log:
        log.open()
        log.record(Decision(run="w", batch=0, chosen=chosen))
    finish_writes(query.options)
    assert query.attempts() == {"w/0/0/0"}
    assert query.last() is None
    query.check_stable()


def test_nonsense_in_the_topic_of_decisions_is_passed_over(query: Query) -> None:
    produce(query.bootstrap, DECISIONS.topic, [b"no json", b"[]", b'{"run":1}', b""])
    settle(query.options, query.batch("r", 0, query.write("r", 0, 0)), is_commit=True)
    assert query.attempts() == {"r/0/0/0"}


def test_a_decision_has_a_text_form() -> None:
    state = PreparedState(producer_id=7, producer_epoch=3)
    decision = Decision(run="r", batch=4, chosen=(("id", state),))
    assert Decision.decoded(decision.encoded()) == decision


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        ({"partition": pa.array([9], pa.int32())}, ["partition"], r"has partitions 0 to 1, not 9"),
        ({"value": [bytes(3_000_000)]}, [], r"refuses a batch|larger than|TOO_LARGE"),
        ({"topic": pa.array([None], pa.string())}, [], r"a row has no topic"),
        ({"timestamp": pa.array([-5000], pa.timestamp("us", tz="UTC"))}, ["timestamp"], r"-5 ms"),
    ],
)
def test_a_row_that_cannot_be_written_fails_the_task_and_leaves_nothing(
    query: Query, rows: dict[str, Any], columns: list[str], words: str
) -> None:
    one = pa.record_batch({"value": [b"x"], "topic": [query.topics[0]], **rows})
    with pytest.raises(WriteFailed, match=words):
        write_prepared(
            iter([one]),
            query.options,
            ("value", "topic", *columns),
            f"{ids_of(query.name)}r.0.0",
            is_decided=lambda: False,
        )
    query.check_stable()


def test_every_column_comes_through(query: Query) -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch(
        {
            "key": ["k1", None],
            "value": [None, "v2"],
            "topic": [query.topics[0]] * 2,
            "partition": pa.array([1, 1], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None], headers),
            "timestamp": pa.array([0, 5_000_000], pa.timestamp("us", tz="UTC")),
        }
    )
    columns = ("key", "value", "partition", "headers", "topic", "timestamp")
    prepared = write_prepared(
        iter([rows]), query.options, columns, f"{ids_of(query.name)}r.0.0", is_decided=lambda: False
    )
    settle(query.options, query.batch("r", 0, prepared), is_commit=True)
    given = {
        "kafka.bootstrap.servers": query.bootstrap,
        "subscribe": query.topics[0],
        "includeHeaders": "true",
    }
    reader = BatchReader(read_options(given, streaming=False))
    found = [
        (row["key"], row["value"], row["partition"], row["headers"], row["timestamp"].timestamp())
        for partition in reader.partitions()
        for each in reader.read(partition)
        for row in each.to_pylist()
    ]
    assert found == [
        (b"k1", None, 1, [{"key": "h", "value": b"x"}], 0),
        (None, b"v2", 1, None, 5),
    ]


def test_brokers_without_two_phase_commit_refuse_in_words() -> None:
    with broker() as own:
        query = Query(own.bootstrap)
        with pytest.raises(WriteFailed, match=r"transaction\.two\.phase\.commit\.enable=true"):
            query.write("r", 0, 0)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("linger.ms", "5", "kafka.linger.ms has no effect with exactlyOnce"),
        ("compression.type", "brotli", "compression.type is one of none, gzip"),
        ("delivery.timeout.ms", "soon", "milliseconds above 0, not 'soon'"),
    ],
)
def test_settings_of_the_other_producer_are_refused(setting: str, value: str, words: str) -> None:
    options = write_options({f"kafka.{setting}": value, "exactlyOnce": "true"})
    with pytest.raises(OptionInvalid, match=words):
        begin_exactly_once(options)

"""Backfills on real Spark: what each sink gets of a past range, what a death leaves, and what is refused."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from sink_support import TWO_PHASE, committed, open_transactions
from spark_support import create_topic, delete_topic, produce

from zhumq.client.transactional_producer import TransactionalProducer
from zhumq.pipelines.backfill_files import Notes
from zhumq.pipelines.backfill_note import BackfillRefused, Note, Order
from zhumq.pipelines.backfill_range import RangeInvalid
from zhumq.pipelines.backfill_sinks import Way
from zhumq.pipelines.backfilling import Backfilling, BackfillPlan
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.delta_table import read_delta
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import checkpoints_path
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.spark.decisions import ids_of
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BEGIN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1", **TWO_PHASE}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def backfilling_of(pipelines: Pipelines, file: str, notes: Notes | None = None) -> Backfilling:
    pipeline = load_pipeline(find_pipeline(file), {})
    path = checkpoints_path(pipelines.folder / "state", pipeline.name, root=None)
    return Backfilling(
        spark=pipelines.spark,
        pipeline=pipeline,
        brokers=Brokers(bootstrap=pipelines.bootstrap),
        notes=notes or Notes.of(pipelines.folder / "state", pipeline.name),
        checkpoints=Checkpoints(pipelines.spark, path),
    )


def order(
    begin: str | None = None, end: str | None = None, *sinks: str, again: bool = False
) -> Order:
    return Order(begin=begin, end=end, sinks=sinks, again=again)


def backfill(
    pipelines: Pipelines, file: str, given: Order, *, allow_missing: bool = False
) -> tuple[BackfillPlan, list[str]]:
    backfilling = backfilling_of(pipelines, file)
    plan = backfilling.plan(given, allow_missing=allow_missing)
    lines: list[str] = []
    backfilling.carry_out(plan, lines.append, StopRequest())
    return plan, lines


class Death(BaseException):
    """The process ends here."""


class MortalNotes(Notes):
    """Notes of a process that dies when a sink has its rows, and the note does not name it yet."""

    at = ""

    def write(self, note: Note) -> None:
        if self.at in note.written:
            raise Death
        super().write(note)


def values_in(table: Path) -> Counter[bytes]:
    rows = pyarrow.dataset.dataset(str(table), format="parquet").to_table(columns=["value"])
    return Counter(rows.column("value").to_pylist())


def values_in_delta(pipelines: Pipelines, table: Path) -> Counter[bytes]:
    rows = read_delta(pipelines.spark, str(table)).select("value").collect()
    return Counter(bytes(row["value"]) for row in rows)


def sent_to(pipelines: Pipelines, topic: str) -> Counter[bytes]:
    return Counter(each.value() for each in read_topic(pipelines.bootstrap, topic))


ALL = """\
name: all
sources:
  records: {{topic: all, from: earliest}}
steps:
  - name: good
    check: records
    rules: [{{rule: "value != X'626164'", reason: bad}}]
sinks:
  copy: {{from: good, topic: all-copy}}
  once: {{from: good, topic: all-once, options: {{exactlyOnce: "true"}}}}
  files: {{from: good, table: {folder}/files}}
  delta: {{from: good, table: {folder}/delta, format: delta}}
  newest: {{from: good, merge: {folder}/newest, keys: [key], sequence_by: offset}}
  seen: {{from: good, console: 3}}
dead_letters: {{topic: all-bad}}
"""


@pytest.mark.long
def test_each_sink_gets_a_range_once_more_whatever_dies(pipelines: Pipelines) -> None:
    """Range: b, c, bad. A death behind each sink in turn; then the rest, and nothing is in a sink twice more."""
    create_topic(pipelines.bootstrap, "all", 2)
    file = pipelines.write("all.yml", ALL.format(folder=pipelines.folder))

    def send(*values: bytes, at: int, partition: int = 0) -> None:
        produce(
            pipelines.bootstrap, "all", values, partition=partition,
            timestamp=lambda each: BEGIN_MS + 1000 * (at + each),
        )  # fmt: skip

    send(b"a", b"b", at=0)  # keys 0 and 1
    send(b"c", b"bad", at=1, partition=1)  # of the same keys: c is behind a by its offset alone
    pipelines.run(file)
    # A gap in the files, and a newer row of the key of b.
    for lost in (pipelines.folder / "files").glob("*.parquet"):
        lost.unlink()
    send(b"d", b"e", at=10)
    pipelines.run(file)
    newest = read_delta(pipelines.spark, str(pipelines.folder / "newest")).collect()
    before = {(bytes(row["key"]), bytes(row["value"])) for row in newest}
    assert values_in(pipelines.folder / "files") == {b"d": 1, b"e": 1}

    given = order(f"@{BEGIN_MS + 1000}", "2023-11-14T22:13:25Z")
    lines: list[str] = []
    for name in ("copy", "once", "files", "delta", "newest", "dead_letters"):
        notes = MortalNotes(Notes.of(pipelines.folder / "state", "all").folder)
        MortalNotes.at = name
        backfilling = backfilling_of(pipelines, file, notes)
        plan = backfilling.plan(given)
        assert plan.goes_on == (name != "copy")
        found = [(x.place.partition, x.first, x.until) for x in plan.ranges[0].partitions]
        assert found == [(0, 1, 2), (1, 0, 2)]
        with pytest.raises(Death):
            backfilling.carry_out(plan, lines.append, StopRequest())
    with pytest.raises(BackfillRefused, match=r"is not finished\. First finish it"):
        backfilling_of(pipelines, file).plan(order("earliest", "latest"))
    assert {"files: has had its rows", "delta: has had its rows"} < set(lines)
    # Without a range: the one that is not finished.
    _, lines = backfill(pipelines, file, order())
    assert [line[:21] for line in lines] == ["dead_letters: 1 rows "]

    twice = {b"a": 1, b"b": 2, b"c": 2, b"d": 1, b"e": 1}
    assert sent_to(pipelines, "all-copy") == twice
    assert Counter(committed(pipelines.bootstrap, "all-once")) == twice
    assert open_transactions(pipelines.bootstrap) == []
    assert values_in_delta(pipelines, pipelines.folder / "delta") == twice
    assert sent_to(pipelines, "all-bad") == {b"bad": 2}
    # The files had lost a, b and c; a is not in the range.
    assert values_in(pipelines.folder / "files") == {b"b": 1, b"c": 1, b"d": 1, b"e": 1}
    newest = read_delta(pipelines.spark, str(pipelines.folder / "newest")).collect()
    assert {(bytes(row["key"]), bytes(row["value"])) for row in newest} == before

    with pytest.raises(BackfillRefused, match="has written the rows of these offsets"):
        backfilling_of(pipelines, file).plan(given)
    plan, lines = backfill(pipelines, file, order("all:0:1", "all:0:2", "delta", "files"))
    assert plan.warnings == (
        f"files, delta had up to 1 of these messages by the backfill {plan_words(pipelines)}",
    )
    assert [line.partition(" rows")[0] for line in lines] == ["files: 0", "delta: 1"]
    again = order("all:0:1", "all:0:2", "delta", again=True)
    backfill(pipelines, file, again)
    assert values_in_delta(pipelines, pipelines.folder / "delta") == {**twice, b"b": 4}

    # The stream has noticed nothing: it goes on where it was. What it has not read yet comes twice.
    send(b"f", at=20)
    plan = backfilling_of(pipelines, file).plan(order("all:0:3", "latest", "delta", "newest"))
    assert plan.warnings == (
        "delta: its stream has not read up to 1 of these messages yet, and will write them, too",
    )
    pipelines.run(file)
    assert values_in(pipelines.folder / "files")[b"f"] == 1
    assert values_in_delta(pipelines, pipelines.folder / "delta") == {**twice, b"b": 4, b"f": 1}


def plan_words(pipelines: Pipelines) -> str:
    return Notes.of(pipelines.folder / "state", "all").read()[0].words()


HALF = """\
name: half
sources:
  records: {topic: half, from: earliest}
sinks:
  copy: {from: records, topic: half-copy, options: {exactlyOnce: "true"}}
"""


@pytest.mark.thorough
def test_a_backfill_that_is_given_up_leaves_nothing_open(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "half")
    create_topic(pipelines.bootstrap, "half-copy")
    produce(pipelines.bootstrap, "half", [b"a", b"b"])
    file = pipelines.write("half.yml", HALF)
    backfilling = backfilling_of(pipelines, file)
    with pytest.raises(BackfillRefused, match=r"no backfill of .*half\.yml is unfinished"):
        backfilling.abandon()
    plan = backfilling.plan(order("earliest", "latest"))
    backfilling.notes.write(plan.note)
    # What a kill leaves: a prepared transaction, behind which readers see nothing.
    name = f"{ids_of(plan.note.writer_for('copy'))}run.0.0"
    with TransactionalProducer(
        pipelines.bootstrap, transactional_id=name, two_phase=True
    ) as producer:
        producer.connect()
        with producer.transaction() as transaction:
            transaction.send("half-copy", b"of a killed backfill")
            producer.prepare()
    assert open_transactions(pipelines.bootstrap) == [name]
    # A file that has changed would mix its rows with those that may be there.
    pipelines.write("half.yml", HALF.replace("{from: records,", "{from: records, value: key,"))
    changed = backfilling_of(pipelines, file)
    with pytest.raises(BackfillRefused, match=r"half\.yml has changed since .*: copy would get"):
        changed.plan(order())
    assert changed.abandon().left == ("copy",)
    assert open_transactions(pipelines.bootstrap) == []
    plan, _ = backfill(pipelines, file, order("earliest", "latest"))
    assert plan.note.number == 1
    assert committed(pipelines.bootstrap, "half-copy") == [b"0", b"1"]


AHEAD = """\
name: ahead
sources:
  records: {{topic: ahead, from: earliest}}
sinks:
  files: {{from: records, table: {folder}/files, format: {format}}}
  counts: {{from: records, table: {folder}/counts, batch_sql: SELECT count(*) AS n FROM batch}}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_folder_that_was_filled_ahead_of_its_stream_loses_nothing(
    pipelines: Pipelines, kind: str
) -> None:
    """A query leaves out what is before the offsets of another one; a backfill is none."""
    topic = f"ahead-{kind}"
    create_topic(pipelines.bootstrap, topic)
    produce(pipelines.bootstrap, topic, [b"a", b"b", b"c", b"d"])
    text = AHEAD.replace("topic: ahead", f"topic: {topic}")
    file = pipelines.write("ahead.yml", text.format(folder=pipelines.folder, format=kind))
    backfill(pipelines, file, order(f"{topic}:0:2", f"{topic}:0:4"))
    pipelines.run(file)
    offsets = f"SELECT offset FROM {kind}.`{pipelines.folder}/files` ORDER BY offset"
    assert [row["offset"] for row in pipelines.spark.sql(offsets).collect()] == [0, 1, 2, 2, 3, 3]
    counts = pipelines.spark.read.parquet(str(pipelines.folder / "counts")).collect()
    assert sorted(row["n"] for row in counts) == [2, 4]
    _, lines = backfill(pipelines, file, order(f"{topic}:0:1", f"{topic}:0:3", "files"))
    assert lines[0].startswith("files: 0 rows")


LOST = """\
name: lost
sources:
  records: {{topic: lost, from: earliest}}
sinks:
  table: {{from: records, table: {folder}/table, format: delta}}
"""


@pytest.mark.thorough
def test_what_the_topic_does_not_have_is_refused_first(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "lost")
    produce(
        pipelines.bootstrap, "lost", [b"%d" % each for each in range(8)],
        timestamp=lambda each: BEGIN_MS + 1000 * each,
    )  # fmt: skip
    file = pipelines.write("lost.yml", LOST.format(folder=pipelines.folder))
    with pytest.raises(RangeInvalid, match="--to lost-0 is 9, and the partition ends at 8"):
        backfilling_of(pipelines, file).plan(order("lost:0:2", "lost:0:9"))
    with pytest.raises(BackfillRefused, match="no message is in the range"):
        backfilling_of(pipelines, file).plan(order("lost:0:2", "lost:0:2"))
    admin = AdminClient({"bootstrap.servers": pipelines.bootstrap})
    (future,) = admin.delete_records([KafkaPartition("lost", 0, 4)]).values()
    future.result(30)
    words = "lost-0 begins at offset 4 by now: 2 offsets of the range are deleted: --allow-missing"
    with pytest.raises(BackfillRefused, match=words):
        backfilling_of(pipelines, file).plan(order("lost:0:2", "lost:0:6"))
    with pytest.raises(BackfillRefused, match="messages of the range may have been deleted before"):
        backfilling_of(pipelines, file).plan(order(f"@{BEGIN_MS}", "latest"))
    plan, lines = backfill(pipelines, file, order("lost:0:2", "lost:0:6"), allow_missing=True)
    assert (plan.size, plan.warnings) == (2, ("lost-0 begins at offset 4 by now: 2 offsets of the range are deleted",))  # fmt: skip
    assert lines[0].startswith("table: 2 rows")
    # Noted, and then deleted by retention or with its topic.
    backfilling = backfilling_of(pipelines, file)
    noted = backfilling.plan(order("lost:0:5", "lost:0:8"))
    backfilling.notes.write(noted.note)
    (future,) = admin.delete_records([KafkaPartition("lost", 0, 7)]).values()
    future.result(30)
    with pytest.raises(BackfillRefused, match="begins at offset 7 by now: 2 offsets"):
        backfilling_of(pipelines, file).plan(order())
    delete_topic(pipelines.bootstrap, "lost")
    create_topic(pipelines.bootstrap, "lost")
    with pytest.raises(BackfillRefused, match=r"lost: gone, or another topic by now, .* --abandon"):
        backfilling_of(pipelines, file).plan(order())


STATED = """\
name: stated
trigger: 1s
sources:
  records: {{topic: stated, from: earliest}}
steps:
  - {{name: named, sql: "SELECT CAST(key AS STRING) AS id, timestamp FROM records"}}
  - {{name: hourly, sql: "SELECT window(timestamp, '1 hour') AS hour, count(*) AS n FROM named GROUP BY 1"}}
  - {{name: own, python: "stated_steps:{function}", inputs: [named]}}
sinks:
  hours: {{from: hourly, topic: stated-hours, mode: complete}}
  own: {{from: own, topic: stated-own}}
"""
STATED_STEPS = """\
from pyspark.sql.streaming import StatefulProcessor


class Nothing(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timers):
        for each in rows:
            yield each

    def close(self):
        pass


def transformed(rows):
    return rows.groupBy("id").transformWithStateInPandas(Nothing(), "id STRING", "Append", "None")


def seen_once(rows):
    return rows.withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["id"])
"""


@pytest.mark.thorough
def test_what_needs_a_stream_is_refused_with_its_line_and_what_has_edges_says_so(
    pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(pipelines.bootstrap, "stated")
    hour_ms = 3_600_000
    at = [BEGIN_MS - BEGIN_MS % hour_ms + each * hour_ms // 2 for each in range(4)]
    produce(pipelines.bootstrap, "stated", [b""] * 4, timestamp=lambda each: at[each])
    monkeypatch.syspath_prepend(str(pipelines.folder))
    (pipelines.folder / "stated_steps.py").write_text(STATED_STEPS)
    file = pipelines.write("stated.yml", STATED.format(function="transformed"))
    words = r"stated\.yml:8: .*step 'own' keeps a state from batch to batch \(TransformWithState"
    with pytest.raises(SpecInvalid, match=words):
        backfilling_of(pipelines, file).plan(order("earliest", "latest"))
    pipelines.write("stated.yml", STATED.format(function="seen_once"))
    with pytest.raises(SpecInvalid, match=r"stated\.yml:8: .*dropDuplicatesWithinWatermark is not"):
        backfilling_of(pipelines, file).plan(order("earliest", "latest"))
    plan, lines = backfill(pipelines, file, order("stated:0:1", "stated:0:4", "hours"))
    (hours,) = plan.sinks
    assert hours.edges == (
        (
            "hourly (stated.yml:7) counts messages of the range alone: a window or a group that reaches"
            " over its edges is not whole, and is written as it is"
        ),
    )
    assert "repeated after a kill, it sends all of them again" in hours.words
    assert lines[0].startswith("hours: 2 rows")
    assert sorted(value[-6:] for value in sent_to(pipelines, "stated-hours")) == [b'"n":1}', b'"n":2}']  # fmt: skip


@pytest.mark.thorough
def test_a_sink_that_fails_is_named_and_the_same_command_goes_on(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "fails")
    produce(pipelines.bootstrap, "fails", [b"a"])
    text = LOST.replace("lost", "fails").replace(
        "sinks:\n", "sinks:\n  copy: {{from: records, topic: fails-copy}}\n"
    )
    file = pipelines.write("fails.yml", text.format(folder=pipelines.folder))
    (pipelines.folder / "table").touch()  # where the folder of the table is to be
    with pytest.raises(
        PipelineFailed, match=r"^sink table: .*; to go on: zhumq pipeline backfill .*fails\.yml"
    ):
        backfill(pipelines, file, order("earliest", "latest"))
    (pipelines.folder / "table").unlink()
    plan, lines = backfill(pipelines, file, order())
    assert (plan.goes_on, plan.note.left, lines[0][:13]) == (True, ("table",), "table: 1 rows")
    assert sent_to(pipelines, "fails-copy") == {b"a": 1}
    stop = StopRequest()
    stop.ask()
    backfilling = backfilling_of(pipelines, file)
    with pytest.raises(PipelineFailed, match="stopped before copy had its rows; to go on: zhumq"):
        backfilling.carry_out(
            backfilling.plan(order("earliest", "latest", again=True)), lines.append, stop
        )


REPLACED = """\
name: replaced
sources:
  records: {{topic: replaced, from: earliest}}
steps:
  - {{name: texts, sql: "SELECT topic, partition, offset, {text} AS text, CAST(date(timestamp) AS STRING) AS day FROM records"}}
sinks:
  table: {{from: texts, table: {folder}/table, format: delta, partition_by: [day]}}
  copy: {{from: texts, topic: replaced-copy}}
"""


@pytest.mark.thorough
def test_the_rows_of_a_range_take_the_place_of_those_that_are_there(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "replaced")
    half_a_day = 12 * 3_600_000
    produce(
        pipelines.bootstrap,
        "replaced",
        [b"%d" % each for each in range(6)],
        timestamp=lambda each: BEGIN_MS + each * half_a_day,
    )
    folder = pipelines.folder
    wrong = REPLACED.format(folder=folder, text="concat('wrong ', value)")
    file = pipelines.write("replaced.yml", wrong)
    pipelines.run(file)
    pipelines.write("replaced.yml", REPLACED.format(folder=folder, text="CAST(value AS STRING)"))
    given = Order(begin="replaced:0:1", end="replaced:0:4", sinks=("table",), replace=True)
    with pytest.raises(
        BackfillRefused, match=r"--replace is for Delta tables .*, which copy is not"
    ):
        backfilling_of(pipelines, file).plan(replace(given, sinks=("copy",)))
    plan, lines = backfill(pipelines, file, given)
    assert (plan.sinks[0].way, lines[0][:13]) == (Way.REPLACE, "table: 3 rows")

    def rows() -> list[tuple[int, str]]:
        found = read_delta(pipelines.spark, str(folder / "table")).collect()
        return sorted((row["offset"], row["text"]) for row in found)

    corrected = [(0, "wrong 0"), (1, "1"), (2, "2"), (3, "3"), (4, "wrong 4"), (5, "wrong 5")]
    assert rows() == corrected
    produce(pipelines.bootstrap, "replaced", [b"6"])
    pipelines.run(file)
    assert rows() == [*corrected, (6, "6")]

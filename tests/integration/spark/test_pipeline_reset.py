"""Resets of pipelines on real Spark: what is read again, what sinks get twice, and what a crash leaves."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
from confluent_kafka.admin import AdminClient, NewPartitions
from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from sink_support import TWO_PHASE, committed, open_transactions
from spark_support import create_topic, produce

from zhumq.admin.offsets import EARLIEST, LATEST, Position
from zhumq.client.transactional_producer import TransactionalProducer
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.delta_table import read_delta
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.repeats import CannotRepeat
from zhumq.pipelines.resetting import NothingToReset, ResetPlan, Resetting, stopped
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import PipelineBusy, StatusFile, checkpoints_path
from zhumq.pipelines.stopping import PipelineFailed
from zhumq.spark.decisions import ids_of
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1", **TWO_PHASE}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def resetting_of(pipelines: Pipelines, file: str) -> Resetting:
    pipeline = load_pipeline(find_pipeline(file), {})
    path = checkpoints_path(pipelines.folder / "state", pipeline.name, root=None)
    return Resetting(
        spark=pipelines.spark,
        pipeline=pipeline,
        brokers=Brokers(bootstrap=pipelines.bootstrap),
        checkpoints=Checkpoints(pipelines.spark, path),
    )


def reset(
    pipelines: Pipelines, file: str, sinks: Sequence[str] = (), to: Position | None = None
) -> ResetPlan:
    resetting = resetting_of(pipelines, file)
    plan = resetting.plan(sinks, to)
    resetting.carry_out(plan)
    return plan


def values_of(table: Path) -> Counter[bytes]:
    rows = pyarrow.dataset.dataset(str(table), format="parquet").to_table(columns=["value"])
    return Counter(rows.column("value").to_pylist())


def sent_to(pipelines: Pipelines, topic: str) -> list[bytes]:
    return [each.value() for each in read_topic(pipelines.bootstrap, topic)]


SHARED = """\
name: shared
sources:
  records: {{topic: shared, from: earliest}}
sinks:
  files: {{from: records, table: {folder}/files}}
  delta: {{from: records, table: {folder}/delta, format: delta}}
  copy: {{from: records, topic: shared-copy, options: {{exactlyOnce: "true"}}}}
"""


@pytest.mark.thorough
def test_a_reset_of_all_sinks_reads_everything_again_and_says_what_comes_twice(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "shared", 2)
    produce(pipelines.bootstrap, "shared", [b"a", b"b"])
    produce(pipelines.bootstrap, "shared", [b"c"], partition=1)
    file = pipelines.write("shared.yml", SHARED.format(folder=pipelines.folder))
    with pytest.raises(
        NothingToReset, match="files and delta and copy of shared have no checkpoint"
    ):
        reset(pipelines, file)
    pipelines.run(file)
    with pytest.raises(NothingToReset, match="has no sink 'coppy'; it has files, delta, copy"):
        reset(pipelines, file, ["coppy"])

    plan = reset(pipelines, file)
    found = [(each.place.partition, each.before, each.after) for each in plan.sinks[0].partitions]
    assert found == [(0, 2, 0), (1, 1, 0)]
    files, delta, copy = (each.words() for each in plan.sinks)
    assert files.startswith("files: up to 3 messages are read again; it gets nothing twice: ")
    assert "appends each of these rows to" in delta
    assert "sends each of these rows to shared-copy again, exactlyOnce or not" in copy
    assert plan.aside is not None
    aside = Path(plan.aside)
    assert (aside / "read-records" / "metadata").exists()
    # What the sinks were like counts again with their next batch.
    assert {each.name for each in aside.parent.iterdir()} == {aside.name, "shapes.json"}

    produce(pipelines.bootstrap, "shared", [b"d"])
    pipelines.run(file)
    assert "shared: one read of records for files, delta, copy" in pipelines.display.lines
    once = {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
    assert values_of(pipelines.folder / "files") == once
    twice = {b"a": 2, b"b": 2, b"c": 2, b"d": 1}
    rows = read_delta(pipelines.spark, str(pipelines.folder / "delta")).select("value").collect()
    assert Counter(bytes(row["value"]) for row in rows) == twice
    assert Counter(committed(pipelines.bootstrap, "shared-copy")) == twice


PAIR = """\
name: pair
sources:
  records: {topic: pair, from: earliest}
sinks:
  one: {from: records, topic: pair-one}
  two: {from: records, topic: pair-two}
"""


@pytest.mark.long
def test_one_sink_of_a_shared_read_begins_elsewhere_and_the_others_go_on(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "pair", 2)
    at = [1_700_000_000_000 + 1000 * number for number in range(4)]
    produce(pipelines.bootstrap, "pair", [b"0", b"1", b"2", b"3"], timestamp=lambda each: at[each])
    file = pipelines.write("pair.yml", PAIR)
    pipelines.run(file)
    plan = reset(pipelines, file, ["two"], Position(timestamp_ms=at[2]))
    (two,) = plan.sinks
    found = [(each.place.partition, each.again, each.left_out) for each in two.partitions]
    assert found == [(0, 2, 0), (1, 0, 0)]
    assert two.words().endswith("; it leaves the shared read of records, and reads on its own")
    produce(pipelines.bootstrap, "pair", [b"4"])
    # One more partition, which the reset does not know, is read from its beginning.
    admin_partitions(pipelines.bootstrap, "pair", 3)
    produce(pipelines.bootstrap, "pair", [b"5"], partition=2)
    pipelines.run(file)
    pipelines.run(file)
    assert sorted(sent_to(pipelines, "pair-one")) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    again = [b"0", b"1", b"2", b"2", b"3", b"3", b"4", b"5"]
    assert sorted(sent_to(pipelines, "pair-two")) == again

    produce(pipelines.bootstrap, "pair", [b"6", b"7"])
    plan = reset(pipelines, file, [], LATEST)
    assert [each.left_out for each in plan.sinks] == [2, 2]
    assert plan.sinks[0].words() == (
        "one: no message is read again; 2 messages that it has not read are left out"
    )
    produce(pipelines.bootstrap, "pair", [b"8"])
    pipelines.run(file)
    assert "pair: one read of records for one, two" in pipelines.display.lines
    assert sorted(sent_to(pipelines, "pair-one"))[-2:] == [b"5", b"8"]
    assert sorted(sent_to(pipelines, "pair-two")) == [*again, b"8"]


def admin_partitions(bootstrap: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)


CRASHED = PAIR.replace("pair", "crashed")


@pytest.mark.thorough
def test_the_next_run_carries_out_a_reset_that_was_interrupted(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "crashed")
    produce(pipelines.bootstrap, "crashed", [b"a"])
    file = pipelines.write("crashed.yml", CRASHED)
    pipelines.run(file)
    resetting = resetting_of(pipelines, file)
    planned = resetting.plan([], None)
    # Planned, and not decided: everything is as it was.
    pipelines.run(file)
    assert sent_to(pipelines, "crashed-one") == [b"a"]
    resetting.checkpoints.decide(planned.reset)
    # A crash behind the decision, with some of the work done.
    checkpoints = Path(resetting.checkpoints.shown(""))
    source, target = planned.reset.moves[0]
    (checkpoints / target).parent.mkdir()
    (checkpoints / source).rename(checkpoints / target)
    pipelines.run(file)
    assert "crashed: carried out a reset that was interrupted" in pipelines.display.lines
    assert sent_to(pipelines, "crashed-one") == [b"a", b"a"]
    assert not (checkpoints / "reset.json").exists()
    pipelines.run(file)
    assert sent_to(pipelines, "crashed-two") == [b"a", b"a"]


HALF = """\
name: half
sources:
  records: {{topic: half, from: earliest}}
sinks:
  files: {{from: records, table: {folder}/files, partition_by: [partition]}}
"""


@pytest.mark.long
def test_files_of_a_batch_that_was_half_moved_do_not_stay(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "half", 2)
    produce(pipelines.bootstrap, "half", [b"a"])
    produce(pipelines.bootstrap, "half", [b"b"], partition=1)
    file = pipelines.write("half.yml", HALF.format(folder=pipelines.folder))
    # The second file cannot be moved into the table: there is a file where its folder is to be.
    blocked = pipelines.folder / "files" / "partition=1"
    blocked.parent.mkdir()
    blocked.touch()
    with pytest.raises(PipelineFailed):
        pipelines.run(file)
    assert list((pipelines.folder / "files" / "partition=0").glob("*.parquet"))
    blocked.unlink()
    reset(pipelines, file)
    assert not list((pipelines.folder / "files").glob("**/*.parquet"))
    pipelines.run(file)
    assert values_of(pipelines.folder / "files") == {b"a": 1, b"b": 1}


ONCE = """\
name: once
sources:
  records: {topic: once, from: earliest}
sinks:
  copy: {from: records, topic: once-copy, options: {exactlyOnce: "true"}}
"""


@pytest.mark.long
def test_transactions_that_a_killed_run_has_prepared_are_ended(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "once")
    produce(pipelines.bootstrap, "once", [b"a"])
    file = pipelines.write("once.yml", ONCE)
    pipelines.run(file)
    place = resetting_of(pipelines, file).checkpoints.place_of("copy")
    assert place is not None
    assert place.writer is not None
    name = f"{ids_of(place.writer)}run.0.0"
    with TransactionalProducer(
        pipelines.bootstrap, transactional_id=name, two_phase=True
    ) as producer:
        producer.connect()
        with producer.transaction() as transaction:
            transaction.send("once-copy", b"of a killed run")
            producer.prepare()
    assert open_transactions(pipelines.bootstrap) == [name]
    reset(pipelines, file, ["copy"], EARLIEST)
    assert open_transactions(pipelines.bootstrap) == []
    pipelines.run(file)
    assert committed(pipelines.bootstrap, "once-copy") == [b"a", b"a"]


COUNTED = """\
name: counted
sources:
  records: {{topic: counted, from: earliest}}
sinks:
  counts: {{from: records, table: {folder}/counts, batch_sql: SELECT count(*) AS n FROM batch}}
"""


@pytest.mark.long
def test_what_the_next_run_would_refuse_is_refused_and_changes_nothing(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "counted")
    produce(pipelines.bootstrap, "counted", [b"a"])
    file = pipelines.write("counted.yml", COUNTED.format(folder=pipelines.folder))
    pipelines.run(file)
    words = (
        "the sink counts cannot begin again: the rows of .*/counts have no topic and no partition"
    )
    with pytest.raises(CannotRepeat, match=words):
        reset(pipelines, file)
    pipelines.run(file)
    (pipelines.folder / "counts").rename(pipelines.folder / "counts-before")
    plan = reset(pipelines, file)
    assert "is empty" in plan.sinks[0].repeats
    pipelines.run(file)
    state = pipelines.folder / "state"
    pipeline = load_pipeline(find_pipeline(file), {})
    with (
        StatusFile(state, "counted").locked(),
        pytest.raises(PipelineBusy, match=r"\(process \d+\): stop it first, with Ctrl-C"),
        stopped(state, pipeline),
    ):
        pass

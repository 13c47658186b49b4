"""What a changed file means for checkpoints that exist, on real Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor
from spark_support import create_topic, produce

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.read_checkpoint import CheckpointUnfit
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.state_in_plan import kept_state
from zhumq.pipelines.status import checkpoints_path
from zhumq.pipelines.upgrading import Outcome, UpgradeRefused, Upgrading
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def upgrade(pipelines: Pipelines, text: str) -> dict[str, tuple[Outcome, str]]:
    """What the upgrade to this text means; carried out if it can be."""
    file = pipelines.write("changing.yml", text)
    pipeline = load_pipeline(find_pipeline(file), {})
    path = checkpoints_path(pipelines.folder / "state", pipeline.name, root=None)
    upgrading = Upgrading(
        spark=pipelines.spark,
        pipeline=pipeline,
        brokers=Brokers(bootstrap=pipelines.bootstrap),
        checkpoints=Checkpoints(pipelines.spark, path),
    )
    layout, found = upgrading.plan()
    if any(each.outcome is Outcome.NEEDS_RESET for each in found):
        with pytest.raises(UpgradeRefused, match=r"zhumq pipeline reset .*changing.yml --sink "):
            upgrading.carry_out(layout, found)
    else:
        upgrading.carry_out(layout, found)
    return {each.sink: (each.outcome, each.words) for each in found}


def outcomes(found: dict[str, tuple[Outcome, str]]) -> dict[str, Outcome]:
    return {name: outcome for name, (outcome, _) in found.items()}


def sent_to(pipelines: Pipelines, topic: str) -> list[bytes]:
    return [each.value() for each in read_topic(pipelines.bootstrap, topic)]


COUNTED = """\
name: counted
sources:
  records: {topic: counted, from: earliest}
steps:
  - name: counts
    sql: |
      SELECT window(timestamp, '1 minute') AS minute, count(*) AS n FROM records
      GROUP BY window(timestamp, '1 minute')
sinks:
  counts: {from: counts, topic: counted-counts, mode: update}
"""


@pytest.mark.thorough
def test_a_changed_state_is_refused_and_a_change_of_what_is_around_it_goes_on(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "counted")
    produce(pipelines.bootstrap, "counted", [b"a"])
    assert outcomes(upgrade(pipelines, COUNTED)) == {"counts": Outcome.BEGINS}
    pipelines.run(pipelines.write("changing.yml", COUNTED))
    same = upgrade(pipelines, COUNTED)
    alone = "it reads on its own: its mode is update"
    assert same == {"counts": (Outcome.GOES_ON, alone)}
    around = COUNTED.replace(
        "count(*) AS n FROM records", "count(*) + 1 FROM records WHERE offset >= 0"
    )
    around = around.replace("topic: counted-counts", "topic: other-counts")
    outcome, words = upgrade(pipelines, around)["counts"]
    assert outcome is Outcome.GOES_ON
    assert "applies counts as changed to what it reads from now on" in words
    assert "is written as changed from now on" in words

    # Spark itself would go on: both states have the same types.
    hours = COUNTED.replace("'1 minute')", "'1 hour')")
    outcome, words = upgrade(pipelines, hours)["counts"]
    assert outcome is Outcome.NEEDS_RESET
    assert "count(1) bigint], windows of 60000000, and now would be of " in words
    with pytest.raises(CheckpointUnfit, match=r"the state of the sink counts in .*/counts is made"):
        pipelines.run(pipelines.write("changing.yml", hours))

    # A state that is older than the notes is never taken for what the file says now.
    shapes = pipelines.folder / "state" / "counted" / "checkpoints" / "shapes.json"
    shapes.unlink()
    for text in (hours, COUNTED):
        outcome, words = upgrade(pipelines, text)["counts"]
        assert outcome is Outcome.GOES_ON
    assert "Spark checks it" in words


PYTHON = """\
name: python
sources:
  records: {topic: python, from: earliest}
steps:
  - {name: keyed, sql: "SELECT CAST(value AS STRING) AS value, 'k' AS other FROM records"}
  - {name: counts, python: "upgraded_steps:counted", inputs: [keyed], arguments: {by: value}}
sinks:
  counts: {from: counts, topic: python-counts, mode: update}
"""
STEPS = """\
import pandas
from pyspark.sql.streaming.state import GroupStateTimeout

def counted(rows, by):
    def count(key, groups, state):
        before = state.get[0] if state.exists else 0
        state.update((before + sum(len(each) for each in groups),))
        yield pandas.DataFrame({"value": [f"{key[0]} {state.get[0]}"]})

    return rows.groupBy(by).applyInPandasWithState(
        count, "value STRING", "n BIGINT", "Update", GroupStateTimeout.NoTimeout
    )
"""


@pytest.mark.thorough
def test_a_python_step_with_a_state_goes_on_with_other_code_and_not_with_another_key(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "python")
    produce(pipelines.bootstrap, "python", [b"a"])
    pipelines.write("upgraded_steps.py", STEPS)
    pipelines.run(pipelines.write("changing.yml", PYTHON))
    assert sent_to(pipelines, "python-counts") == [b"a 1"]
    outcome, words = upgrade(pipelines, PYTHON)["counts"]
    assert outcome is Outcome.GOES_ON
    assert "other code" not in words
    pipelines.write("upgraded_steps.py", STEPS + "\n# corrected\n")
    outcome, words = upgrade(pipelines, PYTHON)["counts"]
    assert outcome is Outcome.GOES_ON
    assert "; has other code in counts: of a state that it keeps, Spark checks the types" in words
    # Both keys are texts: Spark itself would count on.
    outcome, words = upgrade(pipelines, PYTHON.replace("by: value", "by: other"))["counts"]
    assert outcome is Outcome.NEEDS_RESET
    assert "made of FlatMapGroupsInPandasWithState by [value string] of struct<n:bigint>" in words
    assert "now would be of FlatMapGroupsInPandasWithState by [other string]" in words


PAIR = """\
name: pair
sources:
  records: {topic: pair, from: earliest}
steps:
  - {name: plain, sql: "SELECT value FROM records WHERE value IS NOT NULL"}
  - {name: counted, sql: "SELECT count(*) FROM records"}
sinks:
  one: {from: records, topic: pair-one}
  two: {from: plain, topic: pair-two}
"""
TWO = "  two: {from: plain, topic: pair-two}\n"
THREE = "  three: {from: records, topic: pair-three}\n"


def begun(pipelines: Pipelines, name: str) -> str:
    """A pipeline that has run once."""
    text = PAIR.replace("pair", name)
    create_topic(pipelines.bootstrap, name)
    produce(pipelines.bootstrap, name, [b"a"])
    pipelines.run(pipelines.write("changing.yml", text))
    return text


@pytest.mark.thorough
def test_a_shared_read_whose_source_was_renamed_is_refused_and_nothing_comes_twice(
    pipelines: Pipelines,
) -> None:
    text = begun(pipelines, "renamed")
    other_name = text.replace("records", "rows")
    found = upgrade(pipelines, other_name)
    assert outcomes(found) == {"one": Outcome.NEEDS_RESET, "two": Outcome.NEEDS_RESET}
    words = "was written by the shared read of records, and the file has no source of that name"
    assert words in found["one"][1]
    what_to_do = r"Undo the change; or let the sink begin anew: zhumq pipeline reset .* --sink one"
    with pytest.raises(CheckpointUnfit, match=f"{words}.*{what_to_do}"):
        pipelines.run(pipelines.write("changing.yml", other_name))
    assert sent_to(pipelines, "renamed-one") == [b"a"]
    produce(pipelines.bootstrap, "renamed", [b"b"])
    pipelines.run(pipelines.write("changing.yml", text))
    assert sent_to(pipelines, "renamed-one") == [b"a", b"b"]
    assert sent_to(pipelines, "renamed-two") == [b"a", b"b"]


@pytest.mark.long
def test_each_change_of_a_shared_read_is_safe_or_refused(pipelines: Pipelines) -> None:
    text = begun(pipelines, "pair")
    create_topic(pipelines.bootstrap, "other")
    changed = text.replace("SELECT value FROM", "SELECT value, key FROM") + THREE
    found = upgrade(pipelines, changed.replace("topic: pair-one", "topic: new-one"))
    assert "it shares one read of records with two; is written as changed" in found["one"][1]
    assert "applies plain as changed to what it reads from now on" in found["two"][1]
    assert found["three"][0] is Outcome.BEGINS
    assert "when the read of records had begun" in found["three"][1]

    outcome, words = upgrade(pipelines, text.replace("two: {from: plain", "two: {from: counted"))[
        "two"
    ]
    assert outcome is Outcome.NEEDS_RESET
    assert "can no longer be (its plan may keep state (Aggregate))" in words

    moved = text.replace("topic: pair,", "topic: other,")
    assert set(outcomes(upgrade(pipelines, moved)).values()) == {Outcome.NEEDS_RESET}
    wider = text.replace("topic: pair,", "topics: [pair, other],")
    assert "reads other from the first offset" in upgrade(pipelines, wider)["one"][1]


@pytest.mark.long
def test_a_sink_that_is_left_alone_goes_on_and_the_one_that_left_cannot_come_back(
    pipelines: Pipelines,
) -> None:
    text = begun(pipelines, "leaving")
    without = text.replace(TWO.replace("pair", "leaving"), "")
    found = upgrade(pipelines, without)
    assert found == {
        "one": (Outcome.GOES_ON, "it goes on alone in the read of records that it shared"),
        "two": (Outcome.LEAVES, "it leaves its shared read: to come back, it has to be reset"),
    }
    outcome, words = upgrade(pipelines, text)["two"]
    assert outcome is Outcome.NEEDS_RESET
    assert "was left out of an earlier run" in words
    produce(pipelines.bootstrap, "leaving", [b"b"])
    pipelines.run(pipelines.write("changing.yml", without))
    assert sent_to(pipelines, "leaving-one") == [b"a", b"b"]
    assert sent_to(pipelines, "leaving-two") == [b"a"]


def test_what_a_state_is_made_of(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    rows.createOrReplaceTempView("rows")

    def state(sql: str) -> tuple[str, ...]:
        return kept_state(spark.sql(sql))

    for stateless in (
        "SELECT value FROM rows WHERE value > 1",
        "WITH some AS (SELECT value FROM rows) SELECT * FROM some",
        "SELECT * FROM rows TABLESAMPLE (10 PERCENT)",
    ):
        assert state(stateless) == ()
    count = "SELECT window(timestamp, '{}') AS {}, count(*) FROM rows {} GROUP BY window(timestamp, '{}')"
    minute = state(count.format("1 minute", "w", "", "1 minute"))
    assert minute == state(count.format("1 minute", "x", "WHERE value > 2", "1 minute"))
    assert minute != state(count.format("2 minutes", "w", "", "2 minutes"))
    gap = "SELECT session_window(timestamp, '{0}'), count(*) FROM rows GROUP BY session_window(timestamp, '{0}')"
    assert state(gap.format("5 minutes")) != state(gap.format("6 minutes"))
    by = "SELECT {} FROM rows GROUP BY value % 2"
    kinds = ("sum(value)", "max(value)", "count(*)", "count(*), max(value)", "max(value), count(*)")
    assert len({state(by.format(each)) for each in kinds}) == len(kinds)
    # What is made of the aggregates, and how it is sorted, is not kept.
    shown = "value % 2 AS k, round(sum(value), 2) AS total, sum(value)"
    assert state(by.format(shown) + " ORDER BY k") == state(by.format("sum(value)"))
    assert state("SELECT DISTINCT value FROM rows") != state(
        "SELECT DISTINCT value + 1 AS v FROM rows"
    )
    join = "SELECT a.value FROM rows a JOIN rows b ON a.value = b.value AND a.timestamp > b.timestamp - interval {} minutes"
    assert state(join.format(5)) == state(join.format(5)) != state(join.format(6))

    def once(columns: list[str], *by: str) -> tuple[str, ...]:
        timed = rows.selectExpr(*columns).withWatermark("timestamp", "1 minute")
        return kept_state(timed.dropDuplicatesWithinWatermark(list(by)))

    both = ["timestamp", "value"]
    assert once(both, "value") == once([*both, "value + 1 AS more"], "value")
    assert once(both, "value") != once(both, "value", "timestamp")


# A processor that is planned, and not run.
Nothing: Any = type(
    "Nothing", (StatefulProcessor,), dict.fromkeys(StatefulProcessor.__abstractmethods__)
)


def test_the_keys_of_a_processor_are_part_of_its_state(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("value AS a", "value AS b")

    def state(*keys: str) -> tuple[str, ...]:
        found = rows.groupBy(*keys).transformWithState(
            statefulProcessor=Nothing(),
            outputStructType="a BIGINT",
            outputMode="Append",
            timeMode="None",
        )
        return kept_state(found)

    assert state("a") == ("TransformWithStateInPySpark by [a bigint]",)
    assert state("b") != state("a") != state("a", "b")

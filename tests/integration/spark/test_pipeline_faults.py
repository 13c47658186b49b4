"""Pipelines on real Spark with bad messages, stale states or failing sinks, and their results."""

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
from pipeline_support import Pipelines, headers_of, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, delete_topic, produce, wait_until

from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.status import State
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FAULTY_STEPS = """\
import pathlib
import time


def failing(rows):
    def fail(batches):
        for _ in batches:
            raise ValueError("this sink fails")
        yield from ()

    return rows.mapInArrow(fail, rows.schema)


def away(rows, until):
    def check(batches):
        for batch in batches:
            if not pathlib.Path(until).exists():
                raise ValueError("it is away")
            yield batch

    return rows.mapInArrow(check, rows.schema)


def waiting(rows, begun, go):
    def wait(batches):
        for batch in batches:
            pathlib.Path(begun).touch()
            deadline = time.monotonic() + 120
            while not pathlib.Path(go).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch

    return rows.mapInArrow(wait, rows.schema)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        create_topic(started.bootstrap, "causes")
        produce(started.bootstrap, "causes", [b"seven"])
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    made = Pipelines(spark, running.bootstrap, tmp_path)
    made.write("faulty_steps.py", FAULTY_STEPS)
    return made


def rows_in(table: Path) -> list[dict[str, Any]]:
    if not table.exists():
        return []
    return pyarrow.dataset.dataset(str(table), format="parquet").to_table().to_pylist()


READINGS = """\
name: readings
trigger: batch
sources:
  records: {topic: readings, headers: true}
steps:
  - name: parsed
    json: records
    schema: Value DOUBLE, key STRING, timestamp STRING, topic STRING, partition STRING,
      offset STRING, headers STRING
  - name: named
    sql: SELECT * FROM parsed
  - name: good
    check: named
    rules:
      - {rule: value < 100, reason: too hot}
sinks:
  good:
    from: good
    topic: readings-good
    value: to_json(struct(*))
    keep: []
dead_letters: {topic: readings.dlq}
"""


@pytest.mark.thorough
def test_fields_named_like_the_columns_of_the_source_leave_the_message_whole(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "readings")
    good = {
        "Value": 20.0, "key": "k", "timestamp": "noon", "topic": "t", "partition": "p",
        "offset": "o", "headers": "h",
    }  # fmt: skip
    hot = json.dumps({**good, "Value": 120.0}).encode()
    messages = [json.dumps(good).encode(), hot, b"no JSON"]
    produce(pipelines.bootstrap, "readings", messages, timestamp=lambda index: 1000 + index)
    pipelines.run(pipelines.write("readings.yml", READINGS))
    (message,) = read_topic(pipelines.bootstrap, "readings-good")
    written = json.loads(message.value() or b"")
    assert written.pop("timestampType") == 0
    assert written == good  # and no internal column of the pipeline
    dead_letters = sorted(
        read_topic(pipelines.bootstrap, "readings.dlq"), key=lambda x: x.key() or b""
    )
    assert [(each.key(), each.value()) for each in dead_letters] == [
        (b"1", hot),
        (b"2", b"no JSON"),
    ]
    for number, dead_letter in enumerate(dead_letters, 1):
        headers = headers_of(dead_letter)
        assert headers["index"] == str(number)
        assert headers["zhumq.topic"] == "readings"
        assert headers["zhumq.offset"] == str(number)
        assert headers["zhumq.timestamp"] == str(1000 + number)
    assert [headers_of(each)["zhumq.step"] for each in dead_letters] == ["good", "parsed"]


def test_a_field_cannot_have_a_name_that_pipelines_use(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "reserved")
    text = READINGS.replace("headers STRING", "_message STRING").replace("readings", "reserved")
    with pytest.raises(SpecInvalid, match="a field cannot be named '_message'"):
        pipelines.run(pipelines.write("reserved.yml", text))


COUNTED = """\
name: counted
parameters: {topic: , mode: complete}
sources:
  records: {topic: "${topic}", from: earliest}
steps:
  - name: counted
    sql: SELECT CAST(value AS STRING) AS word, count(*) AS n FROM records GROUP BY 1
sinks:
  seen: {from: counted, console: 1, mode: "${mode}"}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["complete", "update"])
def test_a_console_over_a_stateful_view_goes_on_from_its_checkpoint(
    pipelines: Pipelines, mode: str
) -> None:
    topic = f"words-{mode}"
    create_topic(pipelines.bootstrap, topic)
    file = pipelines.write("counted.yml", COUNTED)
    for times in range(1, 4):
        produce(pipelines.bootstrap, topic, (b"word %d" % number for number in range(40)))
        status = pipelines.run(file, topic=topic, mode=mode)
        assert status.state is State.DONE
        (shown,) = pipelines.display.tables["seen"]
        assert shown["n"] == times


WINDOWS = """\
name: windows
parameters: {table: }
sources:
  records: {topic: windows, from: earliest, watermark: {column: timestamp, delay: 1 second}}
steps:
  - name: counted
    sql: SELECT window.start AS start, count(*) AS n FROM records GROUP BY window(timestamp, '1 second')
sinks:
  table: {from: counted, table: "${table}"}
"""


@pytest.mark.thorough
def test_a_stateful_batch_that_is_in_its_table_already_is_passed_over(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "windows")
    file, table = pipelines.write("windows.yml", WINDOWS), pipelines.folder / "t"

    def run(first: int) -> None:
        produce(
            pipelines.bootstrap,
            "windows",
            (b"%d" % number for number in range(10)),
            timestamp=lambda index: 1_700_000_000_000 + (first + index) * 1000,
        )
        pipelines.run(file, table=str(table))

    run(0)
    counted = len(rows_in(table))
    assert counted > 0
    # As if the driver had died after the batch was in the table and before Spark recorded it.
    commits = pipelines.folder / "state" / "windows" / "checkpoints" / "table" / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()
    run(100)
    starts = [row["start"] for row in rows_in(table)]
    assert len(starts) == len(set(starts))
    assert len(starts) > counted


# With its step, the offsets of its batch, and what to do.
FAILS = (
    r"^sink fails: ValueError: this sink fails, in step failing \(faulty_steps\.py:8\); it was reading"
    r" [a-z-]*two-0 from 0 to 1; correct the step, or keep such rows from it with a rule, and run again:"
    r" the next run begins there$"
)
TWO_SINKS = """\
name: two
parameters: {topic: , table: , trigger: available-now, begun: none, go: none}
trigger: ${trigger}
sources:
  records: {topic: "${topic}", from: earliest, options: {maxOffsetsPerTrigger: 2}}
steps:
  - name: failing
    python: faulty_steps:failing
    inputs: records
  - name: slow
    python: faulty_steps:waiting
    inputs: records
    arguments: {begun: "${begun}", go: "${go}"}
sinks:
  fails: {from: failing, table: "${table}-none"}
  works: {from: ${works}, table: "${table}"}
"""


@pytest.mark.thorough
def test_a_sink_that_fails_lets_the_others_come_to_their_end(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "two")
    produce(pipelines.bootstrap, "two", (b"%d" % number for number in range(10)))
    table = pipelines.folder / "t"
    file = pipelines.write("two.yml", TWO_SINKS.replace("${works}", "records"))
    with pytest.raises(PipelineFailed, match=FAILS):
        pipelines.run(file, topic="two", table=str(table))
    assert sorted(row["offset"] for row in rows_in(table)) == list(range(10))
    assert pipelines.last_status("two").state is State.FAILED


@pytest.mark.thorough
def test_a_sink_that_fails_lets_the_others_go_on(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "endless-two")
    produce(pipelines.bootstrap, "endless-two", [b"0", b"1"])
    begun, go, table = (pipelines.folder / name for name in ("begun", "go", "t"))
    file = pipelines.write("two.yml", TWO_SINKS.replace("${works}", "slow"))
    failed: list[Exception] = []
    stop = StopRequest()

    def run() -> None:
        try:
            pipelines.run(
                file, topic="endless-two", table=str(table), trigger="100ms",
                begun=str(begun), go=str(go), stop=stop,
            )  # fmt: skip
        except PipelineFailed as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def has(count: int) -> bool:
        assert not failed
        return len(rows_in(table)) == count

    try:
        wait_until(lambda: bool(failed) or begun.exists(), "the other has begun", seconds=120)
        go.touch()
        wait_until(lambda: has(2), "the other has finished its batch", seconds=120)
        produce(pipelines.bootstrap, "endless-two", [b"2"])
        wait_until(lambda: has(3), "the other has gone on", seconds=120)
    finally:
        go.touch()
        stop.ask()
        thread.join(120)
    assert [re.match(FAILS, str(error)) is not None for error in failed] == [True]
    sinks = pipelines.last_status("two").sinks
    assert sinks["works"].error is None
    assert f"sink fails: {sinks['fails'].error}" == str(failed[0])


AGAIN = """\
name: again
parameters: {table: , until: }
sources:
  records: {topic: again, from: earliest}
steps:
  - {name: shaky, python: "faulty_steps:away", inputs: records, arguments: {until: "${until}"}}
sinks:
  table: {from: shaky, table: "${table}"}
"""


@pytest.mark.thorough
def test_a_sink_that_fails_is_tried_again(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "again")
    produce(pipelines.bootstrap, "again", [b"0", b"1"])
    until, table = pipelines.folder / "until", pipelines.folder / "t"
    file = pipelines.write("again.yml", AGAIN)
    run = partial(pipelines.run, file, table=str(table), until=str(until))
    with pytest.raises(PipelineFailed, match="sink table: ValueError: it is away"):
        run()
    display_of_failure = pipelines.display
    assert display_of_failure.lines == []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, tries=5)
        wait_until(
            lambda: running.done() or bool(pipelines.display.lines), "it has failed", seconds=120
        )
        until.touch()
        assert running.result(120).state is State.DONE
    assert pipelines.display.lines[0].startswith(
        "sink table failed (1 of 5), tried again in 1 s: ValueError: it is away, in step shaky (f"
    )
    assert sorted(row["offset"] for row in rows_in(table)) == [0, 1]


CAUSES = """\
name: causes
trigger: ${trigger}
parameters: {table: , sql: , trigger: available-now}
sources:
  records: {topic: causes, from: earliest}
steps:
  - name: chosen
    sql: ${sql}
sinks:
  table: {from: chosen, table: "${table}"}
"""


@pytest.mark.parametrize("trigger", ["available-now", "batch"])
@pytest.mark.parametrize(
    ("sql", "place", "cause", "todo"),
    [
        ("SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM records", "t", "'seven'", r", in step chosen \(causes\.yml:8\);.* correct the step"),
        ("SELECT raise_error(CAST(value AS STRING)) AS n FROM records", "t", "seven", "run again when that is repaired"),
        ("SELECT * FROM records", "file/t", "[Nn]ot a directory", "see that this user can write to /"),
    ],
)  # fmt: skip
def test_the_root_cause_is_named_with_its_place_and_what_to_do(
    pipelines: Pipelines, trigger: str, sql: str, place: str, cause: str, todo: str
) -> None:
    (pipelines.folder / "file").touch()
    file = pipelines.write("causes.yml", CAUSES)
    with pytest.raises(PipelineFailed, match=f"^sink table: .*{cause}.*{todo}") as failed:
        pipelines.run(file, table=str(pipelines.folder / place), sql=sql, trigger=trigger)
    assert ("; it was reading causes-0 up to 0; " in str(failed.value)) == (trigger != "batch")
    assert "\n" not in str(failed.value)
    assert "awaitResult" not in str(failed.value)
    assert "calling o" not in str(failed.value)


GONE = """\
name: gone
parameters: {names: , go: }
sources:
  records: {topic: gone, from: earliest, options: {maxOffsetsPerTrigger: 2}}
  names: {table: "${names}"}
steps:
  - name: slow
    python: faulty_steps:waiting
    inputs: records
    arguments: {begun: "${go}-begun", go: "${go}"}
  - {name: named, sql: SELECT slow.* FROM slow JOIN names ON names.id = slow.offset}
sinks:
  table: {from: named, table: "${names}-named"}
"""


@pytest.mark.thorough
def test_a_table_and_a_topic_that_are_gone_are_named_with_what_to_do(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "gone")
    produce(pipelines.bootstrap, "gone", (b"%d" % number for number in range(4)))
    names, go, begun = (pipelines.folder / name for name in ("names", "go", "go-begun"))
    pipelines.spark.range(4).write.parquet(str(names))
    file = pipelines.write("gone.yml", GONE)
    run = partial(pipelines.run, file, names=str(names), go=str(go))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            wait_until(lambda: begun.exists() or running.done(), "the step has begun", seconds=120)
            shutil.rmtree(names)
        finally:
            go.touch()
        # Spark has read the table for the first batch, or not.
        with pytest.raises(PipelineFailed, match=TABLE_GONE):
            running.result(120)
    pipelines.spark.range(4).write.parquet(str(names))
    run()
    delete_topic(pipelines.bootstrap, "gone")
    todo = f"if it was deleted, .*: zhumq pipeline reset {file} --sink table"
    with pytest.raises(PipelineFailed, match=f"^sink table: there is no topic 'gone' at .*{todo}$"):
        run()


TABLE_GONE = (
    r"^sink table: .* does not exist, in source names: .*/names is gone, or its files were replaced while"
    r" they were read; it was reading gone-0 (up to 1|from 2 to 3); run again when that is repaired:"
    r" the next run begins there$"
)
OLD_RECORDS = """\
name: old
trigger: batch
parameters: {target: }
sources:
  records: {topic: old}
sinks:
  target: {from: records, topic: "${target}", keep: [timestamp]}
"""


@pytest.mark.thorough
def test_records_that_the_target_will_delete_for_their_age_are_warned_of(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "old")
    now_ms = int(time.time() * 1000)
    stamps = [1_700_000_000_000, 1_700_000_000_000, now_ms]
    produce(pipelines.bootstrap, "old", [b"x"] * 3, timestamp=lambda index: stamps[index])
    create_topic(pipelines.bootstrap, "short", 1, {"retention.ms": "3600000"})
    create_topic(pipelines.bootstrap, "compacted", 1, {"cleanup.policy": "compact"})
    file = pipelines.write("old.yml", OLD_RECORDS)
    pipelines.run(file, target="short")
    assert pipelines.display.lines == [
        (
            "warning: 2 of 3 records are older than short keeps (retention.ms=3600000; the oldest is of"
            " 2023-11-14 22:13:20): the broker will delete them. To keep them: zhumq topic alter short"
            " --set retention.ms=-1"
        )
    ]
    for target in ("compacted", "kept-for-ever"):
        pipelines.run(file, target=target)
        assert pipelines.display.lines == []

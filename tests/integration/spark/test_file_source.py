"""The source `files` on real Spark: files as they come, each once, with their names; changed and broken ones."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
from pipeline_support import Pipelines, headers_of, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, produce, wait_until

from zhumq.admin.offsets import EARLIEST, LATEST
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.repeats import CannotRepeat
from zhumq.pipelines.resetting import NoSuchBeginning, Resetting
from zhumq.pipelines.spec import FileFormat
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import checkpoints_path
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.pipelines.upgrading import Outcome, Upgrading
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ORDERS = """\
name: orders
trigger: {trigger}
sources:
  drop:
    files: {folder}/drop
    format: {format}
    schema: id BIGINT, name STRING
    pattern: "*.{format}"
    files_per_batch: 2
sinks:
  table: {{from: drop, table: "{folder}/table"}}
"""
LINES = """\
name: lines
trigger: available-now
sources: {{drop: {{files: {folder}/drop, format: text}}}}
steps:
  - {{name: parsed, parse: drop, format: json, schema: "id BIGINT, value STRING"}}
sinks:
  table: {{from: parsed, table: "{folder}/table"}}
dead_letters: {{topic: lines.dlq}}
"""
BESIDE = """\
name: beside
sources:
  records: {{topic: beside, from: earliest}}
  drop: {{files: {folder}/drop, format: text}}
steps:
  - {{name: both, sql: SELECT value FROM drop UNION ALL SELECT CAST(value AS STRING) FROM records}}
sinks:
  one: {{from: records, topic: beside-one}}
  two: {{from: records, topic: beside-two}}
  all: {{from: both, topic: beside-all}}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    (tmp_path / "drop").mkdir()
    return Pipelines(spark, running.bootstrap, tmp_path)


def put(pipelines: Pipelines, name: str, text: str) -> Path:
    """A file that appears as a whole, as the docs advise."""
    hidden = pipelines.folder / "drop" / f".{name}"
    hidden.write_text(text)
    return hidden.rename(hidden.with_name(name))


def rows_in(pipelines: Pipelines) -> list[Mapping[str, Any]]:
    table = pipelines.folder / "table"
    if not table.exists():
        return []
    found = pyarrow.dataset.dataset(str(table), format="parquet").to_table().to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["_file"]))


def resetting_of(pipelines: Pipelines, file: str, bootstrap: str) -> Resetting:
    pipeline = load_pipeline(find_pipeline(file), {})
    path = checkpoints_path(pipelines.folder / "state", pipeline.name, root=None)
    return Resetting(
        spark=pipelines.spark,
        pipeline=pipeline,
        brokers=Brokers(bootstrap=bootstrap),
        checkpoints=Checkpoints(pipelines.spark, path),
    )


def ids(pipelines: Pipelines) -> list[int]:
    return [row["id"] for row in rows_in(pipelines)]


@pytest.mark.long
def test_a_file_is_read_once_with_its_name_and_its_time(pipelines: Pipelines) -> None:
    text = ORDERS.format(trigger="available-now", folder=pipelines.folder, format="csv")
    text = text.replace("    files_per_batch", "    options: {header: true}\n    files_per_batch")
    file = pipelines.write("orders.yml", text)
    first = put(pipelines, "a b.csv", 'id,name\n1,"one, two"\n')
    written_at = datetime.fromtimestamp(int(first.stat().st_mtime), UTC)
    for number in range(2, 7):
        put(pipelines, f"{number}.csv", f"id,name\n{number},x\n")
    put(pipelines, "other.txt", "no csv\n")
    status = pipelines.run(file)
    assert ids(pipelines) == [1, 2, 3, 4, 5, 6]
    assert status.sinks["table"].batches == 3  # of two files each
    row = rows_in(pipelines)[0]
    assert row["name"] == "one, two"
    assert row["_file"].endswith("/drop/a%20b.csv")
    assert row["_modified"].replace(microsecond=0) == written_at
    # A file of the same name is a known one, whatever is in it; a new file of long ago is read.
    first.write_text("id,name\n100,changed\n")
    late = put(pipelines, "late.csv", "id,name\n7,late\n")
    os.utime(late, (1e9, 1e9))
    pipelines.run(file)
    assert ids(pipelines) == [1, 2, 3, 4, 5, 6, 7]
    # A header that is not that of the schema would put values into the wrong columns.
    wrong = put(pipelines, "wrong.csv", "name,id\nx,8\n")
    with pytest.raises(PipelineFailed, match="CSV header does not conform to the schema"):
        pipelines.run(file)
    wrong.write_text("id,name\n8,x\n")
    pipelines.run(file)
    assert ids(pipelines) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.thorough
def test_a_timed_stream_reads_files_as_they_come(pipelines: Pipelines) -> None:
    text = ORDERS.format(trigger="200ms", folder=pipelines.folder, format="json")
    stop = StopRequest()
    put(pipelines, "1.json", '{"id": 1, "name": "a"}\n{"id": 2}\n')
    with ThreadPoolExecutor() as pool:
        run = pool.submit(partial(pipelines.run, pipelines.write("orders.yml", text), stop=stop))
        try:
            wait_until(lambda: ids(pipelines) == [1, 2], "the first file is read", seconds=120)
            put(pipelines, "2.json", '{"id": 3, "name": "c", "more": 1}\n')
            wait_until(lambda: ids(pipelines) == [1, 2, 3], "the second one, too", seconds=120)
        finally:
            stop.ask()
            run.result(200)
    # Without a stream: everything that is there.
    batch = text.replace("200ms", "batch").replace("/table", "/again").replace("orders", "again")
    assert pipelines.run(pipelines.write("again.yml", batch)).sinks["table"].rows_out == 3


@pytest.mark.thorough
def test_a_broken_file_ends_the_run_or_is_left_out(pipelines: Pipelines) -> None:
    text = ORDERS.format(trigger="available-now", folder=pipelines.folder, format="json")
    file = pipelines.write("orders.yml", text)
    put(pipelines, "1.json", '{"id": 1}\n{"id": "x"}\n{"id": 2}\n')
    with pytest.raises(
        PipelineFailed, match=r"sink table: file:\S+/drop/1\.json: Cannot parse the field name 'id'"
    ):
        pipelines.run(file)
    assert rows_in(pipelines) == []
    dropping = text.replace("    files_per_batch", "    on_error: drop\n    files_per_batch")
    pipelines.run(pipelines.write("orders.yml", dropping))
    assert ids(pipelines) == [1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [FileFormat.PARQUET, FileFormat.ORC])
def test_files_of_columns_are_read_and_a_damaged_one_ends_the_run(
    pipelines: Pipelines, kind: FileFormat
) -> None:
    rows = pipelines.spark.sql("SELECT 1L AS id, 'a' AS name")
    rows.write.mode("append").format(kind).save(str(pipelines.folder / "drop"))
    text = ORDERS.format(trigger="available-now", folder=pipelines.folder, format=kind)
    file = pipelines.write("orders.yml", text)
    pipelines.run(file)
    assert [(row["id"], row["name"]) for row in rows_in(pipelines)] == [(1, "a")]
    put(pipelines, f"damaged.{kind}", "no columns")
    with pytest.raises(PipelineFailed, match=rf"/drop/damaged\.{kind}"):
        pipelines.run(file)
    assert ids(pipelines) == [1]


@pytest.mark.thorough
def test_broken_lines_are_dead_letters_with_the_name_of_the_file(pipelines: Pipelines) -> None:
    put(pipelines, "1.log", '{"id": 1, "value": "a"}\nbroken\n{"id": 2}\n')
    pipelines.run(pipelines.write("lines.yml", LINES.format(folder=pipelines.folder)))
    assert [(row["id"], row["value"]) for row in rows_in(pipelines)] == [(1, "a"), (2, None)]
    (dead,) = read_topic(pipelines.bootstrap, "lines.dlq")
    assert dead.value() == b"broken"
    headers = headers_of(dead)
    assert headers["zhumq.reason"] == "not JSON of the given schema"
    assert headers["zhumq.file"].endswith("/drop/1.log")


def test_a_folder_that_is_not_there_is_found_before_the_run(pipelines: Pipelines) -> None:
    text = ORDERS.format(trigger="available-now", folder=pipelines.folder, format="json")
    away = pipelines.write("away.yml", text.replace("/drop", "/away"))
    with pytest.raises(SpecInvalid, match=r"away\.yml:5: sources\.drop\.files: .*away"):
        pipelines.run(away)


@pytest.mark.thorough
def test_a_reset_reads_all_files_again(pipelines: Pipelines) -> None:
    text = ORDERS.format(trigger="available-now", folder=pipelines.folder, format="json")
    file = pipelines.write("orders.yml", text)
    put(pipelines, "1.json", '{"id": 1}\n')
    put(pipelines, "2.json", '{"id": 2}\n')
    pipelines.run(file)
    # No topic is read or written, so no broker is needed.
    resetting = resetting_of(pipelines, file, "127.0.0.1:1")
    upgrading = Upgrading(
        spark=pipelines.spark,
        pipeline=resetting.pipeline,
        brokers=resetting.brokers,
        checkpoints=resetting.checkpoints,
    )
    (upgrade,) = upgrading.plan()[1]
    assert (upgrade.outcome, upgrade.words.split(";")[0]) == (
        Outcome.GOES_ON,
        "it reads on its own: reads the files of drop",
    )
    with pytest.raises(NoSuchBeginning, match="reads the files of drop, which have no offsets"):
        resetting.plan([], LATEST)
    with pytest.raises(CannotRepeat, match="the sink table cannot begin again"):
        resetting.plan([], None)
    (pipelines.folder / "table").rename(pipelines.folder / "before")
    (pipelines.folder / "drop" / "1.json").unlink()
    plan = resetting.plan([], EARLIEST)
    (sink,) = plan.sinks
    assert sink.words().startswith(
        f"table: all files that are in {pipelines.folder}/drop are read again; it gets nothing twice"
    )
    assert plan.document()["sinks"][0]["files"] == [f"{pipelines.folder}/drop"]
    resetting.carry_out(plan)
    pipelines.run(file)
    assert ids(pipelines) == [2]


@pytest.mark.long
def test_files_beside_a_topic_whose_read_is_shared(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "beside")
    produce(pipelines.bootstrap, "beside", [b"a", b"b"])
    put(pipelines, "1.txt", "line\n")
    file = pipelines.write("beside.yml", BESIDE.format(folder=pipelines.folder))
    status = pipelines.run(file)
    assert "beside: one read of records for one, two" in pipelines.display.lines
    assert "beside: own read for all: reads the files of drop" in pipelines.display.lines
    assert status.sinks["all"].lag == 0

    def sent(topic: str) -> list[bytes]:
        return sorted(each.value() for each in read_topic(pipelines.bootstrap, topic))

    assert sent("beside-one") == sent("beside-two") == [b"a", b"b"]
    assert sent("beside-all") == [b"a", b"b", b"line"]
    plan = resetting_of(pipelines, file, pipelines.bootstrap).plan(["all"], None)
    assert (
        plan.sinks[0]
        .words()
        .startswith(
            f"all: up to 2 messages and all files that are in {pipelines.folder}/drop are read again; it sends"
        )
    )

"""Pipelines with `format: iceberg`: streams, batches and backfills, and what is found before the run."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")

from collections.abc import Iterator

from iceberg_support import catalog_in, options_of, rows_in, table_in
from pipeline_support import Pipelines
from pyiceberg import types as ice
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession
from spark_support import create_topic, produce, wait_until
from test_pipeline_backfill import Death, MortalNotes, backfill, backfilling_of, order

from zhumq.pipelines.backfill_files import Notes
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PIPELINE = """\
name: orders
trigger: {trigger}
sources:
  records: {{topic: {topic}, from: earliest, options: {{maxOffsetsPerTrigger: 20}}}}
steps:
  - name: parsed
    parse: records
    format: json
    schema: id BIGINT, city STRING, amount DECIMAL(10,2)
    on_error: drop
  - {{name: chosen, sql: "SELECT partition, offset, id, city, amount FROM parsed"}}
sinks:
  orders:
    from: chosen
    table: shop.{table}
    format: iceberg
    partition_by: [city]
    options: {options}
  raw:
    from: records
    table: shop.{table}_raw
    format: iceberg
    batch_sql: SELECT topic, count(*) AS n FROM batch GROUP BY topic
    options: {options}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def send(pipelines: Pipelines, topic: str, first: int, end: int) -> None:
    values = [
        json.dumps({"id": each, "city": "Rome" if each % 2 else "", "amount": each / 4}).encode()
        for each in range(first, end)
    ]
    produce(pipelines.bootstrap, topic, values, timestamp=lambda _: 1_700_000_000_000)


def write(pipelines: Pipelines, topic: str, trigger: str) -> str:
    options = json.dumps(options_of(pipelines.folder))
    text = PIPELINE.format(trigger=trigger, topic=topic, table="orders", options=options)
    return pipelines.write("orders.yml", text)


def ids_in(folder: Path) -> list[int]:
    return sorted(row["id"] for row in rows_in(folder, "shop.orders"))


def counted_in(folder: Path) -> list[int]:
    return sorted(row["n"] for row in rows_in(folder, "shop.orders_raw"))


def test_each_run_of_a_batch_adds_its_rows_and_leaves_nothing_to_remember(
    pipelines: Pipelines, tmp_path: Path
) -> None:
    create_topic(pipelines.bootstrap, "read")
    send(pipelines, "read", 0, 9)
    file = write(pipelines, "read", "batch")
    pipelines.run(file)
    found = sorted(tuple(map(str, row.values())) for row in rows_in(tmp_path, "shop.orders"))
    assert found == [
        ("0", str(each), str(each), "Rome" if each % 2 else "", f"{each / 4:.2f}")
        for each in range(9)
    ]
    pipelines.run(file)
    assert ids_in(tmp_path) == sorted([*range(9)] * 2)
    assert counted_in(tmp_path) == [9, 9]
    properties = table_in(tmp_path, "shop.orders").properties
    assert [name for name in properties if name.startswith("zhumq.")] == []


@pytest.mark.thorough
def test_a_stream_writes_each_of_its_batches_as_one_snapshot(
    pipelines: Pipelines, tmp_path: Path
) -> None:
    create_topic(pipelines.bootstrap, "streamed")
    send(pipelines, "streamed", 0, 30)
    status = pipelines.run(write(pipelines, "streamed", "available-now"))
    assert status.sinks["orders"].rows_out == 30
    found = sorted(tuple(map(str, row.values())) for row in rows_in(tmp_path, "shop.orders"))
    assert found == sorted(
        ("0", str(each), str(each), "Rome" if each % 2 else "", f"{each / 4:.2f}")
        for each in range(30)
    )
    assert counted_in(tmp_path) == [10, 20]
    # The sinks share a read, so the numbers are those of its batches.
    for name in ("orders", "orders_raw"):
        summaries = [each.summary for each in table_in(tmp_path, f"shop.{name}").snapshots()]
        assert [each["zhumq.batch"] for each in summaries if each is not None] == ["0", "1"]
        assert len({each["zhumq.query"] for each in summaries if each is not None}) == 1


@pytest.mark.thorough
def test_a_stream_that_goes_on_writes_what_comes(pipelines: Pipelines, tmp_path: Path) -> None:
    create_topic(pipelines.bootstrap, "endless")
    send(pipelines, "endless", 0, 5)
    file, stop = write(pipelines, "endless", "1s"), StopRequest()
    thread = threading.Thread(target=lambda: pipelines.run(file, stop=stop))
    thread.start()
    try:

        def has_rows(count: int) -> bool:
            assert thread.is_alive()
            exists = (tmp_path / "catalog.db").exists() and list(tmp_path.rglob("snap-*.avro"))
            return bool(exists) and len(ids_in(tmp_path)) == count

        wait_until(lambda: has_rows(5), "the first rows are there", seconds=120)
        send(pipelines, "endless", 5, 9)
        wait_until(lambda: has_rows(9), "the next rows are there", seconds=120)
    finally:
        stop.ask()
        thread.join(120)
    assert ids_in(tmp_path) == list(range(9))


@pytest.mark.thorough
def test_a_catalog_that_goes_away_in_a_run_fails_its_batch_and_the_next_run_has_each_row_once(
    pipelines: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(pipelines.bootstrap, "away")
    send(pipelines, "away", 0, 30)
    file = write(pipelines, "away", "available-now")
    commit_table, done = SqlCatalog.commit_table, []

    def goes_away(*given: Any, **facts: Any) -> Any:
        if len(done) > 2:
            raise OSError("no route to host")
        done.append(given)
        return commit_table(*given, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", goes_away)
        words = (
            r"cannot commit to shop\.orders_raw: OSError: no route to host.* away-0 from 20 to 29"
        )
        with pytest.raises(PipelineFailed, match=words) as found:
            pipelines.run(file)
    assert "\n" not in str(found.value)
    assert ids_in(tmp_path) == list(range(30))
    assert counted_in(tmp_path) == [20]
    pipelines.run(file)
    assert ids_in(tmp_path) == list(range(30))
    assert counted_in(tmp_path) == [10, 20]


@pytest.mark.thorough
def test_a_backfill_that_dies_is_in_once(
    pipelines: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(pipelines.bootstrap, "filled")
    send(pipelines, "filled", 0, 10)
    file = write(pipelines, "filled", "available-now")
    pipelines.run(file)
    monkeypatch.setattr(MortalNotes, "at", "orders")
    notes = MortalNotes(Notes.of(tmp_path / "state", "orders").folder)
    backfilling = backfilling_of(pipelines, file, notes)
    plan = backfilling.plan(order("earliest", "latest", "orders"))
    with pytest.raises(Death):
        backfilling.carry_out(plan, lambda _: None, StopRequest())
    assert ids_in(tmp_path) == sorted([*range(10)] * 2)
    _, lines = backfill(pipelines, file, order("earliest", "latest", "orders"))
    assert ids_in(tmp_path) == sorted([*range(10)] * 2)
    assert any("has had its rows" in each for each in lines)


def test_what_a_table_would_refuse_is_found_before_the_run_with_its_line(
    pipelines: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(pipelines.bootstrap, "refused")
    send(pipelines, "refused", 0, 3)
    file = write(pipelines, "refused", "available-now")
    catalog = catalog_in(tmp_path)
    catalog.create_namespace("shop")
    fields = ice.NestedField(1, "id", ice.StringType(), required=False)
    catalog.create_table("shop.orders_raw", Schema(fields))
    catalog.create_table("shop.orders", Schema(fields))
    with pytest.raises(
        SpecInvalid, match=r"orders\.yml:14: .*is partitioned by \(\), and the sink by"
    ):
        pipelines.run(file)
    catalog.drop_table("shop.orders")
    text = Path(file).read_text()
    Path(file).write_text(
        text.replace("SELECT topic, count(*) AS n", "SELECT topic, count(*) AS id")
    )
    with pytest.raises(SpecInvalid, match=r"orders\.yml:20: .*'id' of shop\.orders_raw is string"):
        pipelines.run(file)
    assert not catalog.table_exists("shop.orders")
    catalog.close()
    Path(file).write_text(text.replace("catalog.db", "nowhere/catalog.db"))
    with pytest.raises(PipelineFailed, match=r"sink orders: the catalog of shop\.orders cannot be"):
        pipelines.run(file)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    words = r"orders\.yml:14: .*needs pyiceberg: pip install 'zhumq\[iceberg\]'"
    with pytest.raises(SpecInvalid, match=words):
        pipelines.run(file)

"""`zhumq pipeline backfill` beside `zhumq pipeline run`: both write, the backfill is killed and repeated, counts are exact."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")

import deltalake
import pyarrow.dataset
from archive_support import Feeder
from chaos.spark_driver import Driver
from pipeline_support import read_topic
from sink_support import TWO_PHASE, committed, open_transactions
from spark_support import create_topic, wait_until

from zhumq.pipelines.backfill_note import Note
from zhumq.spark.decisions import ids_of
from zhumq.testing.process import broker_process

PARTITIONS = 2
BEGIN, HELD, END = 50, 200, 350  # offsets of each partition
RUN_SECONDS_MAX = 400.0
PIPELINE = """\
name: orders
trigger: 1s
spark:
  spark.sql.shuffle.partitions: 2
  spark.driver.memory: 700m
  spark.python.authenticate.socketTimeout: 120s    # on a busy machine
  spark.python.unix.domain.socket.enabled: "true"
sources:
  records: {{topic: orders, from: earliest}}
steps:
  - {{name: held, python: "holding:hold", inputs: [records], arguments: {{folder: "{folder}", offset: {held}}}}}
sinks:
  once: {{from: held, topic: once, options: {{exactlyOnce: "true"}}}}
  copy: {{from: held, topic: copy}}
  files: {{from: held, table: {folder}/files}}
  delta: {{from: held, table: {folder}/delta, format: delta}}
  newest: {{from: held, merge: {folder}/newest, keys: [key], sequence_by: offset}}
"""
HOLDING = '''\
"""Passes rows on. While there is a file `hold`, the task of one partition stops at an offset."""

import pathlib
import threading

ROWS_BEFORE = 20


def hold(rows, folder, offset):
    hold, held = pathlib.Path(folder, "hold"), pathlib.Path(folder, "held")

    def pass_on(batches):
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS_BEFORE):
                part = batch.slice(start, ROWS_BEFORE)
                yield part
                is_there = int(offset) in part.column("offset").to_pylist()
                while is_there and part.column("partition")[0].as_py() == 1 and hold.exists():
                    held.touch()
                    threading.Event().wait(0.1)

    return rows.mapInArrow(pass_on, rows.schema)
'''

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(2400)]


class Orders:
    """The pipeline, its running stream and its backfills as processes."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.file = folder / "orders.yml"
        self.file.write_text(PIPELINE.format(folder=folder, held=HELD))
        (folder / "holding.py").write_text(HOLDING)
        self._words = [
            str(self.file), "--bootstrap", bootstrap, "--state-dir", str(folder / "state"),
            "--master", "local[2]",
        ]  # fmt: skip
        self.log = folder / "backfill.log"

    def stream(self) -> Driver:
        return Driver(self._words, self.folder / "stream.log")

    def backfill(self, *words: str) -> Driver:
        program = ("-m", "zhumq", "pipeline", "backfill")
        return Driver([*self._words, "--yes", *words], self.log, program=program)

    def finish(self) -> None:
        """The backfill that is not finished, to its end."""
        driver = self.backfill()
        try:
            assert driver.wait(RUN_SECONDS_MAX) == 0, self.log.read_text()[-3000:]
        finally:
            driver.end()

    def notes(self) -> list[dict[str, Any]]:
        folder = self.folder / "state" / "orders" / "backfills"
        return [json.loads(each.read_text()) for each in sorted(folder.glob("*.json"))]

    def open_transactions(self) -> list[str]:
        """Those of the backfill. The stream has others, for a moment in each batch."""
        ids = [ids_of(Note.of(each).writer_for("once")) for each in self.notes()]
        found = open_transactions(self.bootstrap)
        return [name for name in found if any(name.startswith(each) for each in ids)]

    def rows_in(self, table: str) -> list[tuple[int, int]]:
        columns = ["partition", "offset"]
        if table == "files":
            found = pyarrow.dataset.dataset(str(self.folder / table), format="parquet")
            rows = found.to_table(columns=columns).to_pylist()
        else:
            try:
                now = deltalake.DeltaTable(str(self.folder / table))
            except deltalake.exceptions.TableNotFoundError:
                return []
            rows = now.to_pyarrow_table(columns=columns).to_pylist()
        return [(row["partition"], row["offset"]) for row in rows]


def test_a_backfill_beside_the_stream_is_killed_and_repeated(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data", settings=TWO_PHASE) as process:
        for topic in ("orders", "once", "copy"):
            create_topic(process.bootstrap, topic, PARTITIONS)
        orders = Orders(process.bootstrap, tmp_path)
        feeder = Feeder(process.bootstrap, "orders", PARTITIONS, records_per_round=4)
        feeder.start()
        stream = orders.stream()
        try:

            def wait_for(table: str, rows: int) -> None:
                def has_them() -> bool:
                    assert stream.is_alive, (tmp_path / "stream.log").read_text()[-3000:]
                    return len(orders.rows_in(table)) >= rows

                wait_until(has_them, f"{table} has {rows} rows", seconds=RUN_SECONDS_MAX)

            wait_for("newest", 3 * END)
            _kill_in_the_middle(orders)
            before = len(orders.rows_in("delta"))
            wait_for("delta", before + 100)  # The stream goes on beside the dead backfill.
            _kill_behind_a_commit(orders)
            orders.finish()
            (note,) = orders.notes()
            assert note["done_at"] is not None
            feeder.stop()
            wait_for("newest", len(feeder.acknowledged))
            wait_for("delta", len(feeder.acknowledged) + PARTITIONS * (END - BEGIN))
            stream.ask_to_stop()
            assert stream.wait(RUN_SECONDS_MAX) == 0, (tmp_path / "stream.log").read_text()[-3000:]
        finally:
            stream.end()
        once = dict.fromkeys(feeder.acknowledged, 1)
        in_range = {place for place in once if BEGIN <= place[1] < END}
        assert len(in_range) == PARTITIONS * (END - BEGIN)
        twice = {place: 2 if place in in_range else 1 for place in once}
        values = Counter[bytes]()
        for place, value in feeder.acknowledged.items():
            values[value] += twice[place]
        assert Counter(committed(process.bootstrap, "once")) == values
        assert open_transactions(process.bootstrap) == []
        # It was killed while it wrote `once`, and behind the commit of `delta`: the tasks of `copy` had ended.
        assert Counter(each.value() for each in read_topic(process.bootstrap, "copy")) == values
        assert Counter(orders.rows_in("delta")) == twice
        assert Counter(orders.rows_in("files")) == once
        assert Counter(orders.rows_in("newest")) == once


def _kill_in_the_middle(orders: Orders) -> None:
    """One task of the exactly-once sink has prepared its transaction, and the other one has not ended."""
    (orders.folder / "hold").touch()
    ends = ",".join(f"orders:{each}:{END}" for each in range(PARTITIONS))
    begins = ",".join(f"orders:{each}:{BEGIN}" for each in range(PARTITIONS))
    driver = orders.backfill("--from", begins, "--to", ends)
    try:

        def is_held() -> bool:
            assert driver.is_alive, orders.log.read_text()[-3000:]
            return (orders.folder / "held").exists() and bool(orders.open_transactions())

        wait_until(
            is_held, "one task has ended, and one stops in the middle", seconds=RUN_SECONDS_MAX
        )
        driver.kill("all")
    finally:
        (orders.folder / "hold").unlink()
        driver.end()
    (note,) = orders.notes()
    assert note["written"] == {}
    assert orders.open_transactions()


def _kill_behind_a_commit(orders: Orders) -> None:
    """When the note names the sinks before `delta`: it is somewhere in the last two."""
    driver = orders.backfill()
    try:

        def has_come_so_far() -> bool:
            assert driver.is_alive, orders.log.read_text()[-3000:]
            return "files" in orders.notes()[0]["written"]

        wait_until(has_come_so_far, "three sinks have their rows", seconds=RUN_SECONDS_MAX)
        driver.kill("all")
    finally:
        driver.end()
    assert orders.notes()[0]["done_at"] is None

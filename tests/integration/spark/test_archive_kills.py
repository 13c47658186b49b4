"""The archive holds every record once while its driver and its broker are killed at any moment."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from archive_support import Feeder, Table, run_here
from chaos.spark_driver import Driver
from pyspark.sql import SparkSession
from spark_support import create_topic, wait_until

from zhumq.pipelines.runner import RowsFound
from zhumq.testing.process import BrokerProcess, broker_process

# `make spark-chaos KILLS=20` sets how often both sides are killed.
KILLS = int(os.environ.get("ZHUMQ_SPARK_KILLS", "1"))
SEED = int(os.environ.get("ZHUMQ_SPARK_SEED", "1"))
SECONDS_EACH = 240  # for a kill and all that follows, on a busy machine
PARTITIONS = 3
TOPIC = "archived"
PROGRESS_SECONDS_MAX = 240.0
ENDED_BY_ITSELF_MAX = 3 + KILLS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(300 + 2 * KILLS * SECONDS_EACH),
]


class Chaos:
    """Kills the driver of an archive query and its broker, and starts them again."""

    def __init__(self, process: BrokerProcess, folder: Path, seed: int) -> None:
        self._process = process
        self._folder = folder
        self._random = random.Random(seed)
        self.table = Table(folder / "table")
        self.state_dir = folder / "state"
        self.log = folder / "driver.log"
        self.done: Counter[str] = Counter()
        self._driver = self._start()

    def values(self) -> dict[str, str]:
        return {"topic": TOPIC, "table": str(self.table.path), "rows_per_batch": "20000"}

    def run(self, kills: int) -> None:
        events = ["driver", "broker"] * kills
        self._random.shuffle(events)
        try:
            for event in events:
                self._wait_for_a_moment()
                if event == "driver":
                    self._kill_driver()
                else:
                    self._kill_broker()
            self._wait_for_batches(self.table.batches() + 1)
        except AssertionError as error:
            for log in (self.log, *self.state_dir.glob("*/spark.log")):
                error.add_note(f"{log.name} ends with\n{log.read_text()[-3000:]}")
            raise
        finally:
            self._driver.end()

    def _start(self) -> Driver:
        words = ["archive", "--bootstrap", self._process.bootstrap]
        words += ["--state-dir", str(self.state_dir), "--master", "local[2]"]
        for name, value in {**self.values(), "trigger": "1s"}.items():
            words += ["--set", f"{name}={value}"]
        return Driver(words, self.log)

    def _wait_for_a_moment(self) -> None:
        """Wait for a random time: the kill is mostly within a batch, sometimes while the query starts."""
        if self._random.random() < 0.7:
            self._wait_for_batches(self.table.batches() + 1)
        pause = self._random.uniform(0, 3)
        over_at = time.monotonic() + pause
        wait_until(lambda: time.monotonic() >= over_at, "the moment comes", seconds=pause + 5)

    def _wait_for_batches(self, count: int) -> None:
        def is_there() -> bool:
            if not self._driver.is_alive:
                # Spark ends the query if Python takes too long to start.
                self._note("driver ended by itself")
                assert self.done["driver ended by itself"] <= ENDED_BY_ITSELF_MAX
                self._driver.end()
                self._driver = self._start()
            return self.table.batches() >= count

        wait_until(is_there, f"{count} batches are in", seconds=PROGRESS_SECONDS_MAX)

    def _kill_driver(self) -> None:
        what = self._random.choice(["all", "python", "jvm"])
        self._note(f"driver killed ({what})")
        self._driver.kill(what)
        self._driver = self._start()

    def _kill_broker(self) -> None:
        self._note("broker killed")
        self._process.kill()
        self._process.start()

    def _note(self, event: str) -> None:
        self.done[event] += 1
        moment = time.strftime("%H:%M:%S", time.gmtime())
        print(f"{moment} {event}, {self.table.batches()} batches are in", flush=True)


def test_an_archive_survives_the_death_of_its_driver_and_of_its_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, TOPIC, PARTITIONS)
        feeder = Feeder(process.bootstrap, TOPIC, PARTITIONS)
        feeder.start()
        try:
            chaos = Chaos(process, tmp_path, SEED)
            chaos.run(KILLS)
        finally:
            feeder.stop()
        values = {"topic": TOPIC, "table": str(chaos.table.path)}

        def audit() -> None:
            report = str(tmp_path / "report.json")
            run_here(
                spark, "audit", tmp_path / "audits", process.bootstrap, report=report, **values
            )

        run_here(spark, "archive", chaos.state_dir, process.bootstrap, **chaos.values())
        chaos.table.check_against(feeder.acknowledged)
        audit()
        print(
            f"{len(feeder.acknowledged):,} records in {chaos.table.batches()} batches;"
            f" {', '.join(f'{word} {count}' for word, count in sorted(chaos.done.items()))}"
        )

        # A short run leaves it to test_pipeline_archive that the audit finds what is wrong.
        changes = [
            (chaos.table.with_a_row_twice(), "twice"),
            (chaos.table.without_a_row(), "missing"),
        ]
        for changed, word in changes if KILLS > 1 else []:
            with changed as (partition, offset):
                found = f"kind {word}, .*partition {partition}, first_offset {offset},"
                with pytest.raises(RowsFound, match=found):
                    audit()

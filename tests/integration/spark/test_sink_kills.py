"""The exactly-once sink while its driver, its executors and its broker are killed at any moment, with speculation on."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from archive_support import Feeder
from chaos.spark_cluster import Standalone, standalone_cluster
from chaos.spark_driver import Driver
from sink_support import PARTITIONS, SOURCE, TWO_PHASE, Sink, check
from spark_support import wait_until

from zhumq.testing.process import BrokerProcess, broker_process

# `make spark-sink-chaos KILLS=20` sets how often each of the three is killed.
KILLS = int(os.environ.get("ZHUMQ_SPARK_KILLS", "1"))
SEED = int(os.environ.get("ZHUMQ_SPARK_SEED", "1"))
SECONDS_EACH = 240  # for a kill and all that follows, on a busy machine
PROGRESS_SECONDS_MAX = 240.0
ENDED_BY_ITSELF_MAX = 3 + 3 * KILLS
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.executor.memory": "600m",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(400 + 3 * KILLS * SECONDS_EACH),
]


class Chaos:
    """Kills the driver of a query, its executors and its broker, and starts them again."""

    def __init__(self, process: BrokerProcess, cluster: Standalone, sink: Sink, seed: int) -> None:
        self._process = process
        self._cluster = cluster
        self._sink = sink
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._driver = self._start()

    def run(self, kills: int) -> None:
        events = ["driver", "executor", "broker"] * kills
        self._random.shuffle(events)
        try:
            for event in events:
                self._wait_for_a_moment()
                if event == "driver":
                    self._kill_driver()
                elif event == "executor":
                    self._kill_executor()
                else:
                    self._note("broker killed")
                    self._process.kill()
                    self._process.start()
            self._wait_for_batches(self.batches() + 2)
        except AssertionError as error:
            error.add_note(f"the driver's log ends with\n{self._sink.log.read_text()[-3000:]}")
            raise
        finally:
            self._driver.end()

    def batches(self) -> int:
        """How many micro-batches Spark has recorded as done."""
        commits = self._sink.folder / "checkpoint" / "commits"
        return max((int(each.name) + 1 for each in commits.glob("[0-9]*")), default=0)

    def _start(self) -> Driver:
        return self._sink.driver(once=False, rows_per_batch=20_000)

    def _wait_for_a_moment(self) -> None:
        """Wait for a random time: the kill is mostly within a batch, sometimes while the query starts."""
        if self._random.random() < 0.8:
            self._wait_for_batches(self.batches() + 1)
        pause = self._random.uniform(0, 3)
        over_at = time.monotonic() + pause
        wait_until(lambda: time.monotonic() >= over_at, "the moment comes", seconds=pause + 5)

    def _wait_for_batches(self, count: int) -> None:
        def is_there() -> bool:
            if not self._driver.is_alive:
                # Spark ends the query after four failures of a task.
                self._note("driver ended by itself")
                assert self.done["driver ended by itself"] <= ENDED_BY_ITSELF_MAX
                self._driver.end()
                self._driver = self._start()
            return self.batches() >= count

        wait_until(is_there, f"{count} batches are in", seconds=PROGRESS_SECONDS_MAX)

    def _kill_driver(self) -> None:
        what = self._random.choice(["all", "python", "jvm"])
        self._note(f"driver killed ({what})")
        self._driver.kill(what)
        self._driver = self._start()

    def _kill_executor(self) -> None:
        wait_until(lambda: self._cluster.kill_executor(self._random), "an executor runs")
        self._note("executor killed")

    def _note(self, event: str) -> None:
        self.done[event] += 1
        moment = time.strftime("%H:%M:%S", time.gmtime())
        print(f"{moment} {event}, {self.batches()} batches are in", flush=True)


def test_each_row_is_once_in_each_topic_whatever_dies(tmp_path: Path) -> None:
    with (
        broker_process(tmp_path / "data", settings=TWO_PHASE) as process,
        standalone_cluster(tmp_path, hosts=("127.0.0.1", "127.0.0.2")) as cluster,
    ):
        sink = Sink(process.bootstrap, tmp_path, master=cluster.master, settings=SETTINGS)
        feeder = Feeder(process.bootstrap, SOURCE, PARTITIONS)
        feeder.start()
        try:
            chaos = Chaos(process, cluster, sink, SEED)
            chaos.run(KILLS)
        finally:
            feeder.stop()
        sink.run(rows_per_batch=20_000)
        check(process.bootstrap, dict.fromkeys(feeder.acknowledged.values(), 1))
        print(
            f"{len(feeder.acknowledged):,} rows once in each of two topics, {chaos.batches()} batches;"
            f" {', '.join(f'{word} {count}' for word, count in sorted(chaos.done.items()))}"
        )

"""A process that merges is killed at any moment: the table has every change once when it is started again."""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from chaos.spark_driver import Driver
from pyspark.sql import SparkSession
from spark_support import wait_until
from test_merge_tables import some_changes, versions

from zhumq.pipelines.delta_table import read_delta

KILLS = int(os.environ.get("ZHUMQ_SPARK_KILLS", "1"))
SEED = int(os.environ.get("ZHUMQ_SPARK_SEED", "1"))
BATCHES_PER_KILL = 3
END_SECONDS_MAX = 240

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300 + 300 * KILLS)]


def test_a_table_survives_the_death_of_its_driver(spark: SparkSession, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    batches = [some_changes(draw, 12) for _ in range(BATCHES_PER_KILL * (KILLS + 1))]
    (tmp_path / "batches.json").write_text(json.dumps(batches))
    program = [str(Path(__file__).with_name("merge_driver.py"))]
    log = tmp_path / "driver.log"

    def commits() -> int:
        return len(list((tmp_path / "table/_delta_log").glob("0*.json")))

    for kill in range(KILLS):
        driver = Driver([str(tmp_path)], log, program=program)
        try:
            target = commits() + 1
            _wait_for(commits, target, driver, log)
            _wait_for_a_moment(draw)
            driver.kill(draw.choice(["all", "python", "jvm"]))
        finally:
            driver.end()
        print(f"kill {kill + 1}: {commits()} commits")
    driver = Driver([str(tmp_path)], log, program=program)
    try:
        assert driver.wait(END_SECONDS_MAX) == 0, log.read_text()[-2000:]
    finally:
        driver.end()
    assert commits() == len(batches)
    names = ("id", "name", "_valid_from", "_valid_to")
    found = read_delta(spark, str(tmp_path / "table")).select(*names).collect()
    changes = [each for batch in batches for each in batch]
    assert sorted((tuple(row) for row in found), key=repr) == versions(changes)


def _wait_for(commits: Callable[[], int], target: int, driver: Driver, log: Path) -> None:
    def is_there() -> bool:
        assert driver.is_alive, log.read_text()[-2000:]
        return commits() >= target

    wait_until(is_there, f"there are {target} commits", seconds=END_SECONDS_MAX)


def _wait_for_a_moment(draw: random.Random) -> None:
    at = time.monotonic() + draw.uniform(0, 1)
    wait_until(lambda: time.monotonic() >= at, "the moment comes", seconds=5)

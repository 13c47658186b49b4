"""`zhumq pipeline reset` killed with SIGKILL at each of its points: the pipeline is as it was, or as it is to be."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from chaos.spark_driver import Driver
from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, produce, wait_until

from zhumq.testing.broker import RunningBroker, broker

KILL_SECONDS_MAX = 240
TRIES_MAX = 5  # on a busy machine a worker of Spark may start too slowly

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

# Two sinks that share a read, and one whose query keeps a state: two folders to move.
PIPELINE = """\
name: reset
sources:
  records: {{topic: {topic}, from: earliest}}
steps:
  - {{name: once, deduplicate: records, by: [value], within: 1 hour}}
sinks:
  one: {{from: records, topic: {topic}-one}}
  two: {{from: records, topic: {topic}-two}}
  three: {{from: once, topic: {topic}-three}}
"""
SINKS = ("one", "two", "three")


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


def kill_at(point: str, words: list[str], folder: Path) -> None:
    """Start a command of pipelines, and kill all its processes when it is at this point."""
    log, mark = folder / f"{point}.log", folder / f"{point}.mark"
    program = [str(Path(__file__).with_name("stopping_points.py"))]
    environment = {"ZHUMQ_TEST_STOP_AT": point, "ZHUMQ_TEST_MARK": str(mark)}
    driver = Driver(words, log, program=program, environment=environment)
    try:

        def has_stopped() -> bool:
            assert driver.is_alive, log.read_text()[-3000:]
            return mark.exists()

        wait_until(has_stopped, f"it is at {point!r}", seconds=KILL_SECONDS_MAX)
        driver.kill("all")
    finally:
        driver.end()


@pytest.mark.parametrize(
    ("point", "is_reset"),
    [("planned", False), ("decided", True), ("moved one", True), ("carried out", True)],
)
def test_a_reset_that_is_killed_is_whole_or_not_at_all(
    spark: SparkSession, running: RunningBroker, tmp_path: Path, point: str, *, is_reset: bool
) -> None:
    topic = point.replace(" ", "-")
    pipelines = Pipelines(spark, running.bootstrap, tmp_path)
    file = pipelines.write("reset.yml", PIPELINE.format(topic=topic))
    create_topic(running.bootstrap, topic)
    produce(running.bootstrap, topic, [b"a", b"b"])
    pipelines.run(file, tries=TRIES_MAX)
    produce(running.bootstrap, topic, [b"c"])
    words = ["pipeline", "reset", file, "--yes"]
    words += ["--bootstrap", running.bootstrap, "--state-dir", str(tmp_path / "state")]
    kill_at(point, words, tmp_path)

    pipelines.run(file, tries=TRIES_MAX)
    interrupted = "reset: carried out a reset that was interrupted"
    assert (interrupted in pipelines.display.lines) == is_reset
    pipelines.run(file, tries=TRIES_MAX)  # the reset is over
    assert interrupted not in pipelines.display.lines
    times = 2 if is_reset else 1
    for sink in SINKS:
        found = Counter(each.value() for each in read_topic(running.bootstrap, f"{topic}-{sink}"))
        assert found == {b"a": times, b"b": times, b"c": 1}, sink
    checkpoints = tmp_path / "state" / "reset" / "checkpoints"
    assert not (checkpoints / "reset.json").exists()
    aside = list(checkpoints.glob("reset-*"))
    assert len(aside) == (1 if is_reset else 0)
    for each in aside:
        assert {found.name for found in each.iterdir()} == {"read-records", "three"}

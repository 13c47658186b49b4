"""Helpers of tests of the exactly-once sink on Spark: a driver to kill, and the audit of its topics."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.spark_driver import Driver
from spark_support import create_topic, produce, wait_until

from zhumq.spark.cluster_client import ClusterClient
from zhumq.spark.options import read_options
from zhumq.spark.reader import BatchReader

FOLDER = Path(__file__).parent
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
SOURCE, TARGETS = "source", ["out-a", "out-b"]
PARTITIONS = 2
RUN_SECONDS_MAX = 200.0


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """The values of a topic at read_committed."""
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "columns": "value",
        "kafka.isolation.level": "read_committed",
    }
    reader = BatchReader(read_options(given, streaming=False))
    return [
        value
        for partition in reader.partitions()
        for each in reader.read(partition)
        for value in each.column("value").to_pylist()
    ]


def open_transactions(bootstrap: str) -> list[str]:
    with ClusterClient(bootstrap) as client:
        return client.open_transactions("zhumq-spark.")


class Sink:
    """A stream into two topics; its drivers are processes."""

    def __init__(self, bootstrap: str, folder: Path, **work: Any) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.log = folder / "driver.log"
        self._work = {
            "bootstrap": bootstrap,
            "source": SOURCE,
            "targets": TARGETS,
            "checkpoint": str(folder / "checkpoint"),
            **work,
        }
        for topic in (SOURCE, *TARGETS):
            create_topic(bootstrap, topic, PARTITIONS)

    def feed(self, rows: int) -> None:
        """Rows for each partition of the source."""
        for partition in range(PARTITIONS):
            values = (b"%d/%d" % (partition, number) for number in range(rows))
            produce(self.bootstrap, SOURCE, values, partition=partition)

    def driver(self, *, stop_at: str = "", **work: Any) -> Driver:
        environment = {
            "ZHUMQ_TEST_STOP_AT": stop_at,
            "ZHUMQ_TEST_MARKS": str(self.marks),
            "PYTHONPATH": str(FOLDER),
        }
        content = {**self._work, **work}
        # The executors of a cluster do not get the driver's environment.
        of_executors = {f"spark.executorEnv.{name}": each for name, each in environment.items()}
        content["settings"] = {**content.get("settings", {}), **of_executors}
        words = [json.dumps(content)]
        program = [str(FOLDER / "exactly_once_driver.py")]
        return Driver(words, self.log, program=program, environment=environment)

    def run(self, *, stop_at: str = "", **work: Any) -> None:
        """A driver that runs to its end."""
        driver = self.driver(stop_at=stop_at, **work)
        try:
            assert driver.wait(RUN_SECONDS_MAX) == 0, self.log.read_text()[-6000:]
        finally:
            driver.end()

    def wait_for_mark(self, name: str, driver: Driver) -> int:
        """The pid of the process that stopped at a point."""

        def is_there() -> bool:
            assert driver.is_alive, self.log.read_text()[-6000:]
            mark = self.marks / name
            return mark.exists() and bool(mark.read_text())

        wait_until(is_there, f"the sink comes to {name}", seconds=RUN_SECONDS_MAX)
        return int((self.marks / name).read_text())

    def audit(self, rows: int) -> None:
        """Each row is in each topic once, at read_committed, and nothing is open."""
        expected = {
            b"%d/%d" % (partition, number)
            for partition in range(PARTITIONS)
            for number in range(rows)
        }
        check(self.bootstrap, dict.fromkeys(expected, 1))


def check(bootstrap: str, expected: Mapping[bytes, int]) -> None:
    """Check the values of both topics, and that no transaction is open."""
    wait_until(lambda: not open_transactions(bootstrap), "no transaction is open")
    for topic in TARGETS:
        found = Counter(committed(bootstrap, topic))
        twice = sorted(value for value, count in found.items() if count > 1)
        missing = sorted(set(expected) - set(found))
        assert not twice, f"{topic}: {len(twice)} rows are in twice, first {twice[0]!r}"
        assert not missing, f"{topic}: {len(missing)} rows are missing, first {missing[0]!r}"
        assert found == expected

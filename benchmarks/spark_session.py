"""The Spark session of the benchmarks with both connectors, and the CPU and memory of its processes."""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pyspark.sql import SparkSession

from benchmarks.server import CLOCK_TICKS_PER_S, REPOSITORY
from zhumq.spark.session import spark_session

FETCH = REPOSITORY / "benchmarks" / "spark_kafka" / "fetch"
SAMPLE_INTERVAL_S = 0.25
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The roles of processes.
JVM = "JVM, driver and executor"
WORKER = "Python worker"
DRIVER = "Python driver"
BROKER = "broker"
ROLES = (JVM, WORKER, DRIVER, BROKER)


def connector_jars() -> str:
    """The jars of Spark's Kafka connector, fetched with Maven unless they exist."""
    fetched = subprocess.run([FETCH], check=True, stdout=subprocess.PIPE, text=True)
    return ",".join(str(each) for each in sorted(Path(fetched.stdout.strip()).glob("*.jar")))


@contextmanager
def open_session(
    name: str, *, jars: str = "", memory: str = "2g", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session on this machine; `memory` is the heap of the one JVM that is driver and executor."""
    chosen = {"spark.driver.memory": memory, **({"spark.jars": jars} if jars else {})}
    session = spark_session(name, master="local[2]", settings={**chosen, **(settings or {})})
    try:
        yield session
    finally:
        session.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    words: str
    cpu_seconds: float  # including the children it has waited for
    rss_bytes: int

    @property
    def role(self) -> str:
        program = self.words.split("\0")[0]
        if program.rpartition("/")[2] == "java":
            return JVM
        return WORKER if "pyspark.daemon" in self.words or "_runner" in self.words else DRIVER


def processes_below(pid: int) -> list[Process]:
    """A process and all its descendants."""
    found = {each.pid: each for each in _processes()}
    tree = [found[pid]] if pid in found else []
    for process in tree:  # grows while it is walked
        tree += [each for each in found.values() if each.parent == process.pid]
    return tree


def cpu_seconds_below(pid: int) -> float:
    return sum(each.cpu_seconds for each in processes_below(pid))


def _processes() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue  # It has ended.
        yield Process(
            pid=int(folder.name),
            parent=int(fields[1]),
            words=words,
            cpu_seconds=sum(map(int, fields[11:15])) / CLOCK_TICKS_PER_S,
            rss_bytes=int(fields[21]) * PAGE_BYTES,
        )


class PeakMemory:
    """Samples the resident memory of this process and all below it, for as long as it is open."""

    def __init__(self, *, broker: int) -> None:
        self._broker = broker  # its process
        self.largest: dict[str, int] = {}  # the peak of one process, by role
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLE_INTERVAL_S):
            for each in processes_below(os.getpid()):
                role = BROKER if each.pid == self._broker else each.role
                self.largest[role] = max(self.largest.get(role, 0), each.rss_bytes)

"""Pipelines on a server of Spark Connect: its client sends plans and has no JVM."""

import importlib.util
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from zhumq.pipelines.causes import explain
from zhumq.pipelines.checkpoints import Start
from zhumq.pipelines.read_checkpoint import ReadCheckpoint
from zhumq.pipelines.sharing import Reads
from zhumq.pipelines.sinks import all_sinks
from zhumq.pipelines.spec import Pipeline, TopicSink, TopicSource
from zhumq.pipelines.stopping import PipelineFailed
from zhumq.spark.ranges import Offsets
from zhumq.spark.session import SERVER_SETTINGS

SCHEME: Final = "sc"
PORT: Final = 15002  # Spark's default
REACHED_SECONDS_MAX: Final = 5.0
PACKAGE: Final = "grpc_status"  # what PySpark's client needs beyond zhumq[spark]
_WHY_ALONE: Final = "a run on Spark Connect has a read for each sink"
_INSTEAD: Final = "run it on the cluster of that server, with its own master"


def is_connect(master: str) -> bool:
    return master.startswith(f"{SCHEME}://")


def check_runs_on_connect(pipeline: Pipeline) -> None:
    """Raises SpecInvalid for what needs the JVM of a driver: tables, files, databases, and Python for each batch."""
    first = pipeline.sinks[0].mark
    if not pipeline.is_stream:
        raise first.wrong("trigger: batch does not run on Spark Connect: use available-now")
    for source in pipeline.sources:
        if not isinstance(source, TopicSource):
            raise source.mark.wrong(f"is no topic, so it is not read on Spark Connect: {_INSTEAD}")
    for sink in pipeline.sinks:
        if not isinstance(sink, TopicSink):
            raise sink.mark.wrong(f"is no topic, so Spark Connect does not write it: {_INSTEAD}")


@contextmanager
def connect_session(
    name: str, *, master: str, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session of a server. Raises PipelineFailed if there is none, or if it refuses a setting."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise PipelineFailed(f"{master} needs more packages: pip install 'pyspark[connect]'")
    _check_reachable(master)
    try:
        spark = SparkSession.Builder().remote(master).appName(name).create()
    except PySparkException as error:
        raise PipelineFailed(f"no session at {master}: {explain(error)}") from None
    try:
        for key, value in {**SERVER_SETTINGS, **settings}.items():
            try:
                spark.conf.set(key, value)
            except PySparkException as error:
                raise PipelineFailed(
                    f"the server of {master} does not take {key}: {explain(error)}"
                ) from None
        yield spark
    finally:
        spark.stop()


def _check_reachable(master: str) -> None:
    """Spark's client tries for ten minutes to reach a server that is not there."""
    address = urlsplit(master.partition(";")[0])
    try:
        host, port = address.hostname or "", address.port or PORT
        socket.create_connection((host, port), timeout=REACHED_SECONDS_MAX).close()
    except (OSError, ValueError) as error:
        raise PipelineFailed(f"no server of Spark Connect at {master}: {error}") from None


def reads_alone(pipeline: Pipeline) -> Reads:
    """How the sinks read: a shared read calls Python of this process for each batch, which the server does not have."""
    return Reads(shared={}, own={sink.name: _WHY_ALONE for sink in all_sinks(pipeline)})


@dataclass(frozen=True, slots=True)
class ServerCheckpoints:
    """A folder of checkpoints that the server keeps and this process cannot read."""

    path: str

    def finish_reset(self) -> bool:
        return False

    def starts(self) -> Mapping[str, Start]:
        return {}

    def inside(self, name: str) -> str:
        return f"{self.path}/{name}"

    def batch_under_way(self, folder: str) -> tuple[Offsets | None, Offsets] | None:
        del folder
        return None

    def read_of(self, source: str) -> ReadCheckpoint:
        raise AssertionError(f"the read of {source} is not shared")

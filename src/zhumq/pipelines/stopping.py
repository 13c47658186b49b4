"""How a run ends early: stop requests, and the error of a run that failed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from zhumq.model.errors import ZhumqError

POLL_SECONDS: Final = 0.2


class PipelineFailed(ZhumqError):
    """A run that failed."""


def is_alive(spark: SparkSession) -> bool:
    """Whether the process of Spark still answers."""
    try:
        spark.catalog.currentDatabase()
    except (PySparkException, Py4JError, OSError):
        return False
    return True


@dataclass(slots=True)
class StopRequest:
    """A signal handler calls ask(): once to stop after the batch, twice to stop at once."""

    asked: threading.Event = field(default_factory=threading.Event)
    hurried: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        if self.asked.is_set():
            self.hurried.set()
        self.asked.set()

    @contextmanager
    def cancelling(self, spark: SparkSession) -> Iterator[None]:
        """Cancel Spark's jobs as soon as a stop is requested: a batch run cannot be continued later."""
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                if self.asked.wait(POLL_SECONDS):
                    spark.sparkContext.cancelAllJobs()
                    # A query may start another job after the cancellation.
                    over.wait(POLL_SECONDS)

        watcher = threading.Thread(target=watch, name="stop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

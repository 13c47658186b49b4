"""`zhumq` that stops for good at one point of a reset or of a run with a step `enrich`, until it is killed."""

import os
import threading
from pathlib import Path
from typing import Any

from zhumq.cli import pipeline_stream
from zhumq.cli.main import main
from zhumq.pipelines import refreshed_tables, shared_read
from zhumq.pipelines.checkpoints import Checkpoints, Reset
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.refreshing import Versions

STOP_AT = os.environ["ZHUMQ_TEST_STOP_AT"]
MARK = Path(os.environ["ZHUMQ_TEST_MARK"])
BATCH = 1  # the one that a run with `enrich` stops in
VERSION = BATCH + 1  # of its table: the first one is read before the first batch


def stop(point: str) -> None:
    """Leave a mark, and go no further."""
    if point == STOP_AT:
        MARK.touch()
        threading.Event().wait()


class StoppingFolder(Folder):
    """Stops behind the first move of a reset, or when everything is done but the end of its journal."""

    def move(self, source: str, target: str) -> None:
        super().move(source, target)
        stop("moved one")

    def remove(self, name: str) -> None:
        if name == "reset.json":
            stop("carried out")
        super().remove(name)


class StoppingCheckpoints(Checkpoints):
    def __post_init__(self) -> None:
        self._folder = StoppingFolder(self.spark, self.path)

    def decide(self, reset: Reset) -> None:
        stop("planned")
        super().decide(reset)
        stop("decided")


class StoppingVersions(Versions):
    """Stops when a copy of the table is written, and not known yet."""

    def add(self) -> None:
        if self.following == VERSION:
            stop("copied")
        super().add()


write_batch = shared_read.write_batch


def write_and_stop(sink: Any, rows: Any, context: Any, **facts: Any) -> Any:
    """Stops between the sinks of a batch."""
    written = write_batch(sink, rows, context, **facts)
    if sink.name == "first" and facts["batch"] == BATCH:
        stop("first sink written")
    return written


if __name__ == "__main__":
    pipeline_stream.Checkpoints = StoppingCheckpoints  # type: ignore[misc]
    refreshed_tables.Versions = StoppingVersions  # type: ignore[misc]
    shared_read.write_batch = write_and_stop
    main()

"""`zhumq pipeline run` that stops before or behind the commit of an Iceberg table, until it is killed."""

import os
import threading
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from zhumq.cli.main import main
from zhumq.pipelines import iceberg_table

STOP_AT = int(os.environ["ZHUMQ_TEST_STOP_AT"])  # the number of the batch
STOP_IN = os.environ["ZHUMQ_TEST_STOP_IN"]  # the name of the table
STOP_WHEN = os.environ["ZHUMQ_TEST_STOP_WHEN"]  # before the commit, or behind it
MARK = Path(os.environ["ZHUMQ_TEST_MARK"])
commit = iceberg_table.commit


def commit_and_stop(table: Table, written: Any, *, batch: int, **facts: Any) -> None:
    stops = batch == STOP_AT and table.name()[-1] == STOP_IN
    if stops and STOP_WHEN == "before":
        stop()
    commit(table, written, batch=batch, **facts)
    if stops:
        stop()


def stop() -> None:
    """Leave a mark, and go no further."""
    MARK.touch()
    threading.Event().wait()


if __name__ == "__main__":
    iceberg_table.commit = commit_and_stop
    main()

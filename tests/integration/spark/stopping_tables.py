"""`zhumq pipeline run` that stops behind the commit of a table, before Spark has its batch, until it is killed."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zhumq.cli.main import main
from zhumq.pipelines.delta_log import Action, DeltaLog

STOP_AT = int(os.environ["ZHUMQ_TEST_STOP_AT"])  # the number of the batch
STOP_IN = os.environ["ZHUMQ_TEST_STOP_IN"].split()  # names of tables
MARKS = Path(os.environ["ZHUMQ_TEST_MARKS"])
commit = DeltaLog.commit


def commit_and_stop(log: DeltaLog, snapshot: Any, actions: Iterable[Action], **facts: Any) -> bool:
    """Commit; if that was the batch of a sink's table, leave a mark with its name, and in some go no further."""
    known = list(actions)
    done = commit(log, snapshot, known, **facts)
    name = log.path.rpartition("/")[2]
    batches = [each["txn"]["version"] for each in known if "txn" in each]
    # The deletes of a merge are a table, too, which is committed before.
    if done and name != "deletes" and STOP_AT in batches:
        (MARKS / name).touch()
        if name in STOP_IN:
            threading.Event().wait()
    return done


if __name__ == "__main__":
    DeltaLog.commit = commit_and_stop  # type: ignore[method-assign]
    main()

"""Which tests a worker of pytest-xdist gets together: those of a file, and all that share the Spark session."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

WITH_THE_SPARK_SESSION = "tests/integration/spark"


class LoadFilesAndSpark(LoadFileScheduling):
    """As `--dist loadfile`, but one worker has all files of Spark: each session is a Java process, which takes a core
    for ten seconds to start, and longer to become fast."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        folder, _, _ = file.rpartition("/")
        return folder if folder == WITH_THE_SPARK_SESSION else file


def scheduler(config: pytest.Config, log: Producer) -> LoadFilesAndSpark | None:
    """With another --dist: None, and xdist's own scheduler for it is used."""
    return LoadFilesAndSpark(config, log) if config.getoption("dist") == "loadfile" else None

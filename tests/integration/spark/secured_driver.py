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


def copy(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
    """A batch into the topic, a stream from it into the other one, and the count of that."""
    topic, to = options["topic"], f"{options['topic']}-copy"
    secured = {name: value for name, value in options.items() if name != "topic"}
    numbers = spark.range(ROWS, numPartitions=2).select(col("id").cast("string").alias("value"))
    numbers.write.format("zhumq").options(**options).mode("append").save()
    query = (
        spark.readStream.format("zhumq")
        .options(**secured, subscribe=topic, startingOffsets="earliest")
        .load()
        .select("value")
        .writeStream.format("zhumq")
        .options(**secured, topic=to, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.read.format("zhumq").options(**secured, subscribe=to).load().count() == ROWS


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
    for options in given:
        copy(spark, options, folder / f"checkpoint-{options['topic']}")
    save_pages(spark, folder / "pages")
    spark.stop()


if __name__ == "__main__":
    main()

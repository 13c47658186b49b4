"""A driver for tests: a stream from one topic to several, with the exactly-once sink. Its argument is JSON."""

import json
import sys
from dataclasses import dataclass, field

from pyspark.sql import functions
from stopping_sink import StoppingSource, with_trouble

from zhumq.spark.session import spark_session

SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.python.unix.domain.socket.enabled": "true",
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the driver does."""

    bootstrap: str
    source: str
    targets: list[str]
    checkpoint: str
    master: str = "local[2]"
    rows_per_batch: int = 500
    once: bool = True
    settings: dict[str, str] = field(default_factory=dict)


def run(work: Work) -> None:
    spark = spark_session("sink", master=work.master, settings={**SETTINGS, **work.settings})
    spark.dataSource.register(StoppingSource)
    options = {
        "kafka.bootstrap.servers": work.bootstrap,
        "subscribe": work.source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(work.rows_per_batch),
    }
    rows = spark.readStream.format("zhumq").options(**options).load().select("key", "value")
    rows = rows.mapInArrow(with_trouble, rows.schema)
    topics = functions.array(*(functions.lit(topic) for topic in work.targets))
    writer = (
        rows.withColumn("topic", functions.explode(topics))
        .writeStream.format("stopping")
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", work.checkpoint)
    )
    if work.once:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    run(Work(**json.loads(sys.argv[1])))

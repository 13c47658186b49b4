"""Spark's own Kafka connector over a secured listener; its topic exists already, since it has no administration."""

import os
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from steps import MECHANISM, RECORDS, WAIT_S, Arguments, arguments, equal, numbers, run

from zhumq.spark.session import spark_session

LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Spark:
    def __init__(self, given: Arguments) -> None:
        self.given = given
        self.options = options(given)
        self.session = spark_session(
            "conformance",
            master="local[2]",
            settings={
                "spark.jars": os.environ["JARS"],
                "spark.driver.memory": "512m",
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "2",
            },
        )

    def produce(self) -> None:
        self.send(0, RECORDS)

    def send(self, first: int, count: int) -> None:
        rows = self.session.range(first, first + count, numPartitions=2)
        text = col("id").cast("string")
        written = rows.select(text.alias("key"), text.alias("value")).write.format("kafka")
        written.options(**self.options, topic=self.given.topic).save()

    def consume(self) -> None:
        reader = self.session.read.format("kafka").options(**self.options)
        found = reader.option("subscribe", self.given.topic).load().collect()
        equal(sorted(numbers(0, RECORDS)), sorted(bytes(row.value) for row in found))

    def group(self) -> None:
        """A streaming query that is started again reads what is new: its positions are in the checkpoint."""
        with tempfile.TemporaryDirectory(prefix="secure-spark-") as folder:
            equal(RECORDS, self.query(Path(folder)))
            self.send(RECORDS, 1)
            equal(1, self.query(Path(folder)))

    def query(self, checkpoint: Path) -> int:
        seen: list[int] = []

        def each_batch(rows: DataFrame, _: int) -> None:
            seen.append(rows.count())

        reader = self.session.readStream.format("kafka").options(**self.options)
        named = {"subscribe": self.given.topic, "kafka.group.id": f"{self.given.topic}-query"}
        stream = reader.options(**named, startingOffsets="earliest").load()
        writer = stream.writeStream.foreachBatch(each_batch).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        assert query.awaitTermination(WAIT_S), "the query did not end"
        return sum(seen)

    def refused(self) -> None:
        reader = self.session.read.format("kafka").options(
            **options(self.given.with_wrong_credentials())
        )
        message = "no error"
        try:
            reader.option("subscribe", self.given.topic).load().collect()
        except Exception as error:  # PySpark raises various types
            message = str(error)
        expected = f"{'Sasl' if self.given.uses_sasl else 'Ssl'}AuthenticationException"
        assert expected in message, message


def options(given: Arguments) -> dict[str, Any]:
    """Options of the connector: the Java client's settings, each with a prefix."""
    found = {
        "bootstrap.servers": given.bootstrap,
        "security.protocol": given.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(given.ca),
    }
    if given.uses_sasl:
        found |= {
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{LOGIN} required username="{given.user}" password="{given.password}";',
        }
    elif given.certificate is not None and given.key is not None:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": given.certificate.read_text(),
            "ssl.keystore.key": given.key.read_text(),
        }
    return {f"kafka.{name}": value for name, value in found.items()}


if __name__ == "__main__":
    run(Spark(arguments()))

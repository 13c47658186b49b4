"""Merges numbered batches into a table until it is killed; started again, it repeats the last one, as Spark does."""

import json
import sys
from pathlib import Path

from zhumq.pipelines.merge_table import MergeTable
from zhumq.spark.session import spark_session

CHANGES = "id INT, name STRING, _sequence BIGINT, _deleted BOOLEAN"


def main() -> None:
    folder = Path(sys.argv[1])
    batches = json.loads((folder / "batches.json").read_text())
    begun = folder / "begun"
    spark = spark_session(
        "merges",
        master="local[1]",
        settings={"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"},
    )
    table = MergeTable(spark, str(folder / "table"), keys=("id",), scd_type=2)
    for number in range(int(begun.read_text()) if begun.exists() else 0, len(batches)):
        begun.write_text(str(number))
        values = [tuple(each) for each in batches[number]]
        table.merge(spark.createDataFrame(values, CHANGES), query="q", batch=number)
    spark.stop()


if __name__ == "__main__":
    main()

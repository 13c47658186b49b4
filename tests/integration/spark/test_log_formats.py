"""A corpus of log formats, one in each file: inspect finds time, level, service and message of each."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from zhumq.pipelines.inspect import parse_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CORPUS = Path(__file__).with_name("log_formats")
RECEIVED = "2026-01-01 08:00:05"  # the timestamp of every record
SCHEMA = "number INT, key BINARY, value BINARY, topic STRING"


def corpus() -> dict[str, list[dict[str, Any]]]:
    return {
        path.stem: json.loads(path.read_text())["records"] for path in sorted(CORPUS.glob("*.json"))
    }


def parsed(spark: SparkSession, lines: list[tuple[str | None, str]]) -> list[Any]:
    """The result of parse_lines for keys and lines, in their order."""
    rows = [
        (number, None if key is None else key.encode(), line.encode(), "logs")
        for number, (key, line) in enumerate(lines)
    ]
    frame: DataFrame = spark.createDataFrame(rows, SCHEMA)
    frame = frame.withColumn("timestamp", F.to_timestamp(F.lit(RECEIVED)))
    found = parse_lines(frame).withColumn("micros", F.unix_micros("moment"))
    return found.orderBy("number").collect()


def micros(moment: str) -> int:
    since = datetime.fromisoformat(moment).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


@pytest.mark.thorough
def test_every_format_of_the_corpus_is_understood(spark: SparkSession) -> None:
    formats = corpus()
    assert len(formats) >= 30
    records = [(name, record) for name, each in formats.items() for record in each]
    found = parsed(spark, [(record.get("key", "shop"), record["line"]) for _, record in records])
    wrong = {}
    for (name, record), row in zip(records, found, strict=True):
        expected = (
            micros(record["time"]), record["level"], record["service"], record["message"],
        )  # fmt: skip
        if (row.micros, row.level, row.service, row.message) != expected or row.format is None:
            wrong[name, record["line"]] = (row.moment, row.level, row.service, row.message)
    assert wrong == {}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"time": "2026-01-01T08:00:00Z", "level": "ERROR", "mess', "format"),
        ('{"level": "ERROR", "message": "without a time"}', "format"),
        ('level=info msg="without a time"', "format"),
        ("Segmentation fault (core dumped)", "format"),
        ("", "format"),
        ("2026-13-41T08:00:00Z ERROR orders: no such day", "moment"),
        ('{"time": "noon", "level": "ERROR", "message": "x"}', "moment"),
        ('{"time": "2026-01-01T08:00:00Z", "level": "loud", "message": "x"}', "level"),
    ],
)
def test_what_cannot_be_understood_is_left_to_the_rules(
    spark: SparkSession, line: str, column: str
) -> None:
    (row,) = parsed(spark, [("shop", line)])
    assert row[column] is None


def test_a_key_that_comes_twice_in_a_line_does_not_fail_the_run(spark: SparkSession) -> None:
    lines = [
        '{"time": "2026-01-01T08:00:00Z", "level": "info", "msg": "a", "msg": "b"}',
        "time=2026-01-01T08:00:00Z level=info msg=a msg=b",
    ]
    assert [row.level for row in parsed(spark, [("shop", line) for line in lines])] == ["INFO"] * 2


LONG = 100_000


WILD_LINES = (
    'time=2026-01-01T08:00:00Z level=info msg="' + '\\"' * LONG + '"',
    'time=2026-01-01T08:00:00Z level=info msg="' + "x" * LONG,
    '<12>1 2026-01-01T08:00:00Z web1 orders - - [a b="' + "x\\]" * LONG + '"] slow',
    "2026-01-01T08:00:00Z INFO 7 --- " + "[x] " * LONG + "shop : slow",
    "2026-01-01 08:00:00 10.0.0.5 GET /items/0 -" + " 404" * LONG,
    "[2026-01-01 08:00:00] INFO " + "(" * LONG,
    "[2026-01-01 08:00:00] INFO (" + "x" * LONG,
    "[Thu Jan 01 08:00:00 2026] [core:info] " + "[x] " * LONG,
    "Traceback (most recent call last):" + "\n x" * LONG,
    "10.0.0.7 - - [" + "x " * LONG,
    '{"time": 1.5E99, "level": "info", "msg": "' + "x" * LONG + '"}',
    "at " * LONG,
    "[" * LONG,
    "-" * LONG,
)


@pytest.mark.thorough
def test_long_and_wild_lines_do_not_fail_the_run(spark: SparkSession) -> None:
    found = parsed(spark, [("shop", line) for line in WILD_LINES])
    assert len(found) == len(WILD_LINES)

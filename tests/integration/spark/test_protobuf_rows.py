"""Topics of Protobuf, and schemas that refer to others, as columns: in pipelines and in SQL, with real Spark."""

import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import DataFrame, SparkSession
from spark_support import create_topic, produce

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schemas import register_schema
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.document import parse_document
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.views import Views, build_steps, new_session
from zhumq.schemas.schema import Reference, SchemaType
from zhumq.sql.attached import TopicTables
from zhumq.sql.catalog import Archives
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
ORDER = """syntax = "proto3"; package shop;
import "shop/money.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/timestamp.proto";
message Order {
  string id = 1; Money total = 2; google.protobuf.Timestamp at = 3; google.protobuf.Duration took = 4;
  map<string, Money> parts = 5; Colour colour = 6; uint64 large = 7; bytes raw = 8; repeated float ratios = 9;
}
enum Colour { RED = 0; BLUE = 1; }
"""
NEWER = ORDER.replace("string id = 1;", "string id = 1; string note = 10;")
# id "a", total 5, at 1 s, took 2 s, parts {"x": 7}, BLUE, large 300, raw 0xff, ratios [0.5]
FIRST = (
    b"\x0a\x01a\x12\x02\x08\x05\x1a\x02\x08\x01\x22\x02\x08\x02\x2a\x07\x0a\x01x\x12\x02\x08\x07"
    b"\x30\x01\x38\xac\x02\x42\x01\xff\x4a\x04\x00\x00\x00\x3f"
)
SECOND = b"\x0a\x01b\x52\x05hello"


@pytest.fixture(scope="module")
def running(spark: SparkSession) -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


def built(
    spark: SparkSession, file: Path, step: str, brokers: Brokers | None, *values: bytes | None
) -> Views:
    text = (
        "name: orders\ntrigger: batch\nsources: {records: {topic: orders}}\ndead_letters: {topic: bad}\n"
        f"sinks: {{all: {{console: 5}}}}\nsteps:\n  - {step}\n"
    )
    pipeline = parse_pipeline(parse_document(text.encode(), str(file)), str(file), {})
    rows = [(b"k", value, "orders", 0, offset, NOON) for offset, value in enumerate(values)]
    records: DataFrame = spark.createDataFrame(rows, RECORD)
    return build_steps(new_session(spark), pipeline, {"records": records}, brokers)


def reasons_of(views: Views) -> list[str]:
    assert views.bad_rows is not None
    headers = [{each["key"]: bytes(each["value"]).decode() for each in row["headers"]} for row in views.bad_rows.collect()]  # fmt: skip
    return [each["zhumq.reason"] for each in sorted(headers, key=lambda each: each["zhumq.offset"])]


def framed(id_: int, data: bytes) -> bytes:
    return struct.pack(">BI", 0, id_) + data


def test_messages_of_a_proto_file_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "order.proto").write_text(ORDER)
    (tmp_path / "shop/money.proto").write_text(MONEY)
    step = "{name: parsed, parse: records, format: protobuf, schema_file: order.proto, on_change: add_columns}"
    views = built(spark, tmp_path / "f.yml", step, None, FIRST, SECOND, b"\x0a", None)
    first, second = views.frames["parsed"].orderBy("offset").collect()
    assert (first["id"], first["total"]["cents"], first["parts"]["x"]["cents"]) == ("a", 5, 7)
    assert first["at"] == datetime.fromtimestamp(1)  # noqa: DTZ006 - as Spark gives it
    assert (first["took"], first["colour"], first["large"]) == (timedelta(seconds=2), "BLUE", 300)
    assert (bytes(first["raw"]), first["ratios"], first["_added"]) == (b"\xff", [0.5], None)
    # The file does not have the name of the field.
    assert (second["id"], second["total"], second["_added"]) == ("b", None, {"10": "aGVsbG8="})
    assert reasons_of(views) == [
        "not Protobuf of the given schema: it is no shop.Order",
        "not Protobuf of the given schema",
    ]


@pytest.mark.thorough
def test_messages_of_the_registry_are_read_by_a_step_and_by_queries(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    uses = [Reference(name="shop/money.proto", subject="money", version=1)]
    with ClusterConnection(running.bootstrap) as connection:
        register_schema(connection, "money", MONEY, type_=SchemaType.PROTOBUF)
        one, two = (
            register_schema(
                connection, "orders-value", text, type_=SchemaType.PROTOBUF, references=uses
            ).id
            for text in (ORDER, NEWER)
        )
    values = [
        framed(one, b"\0" + FIRST),
        framed(two, b"\0" + SECOND),
        framed(two, b"\2\x06"),
        b"plain",
    ]
    step = "{name: parsed, parse: records, format: protobuf, registry: {subject: orders-value, version: 1}, on_change: add_columns}"
    brokers = Brokers(bootstrap=running.bootstrap)
    views = built(spark, tmp_path / "f.yml", step, brokers, *values)
    rows = views.frames["parsed"].selectExpr("id", "total.cents", "_added").collect()
    assert sorted(map(tuple, rows)) == [("a", 5, None), ("b", None, {"note": "hello"})]
    reasons = [
        "not Protobuf of the given schema: the schema has no message at [3]",
        "it does not begin with the id of a schema",
    ]
    assert reasons_of(views) == reasons
    create_topic(running.bootstrap, "orders", 1)
    produce(running.bootstrap, "orders", [*values, None])
    tables = TopicTables(spark, brokers, Archives())
    query = "SELECT id, note, took > INTERVAL 1 SECOND AS slow, _error FROM orders ORDER BY offset"
    assert [tuple(row) for row in tables.sql(query).collect()] == [
        ("a", "", True, None), ("b", "hello", None, None),
        *((None, None, None, reason) for reason in reasons), (None, None, None, None),
    ]  # fmt: skip


@pytest.mark.thorough
def test_avro_that_refers_to_other_schemas_is_a_table(
    spark: SparkSession, running: RunningBroker
) -> None:
    def record(name: str, field: str, type_: Any) -> str:
        return json.dumps(
            {"type": "record", "name": name, "fields": [{"name": field, "type": type_}]}
        )

    with ClusterConnection(running.bootstrap) as connection:
        register_schema(connection, "price", record("Price", "cents", "long"))
        uses = [Reference(name="Price", subject="price", version=1)]
        text = record("Bill", "total", "Price")
        id_ = register_schema(connection, "bills-value", text, references=uses).id
    create_topic(running.bootstrap, "bills", 1)
    produce(running.bootstrap, "bills", [framed(id_, b"\x0a")])
    tables = TopicTables(spark, Brokers(bootstrap=running.bootstrap), Archives())
    rows = tables.sql("SELECT total.cents, _error FROM bills").collect()
    assert [tuple(row) for row in rows] == [(5, None)]

"""Topics whose messages have a JSON Schema, of a file or of the registry, as columns of a pipeline's step."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import SparkSession

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schemas import register_schema
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.message_schemas import MessageSchema
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.views import Views, build_steps, new_session
from zhumq.schemas.schema import Reference, SchemaType
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MONEY = json.dumps({"type": "object", "properties": {"cents": {"type": "integer"}}})
ORDER = json.dumps(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "total": {"$ref": "money.json"}},
    }
)
REGISTERED = "registry: {subject: orders-value}, on_change: add_columns"


@pytest.fixture(scope="module")
def running(spark: SparkSession) -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


def pipeline_of(file: Path, more: str) -> Pipeline:
    text = (
        "name: orders\ntrigger: batch\nsources: {records: {topic: orders}}\ndead_letters: {topic: bad}\n"
        "sinks: {all: {console: 5}}\nsteps:\n"
        f"  - {{name: parsed, parse: records, format: json, {more}}}\n"
    )
    return parse_pipeline(parse_document(text.encode(), str(file)), str(file), {})


def built(
    spark: SparkSession,
    pipeline: Pipeline,
    brokers: Brokers | None,
    *values: bytes | None,
    schemas: dict[str, MessageSchema] | None = None,
) -> Views:
    rows = [(b"k", value, "orders", 0, offset) for offset, value in enumerate(values)]
    records = spark.createDataFrame(
        rows, "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"
    )
    sources = {"records": records}
    return build_steps(new_session(spark), pipeline, sources, brokers, schemas=schemas)


def bad_values(views: Views) -> list[bytes | None]:
    assert views.bad_rows is not None
    return [row["value"] and bytes(row["value"]) for row in views.bad_rows.collect()]


def test_messages_of_a_schema_file_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(
        '{"properties": {"id": {"type": "integer"}, "tags": {"items": {"type": "string"}, "type": "array"}}}'
    )
    pipeline = pipeline_of(tmp_path / "f.yml", "schema_file: order.json, on_change: add_columns")
    good, bad = b'{"id": 7, "tags": ["a"], "note": "new"}', b'{"id": "seven"}'
    views = built(spark, pipeline, None, good, bad, None)
    (row,) = views.frames["parsed"].collect()
    assert (row["id"], row["tags"], row["_added"]) == (7, ["a"], {"note": "new"})
    assert views.counters.take(views.frames["parsed"]) == {"parsed.broken": 2, "parsed.changed": 1}
    assert views.counters.changes == {"parsed": "fields that the schema does not have: note"}
    assert sorted(bad_values(views), key=repr) == [None, bad]


@pytest.mark.thorough
def test_messages_of_the_registry_are_read_with_and_without_the_id_of_their_schema(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    with ClusterConnection(running.bootstrap) as connection:
        register_schema(connection, "money", MONEY, type_=SchemaType.JSON)
        uses = [Reference(name="money.json", subject="money", version=1)]
        id_ = register_schema(
            connection, "orders-value", ORDER, type_=SchemaType.JSON, references=uses
        ).id
    pipeline = pipeline_of(tmp_path / "f.yml", REGISTERED)
    schemas: dict[str, MessageSchema] = {}
    first = struct.pack(">BI", 0, id_) + b'{"id": 1, "total": {"cents": 5}}'
    second = b'{"id": 2, "late": true}'
    broken = struct.pack(">BI", 0, id_) + b"{"
    brokers = Brokers(bootstrap=running.bootstrap)
    views = built(spark, pipeline, brokers, first, second, broken, schemas=schemas)
    rows = views.frames["parsed"].selectExpr("id", "total.cents", "_added").collect()
    assert sorted(map(tuple, rows)) == [(1, 5, None), (2, None, {"late": "true"})]
    # The dead letter is the message as it came.
    assert bad_values(views) == [broken]
    # A shared read builds its steps for each micro-batch, and asks the registry once.
    again = built(spark, pipeline, None, first, schemas=schemas)
    assert [row["id"] for row in again.frames["parsed"].collect()] == [1]
    with pytest.raises(SpecInvalid, match=r"f.yml:7: .*needs the schema registry of a broker"):
        built(spark, pipeline, None, first)


@pytest.mark.thorough
def test_a_subject_that_is_no_json_schema_is_refused_with_its_line(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    with ClusterConnection(running.bootstrap) as connection:
        register_schema(connection, "avro-value", '"string"')
    pipeline = pipeline_of(tmp_path / "f.yml", "registry: {subject: avro-value}")
    with pytest.raises(SpecInvalid, match=r"f.yml:7: .*'avro-value' is AVRO, not JSON"):
        built(spark, pipeline, Brokers(bootstrap=running.bootstrap))

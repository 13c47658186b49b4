"""Protobuf messages as the columns of Spark, and Avro with references: the types, the values, and what other schemas wrote."""

import io
import json
import pickle
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from zhumq.admin.protoc import compile_protobuf
from zhumq.admin.schemas import ReadableSchema
from zhumq.pipelines.decoded import Decoded, MessageDecoder
from zhumq.pipelines.message_schemas import registry_decoder
from zhumq.pipelines.protobuf_messages import ProtobufDecoder, ProtobufFiles
from zhumq.schemas.errors import InvalidSchema

FRAME = struct.Struct(">BI")  # as Confluent's serializers write it
HEAD = 'syntax = "proto3"; package p; '
EVERYTHING = """syntax = "proto3"; package p;
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M {
  int32 small = 1; uint32 positive = 2; sint64 large = 3; fixed64 largest = 4; float ratio = 5; double exact = 6;
  bool is_new = 7; string name = 8; bytes raw = 9; Colour colour = 10;
  optional string note = 11; repeated Line lines = 12; map<string, Line> by_name = 13; map<int32, uint64> by_number = 14;
  google.protobuf.Timestamp at = 15; google.protobuf.Duration took = 16; google.protobuf.Int64Value limit = 17;
  google.protobuf.Struct more = 18; google.protobuf.Any any = 19; Tree tree = 20; Empty empty = 21;
  oneof payment { string card = 22; Line cash = 23; }
}
message Line { string item = 1; int64 cents = 2; }
message Tree { int32 depth = 1; Tree left = 2; repeated Tree others = 3; }
message Empty {}
enum Colour { RED = 0; BLUE = 1; }
"""


def files(text: str) -> ProtobufFiles:
    return tuple(compile_protobuf({"default.proto": text}, "default.proto"))


def made(text: str, type_: str, **fields: Any) -> Any:
    pool = DescriptorPool()
    for each in files(text):
        pool.AddSerializedFile(each)
    return GetMessageClass(pool.FindMessageTypeByName(type_))(**fields)


def version(number: int, text: str, type_: str = "PROTOBUF", **uses: str) -> ReadableSchema:
    return ReadableSchema(
        subject="s", version=number, id=number, type=type_, schema=text, references=(),
        uses=tuple(uses.items()),
    )  # fmt: skip


def fields_of(decoder: MessageDecoder, raw: bytes | None) -> dict[str, Any]:
    found = decoder.decode(raw)
    assert found.reason is None
    return dict(found.fields)


def test_each_type_has_a_column() -> None:
    decoder = ProtobufDecoder(reader=files(EVERYTHING), message="p.M", writers=None)
    line = "STRUCT<`item`: STRING, `cents`: BIGINT>"
    assert dict(decoder.columns) == {
        "small": "INT", "positive": "BIGINT", "large": "BIGINT", "largest": "DECIMAL(20, 0)", "ratio": "FLOAT",
        "exact": "DOUBLE", "is_new": "BOOLEAN", "name": "STRING", "raw": "BINARY", "colour": "STRING", "note": "STRING",
        "lines": f"ARRAY<{line}>", "by_name": f"MAP<STRING, {line}>", "by_number": "MAP<INT, DECIMAL(20, 0)>",
        "at": "TIMESTAMP", "took": "INTERVAL DAY TO SECOND", "limit": "BIGINT", "more": "STRING", "any": "STRING",
        "tree": "STRUCT<`depth`: INT, `left`: STRING, `others`: ARRAY<STRING>>", "empty": "STRING", "card": "STRING",
        "cash": line,
    }  # fmt: skip


def test_fields_have_values_and_those_that_can_be_missing_are_null() -> None:
    decoder = ProtobufDecoder(reader=files(EVERYTHING), message="p.M", writers=None)
    # Spark sends it to its workers.
    decoder = pickle.loads(pickle.dumps(decoder))
    empty = fields_of(decoder, b"")
    nulls = {name for name, each in empty.items() if each is None}
    assert nulls == {"note", "at", "took", "limit", "more", "any", "tree", "empty", "card", "cash"}
    assert (empty["small"], empty["name"], empty["colour"], empty["lines"]) == (0, "", "RED", [])
    message = made(EVERYTHING, "p.M", positive=2**32 - 1, largest=2**64 - 1, raw=b"\xff", note="")
    message.colour = 5
    message.lines.add(item="chair", cents=-(2**63))
    message.by_name["x"].item = "y"
    message.by_number[-1] = 7
    message.at.FromJsonString("2026-01-01T08:00:00.123456789Z")
    message.took.FromJsonString("-1.5s")
    message.limit.value = 0
    message.more.update({"a": 1})
    message.tree.left.left.depth = 3
    message.empty.SetInParent()
    found = fields_of(decoder, message.SerializeToString())
    assert (found["positive"], found["largest"]) == (2**32 - 1, Decimal(2**64 - 1))
    assert (found["raw"], found["note"], found["colour"]) == (b"\xff", "", "5")
    assert found["lines"] == [{"item": "chair", "cents": -(2**63)}]
    assert found["by_name"] == {"x": {"item": "y", "cents": 0}}
    assert found["by_number"] == {-1: Decimal(7)}
    assert found["at"] == datetime(2026, 1, 1, 8, 0, 0, 123456, tzinfo=UTC)
    assert found["took"] == timedelta(seconds=-1.5)
    assert (found["limit"], found["more"], found["empty"]) == (0, '{"a":1.0}', "{}")
    assert found["tree"] == {"depth": 0, "left": '{"left":{"depth":3}}', "others": []}


def test_what_is_not_of_the_schema_has_a_reason() -> None:
    decoder = ProtobufDecoder(reader=files(EVERYTHING), message="p.M", writers=None)
    late = made(EVERYTHING, "p.M")
    late.at.seconds = 2**60
    for raw in (None, b"\x08", b"\xff\xff", b"\x42\x01\xff", late.SerializeToString()):
        reason = decoder.decode(raw).reason
        assert reason is not None
        assert reason.startswith("not Protobuf of the given schema")


def test_messages_of_other_versions_are_read_by_the_number_of_their_fields() -> None:
    old = HEAD + "message M { string id = 1; } message Other { string a = 1; }"
    new = (
        HEAD
        + "message M { string number = 1; int32 count = 2; Line line = 4; message Line { int32 a = 1; } }"
    )
    new += " message Other { string a = 1; }"
    versions = [version(1, old), version(2, new)]
    by_old = registry_decoder(versions[0], versions, message="p.M")
    by_new = registry_decoder(versions[1], versions, needs_choice=False)
    with pytest.raises(InvalidSchema, match=r"has 2 messages, p\.M, p\.Other: name one"):
        registry_decoder(versions[1], versions)
    second = made(new, "p.M", number="x", count=7, line={"a": 5}).SerializeToString()
    assert fields_of(by_new, FRAME.pack(0, 1) + b"\0\x0a\x01x") == {
        "number": "x",
        "count": 0,
        "line": None,
    }
    assert by_old.decode(FRAME.pack(0, 2) + b"\0" + second) == Decoded(
        fields={"id": "x"}, change="count, line", added={"count": "7", "line": '{"a":5}'}
    )
    # Its writer does not have it either.
    more = by_old.decode(FRAME.pack(0, 1) + b"\0" + second)
    assert (more.change, more.added) == ("2, 4", {"2": "7", "4": "CAU="})
    reasons = [
        by_old.decode(raw).reason
        for raw in (
            b"",
            b"plain",
            FRAME.pack(0, 9) + b"\0",
            FRAME.pack(0, 1) + b"\2\2",
            FRAME.pack(0, 1),
        )
    ]
    assert reasons == [
        "it does not begin with the id of a schema",
        "it does not begin with the id of a schema",
        "the schema 9 was not registered for it when the run started",
        "it is a p.Other, not a p.M",
        "not Protobuf of the given schema: it ends before the indexes of its message do",
    ]


def test_a_schema_that_would_have_too_many_columns_is_refused() -> None:
    levels = "".join(
        f"message L{level} {{ {' '.join(f'L{level + 1} f{n} = {n};' for n in range(1, 30))} }} "
        for level in range(5)
    )
    with pytest.raises(InvalidSchema, match="more than 10000 fields"):
        ProtobufDecoder(reader=files(f"{HEAD}{levels} message L5 {{ int32 a = 1; }}"), message="p.L0", writers=None)  # fmt: skip


def test_avro_that_refers_to_other_schemas_is_decoded() -> None:
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "shop",
        "fields": [{"name": "cents", "type": "long"}],
    }
    line = {
        "type": "record",
        "name": "Line",
        "namespace": "shop",
        "fields": [{"name": "price", "type": "Money"}],
    }
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "lines", "type": {"type": "array", "items": "shop.Line"}}],
    }
    more = {
        **order,
        "fields": [
            *order["fields"],
            {"name": "total", "type": ["null", "shop.Money"], "default": None},
        ],
    }
    uses = {"shop.Money": json.dumps(money), "shop.Line": json.dumps(line)}
    versions = [
        version(number, json.dumps(each), "AVRO", **uses)
        for number, each in ((1, order), (2, more))
    ]
    decoder = pickle.loads(pickle.dumps(registry_decoder(versions[1], versions)))
    price = "STRUCT<`cents`: BIGINT>"
    assert decoder.columns == (("lines", f"ARRAY<STRUCT<`price`: {price}>>"), ("total", price))
    buffer = io.BytesIO()
    buffer.write(FRAME.pack(0, 1))
    named: dict[str, Any] = {}
    for each in (money, line):
        fastavro.parse_schema(each, named_schemas=named)
    value = {"lines": [{"price": {"cents": 5}}]}
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(order, named_schemas=named), value)
    assert fields_of(decoder, buffer.getvalue()) == {**value, "total": None}

"""JSON written by schemas: what was decoded is written again as it was, and what does not fit is refused with its place."""

import io
import json
import time
from typing import Any

import fastavro
import pytest

from zhumq.admin.protoc import compile_protobuf
from zhumq.schemas import avro, json_schema, protobuf
from zhumq.schemas.errors import NotEncoded

CHARACTERS_MAX = 10_000
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "rate", "type": "double"},
        {"name": "single", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "any", "type": ["double", "long", "bytes", "string", "Colour"]},
        {"name": "lines", "type": {"type": "array", "items": ["null", "Order"]}},
        {"name": "by", "type": {"type": "map", "values": "long"}},
    ],
}
VALUE: dict[str, Any] = {
    "id": "<ü\u202e>",
    "cents": -(2**63),
    "rate": 1 / 3,
    "single": 0.5,
    "paid": True,
    "small": 2**31 - 1,
    "raw": "\x00ÿ",
    "four": "abcd",
    "colour": "BLUE",
    "note": None,
    "any": 2**62,
    "lines": [None],
    "by": {"a": 1, "": -1},
}
PROTO = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
message Order { message Line { string item = 1; map<string, int64> counts = 2; } Line line = 1; google.protobuf.Timestamp at = 2; }
message Payment { uint64 cents = 1; bytes raw = 2; }
"""


@pytest.fixture(scope="module")
def shop() -> protobuf.ProtobufSchema:
    return protobuf.parse(PROTO, {}, compile_protobuf)


def of_avro(schema: Any, value: Any) -> bytes:
    return avro.parse(json.dumps(schema), []).from_json(value, None)


def test_avro_is_what_fastavro_reads_and_what_is_shown() -> None:
    value = VALUE | {"lines": [None, VALUE]}
    data = of_avro(ORDER, value)
    read: Any = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(ORDER), None)
    assert read["cents"] == -(2**63)
    assert read["raw"] == b"\x00\xff"
    assert read["any"] == 2**62
    assert read["lines"][1]["by"] == {"a": 1, "": -1}
    shown = avro.parse(json.dumps(ORDER), []).as_json(data, CHARACTERS_MAX)
    assert json.loads(shown) == value


def test_a_field_that_is_left_out_has_its_default() -> None:
    assert of_avro(ORDER, {name: each for name, each in VALUE.items() if name != "note"}) == (
        of_avro(ORDER, VALUE)
    )


@pytest.mark.parametrize(
    ("value", "branch"),
    [
        (5, 1),  # a whole number is closer to a long than to a double
        (0.5, 0),
        ("text", 3),  # and a text to a string than to bytes
        ({"bytes": "text"}, 2),  # unless the branch is named, as in Avro's own JSON
        ({"shop.Colour": "RED"}, 4),
        ({"double": 5}, 0),
    ],
)
def test_a_value_of_a_union_is_of_the_closest_branch(value: Any, branch: int) -> None:
    union = [
        "double",
        "long",
        "bytes",
        "string",
        ORDER["fields"][8]["type"] | {"name": "shop.Colour"},
    ]  # type: ignore[index]
    assert of_avro(union, value)[0] == branch << 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": 1}, "/id: 1 is no string"),
        ({"small": 2**31}, "/small: 2147483648 is no int"),
        ({"cents": 1.5}, "/cents"),
        ({"cents": True}, "/cents"),
        ({"raw": "€"}, "/raw"),
        ({"four": "abc"}, "/four"),
        (
            {"colour": "GREEN"},
            '/colour: "GREEN" is no shop.Colour (RED, BLUE)'.replace("(", r"\(").replace(
                ")", r"\)"
            ),
        ),
        ({"lines": [None, {"id": "x"}]}, "/lines/1/cents is missing"),
        ({"by": {"a": "1"}}, "/by/a"),
        ({"more": 1}, "no field 'more'"),
        ({"id": "\ud800"}, "half of a character"),
        ({"single": 1e300}, "/single"),
        ({"rate": "much"}, "/rate"),
    ],
)
def test_a_value_that_is_not_of_an_avro_schema_is_refused(change: Any, reason: str) -> None:
    with pytest.raises(NotEncoded, match=reason):
        of_avro(ORDER, VALUE | change)


def test_numbers_that_json_does_not_have_are_texts() -> None:
    data = of_avro({"type": "array", "items": "double"}, ["nan", "-Infinity", "inf"])
    schema = fastavro.parse_schema({"type": "array", "items": "double"})
    read: Any = fastavro.schemaless_reader(io.BytesIO(data), schema, None)
    assert [str(each) for each in read] == ["nan", "-inf", "inf"]


def test_unions_in_unions_are_tried_a_bounded_number_of_times() -> None:
    schema: Any = "null"
    for depth in range(40):
        # Both branches take the value as far as its end, where neither does.
        names = [f"A{depth}", f"B{depth}"]
        schema = [
            {"type": "record", "name": name, "fields": [{"name": "x", "type": inner}]}
            for name, inner in zip(
                names,
                (schema, [f"A{depth - 1}", f"B{depth - 1}"] if depth else "null"),
                strict=True,
            )
        ]
    value: Any = 1
    for _ in range(40):
        value = {"x": value}
    begin = time.process_time()
    with pytest.raises(NotEncoded, match="too many unions"):
        of_avro(schema, value)
    assert time.process_time() - begin < 20


def test_a_message_of_protobuf_has_the_indexes_of_its_name(shop: protobuf.ProtobufSchema) -> None:
    line = {"item": "chair", "counts": {"a": str(2**60)}}
    order = {"line": line, "at": "2026-01-31T09:00:00Z"}
    for value, name, indexes in (
        (order, None, b"\x00"),
        (order, "shop.Order", b"\x00"),
        (line, "Order.Line", b"\x04\x00\x00"),
        ({"cents": str(2**64 - 1), "raw": "AP8="}, "Payment", b"\x02\x02"),
    ):
        data = shop.from_json(value, name)
        assert data.startswith(indexes)
        assert json.loads(shop.as_json(data, CHARACTERS_MAX)) == value
        assert shop.message_of(data).removeprefix("shop.") == (name or "Order").removeprefix(
            "shop."
        )


@pytest.mark.parametrize(
    ("value", "name", "reason"),
    [
        ({"cents": -1}, "Payment", "cents"),
        ({"nothing": 1}, None, "nothing"),
        ([], None, "shop.Order is a JSON object"),
        ({"at": "yesterday"}, None, "timestamp"),
        ({}, "Order.CountsEntry", "has no message 'Order.CountsEntry', it has shop.Order"),
        ({}, "Refund", "has no message"),
    ],
)
def test_a_value_that_is_not_of_a_protobuf_schema_is_refused(
    shop: protobuf.ProtobufSchema, value: Any, name: str | None, reason: str
) -> None:
    with pytest.raises(NotEncoded, match=reason):
        shop.from_json(value, name)


def check(schema: Any, value: Any, **references: Any) -> None:
    texts = {name: json.dumps(each) for name, each in references.items()}
    json_schema.parse(json.dumps(schema), texts).from_json(value, None)


def test_json_is_checked_by_its_schema_also_by_what_that_refers_to() -> None:
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
    order = {
        "properties": {
            "price": {"$ref": "money"},
            "code": {"pattern": "^[A-Z]{2}$"},
            "tags": {"uniqueItems": True},
        },
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": False,
    }
    check(order, {"price": {"cents": 1}, "code": "AB", "x-a": "b", "tags": [1, "1"]}, money=money)
    for value, reason in (
        ({"price": {}}, "/price: 'cents' is a required property"),
        ({"price": {"cents": "1"}}, "/price/cents"),
        ({"code": "ab"}, "/code"),
        ({"x-a": 1}, "/x-a"),
        ({"other": 1}, "'other' is not in the schema"),
        ({"tags": [1, {"a": 1}, {"a": 1.0}]}, "is there twice"),
    ):
        with pytest.raises(NotEncoded, match=reason):
            check(order, value, money=money)


def test_a_schema_cannot_make_a_check_endless() -> None:
    begin = time.process_time()
    # An expression that takes a backtracking engine for ever, and one that only such an engine knows.
    check({"properties": {"a": {"pattern": "^(a|a)*b"}}}, {"a": "a" * 60 + "b"})
    check({"pattern": "(?=x)"}, "y")
    with pytest.raises(NotEncoded):
        check({"patternProperties": {"^(a|a)*$": False}}, {"a" * 60: 1})
    # Each of the definitions is twice the one before.
    bomb: dict[str, Any] = {"d0": True}
    for number in range(1, 60):
        bomb[f"d{number}"] = {"allOf": [{"$ref": f"#/definitions/d{number - 1}"}] * 2}
    with pytest.raises(NotEncoded, match="too many steps"):
        check({"definitions": bomb, "$ref": "#/definitions/d59"}, 1)
    with pytest.raises(NotEncoded, match="without an end"):
        check({"definitions": {"a": {"$ref": "#/definitions/a"}}, "$ref": "#/definitions/a"}, 1)
    many = [[number] for number in range(90_000)]
    check({"uniqueItems": True}, many)
    assert time.process_time() - begin < 20

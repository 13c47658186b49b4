"""The columns of JSON Schemas."""

import json
from typing import Any

import pytest

from zhumq.pipelines.json_columns import json_columns
from zhumq.schemas.errors import InvalidSchema


def columns(**properties: Any) -> str:
    return json_columns(json.dumps({"type": "object", "properties": properties}))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "STRING"),
        ({"type": "integer"}, "BIGINT"),
        ({"type": ["number", "null"]}, "DOUBLE"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "BOOLEAN"),
        ({"type": "array", "items": {"type": "integer"}}, "ARRAY<BIGINT>"),
        ({"type": "array"}, "ARRAY<STRING>"),
        ({"type": "object", "properties": {"a b": {"type": "integer"}}}, "STRUCT<`a b`: BIGINT>"),
        ({"type": "object"}, "STRING"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "STRING"),
        ({"type": ["string", "integer"]}, "STRING"),
        ({"enum": ["a", 1]}, "STRING"),
        (True, "STRING"),
    ],
)
def test_each_kind_has_a_type_of_spark(schema: Any, kind: str) -> None:
    assert columns(x=schema) == f"`x` {kind}"


def test_local_references_are_followed_and_a_circle_ends() -> None:
    text = json.dumps(
        {
            "$ref": "#/$defs/Order",
            "$defs": {
                "Order": {"type": "object", "properties": {"id": {"$ref": "#/$defs/Id"}}},
                "Id": {"type": "integer"},
            },
        }
    )
    assert json_columns(text) == "`id` BIGINT"


def test_references_to_other_schemas_are_followed_by_name_and_by_id() -> None:
    order = {
        "type": "object",
        "properties": {
            "to": {"$ref": "address.json"},
            "price": {"$ref": "https://example.com/money#/$defs/Amount"},
            "unknown": {"$ref": "elsewhere.json"},
        },
    }
    address = {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/Name"}, "previous": {"$ref": "#"}},
        "$defs": {"Name": {"type": "string"}},
    }
    money = {"$id": "https://example.com/money", "$defs": {"Amount": {"type": "number"}}}
    uses = [("address.json", json.dumps(address)), ("money.json", json.dumps(money))]
    assert json_columns(json.dumps(order), uses) == (
        "`to` STRUCT<`city`: STRING, `previous`: STRING>, `price` DOUBLE, `unknown` STRING"
    )


def test_a_schema_may_be_nothing_but_a_reference_to_another() -> None:
    used = {"type": "object", "properties": {"id": {"type": "integer"}, "next": {"$ref": "#"}}}
    text = json.dumps({"$ref": "used"})
    assert json_columns(text, [("used", json.dumps(used))]) == "`id` BIGINT, `next` STRING"


def test_an_anchor_stays_json() -> None:
    used = {"$defs": {"a": {"$anchor": "here", "type": "integer"}}}
    text = json.dumps({"type": "object", "properties": {"x": {"$ref": "used#here"}}})
    assert json_columns(text, [("used", json.dumps(used))]) == "`x` STRING"


def test_what_contains_itself_stays_json() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "name": {"type": "string"}}}
    assert json_columns(json.dumps(tree)) == "`left` STRING, `name` STRING"
    twice = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {}}
    twice["$defs"] = {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}
    assert json_columns(json.dumps(twice)) == "`a` STRUCT<`n`: STRING>"


def test_a_schema_that_multiplies_itself_is_refused() -> None:
    definitions = {
        f"d{level}": {
            "type": "object",
            "properties": {each: {"$ref": f"#/$defs/d{level + 1}"} for each in "abcdefgh"},
        }
        for level in range(15)
    }
    text = json.dumps({"$ref": "#/$defs/d0", "$defs": definitions})
    with pytest.raises(InvalidSchema, match="more than 10000 fields"):
        json_columns(text)


@pytest.mark.parametrize(
    "text",
    ["{", "true", "[]", '{"type": "string"}', '{"properties": {}}', '{"$ref": "#/none"}',
     '{"properties": {"a": {}, "A": {}}}'],
)  # fmt: skip
def test_a_schema_without_columns_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        json_columns(text)

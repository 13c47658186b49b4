"""JSON Schema: which schemas are valid, and which accept all that others do."""

import json
from typing import Any

import pytest

from zhumq.schemas.errors import InvalidSchema
from zhumq.schemas.json_schema import JsonSchema, parse


def parsed(schema: Any, **references: Any) -> JsonSchema:
    texts = {name: json.dumps(each) for name, each in references.items()}
    return parse(json.dumps(schema), texts)


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def opened(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("reader", "writer", "is_readable"),
    [
        ({}, {"type": "string"}, True),
        ({"type": "string"}, {}, False),
        (True, {"type": "string"}, True),
        ({"type": "string"}, False, True),
        (False, {"type": "string"}, False),
        (TEXT, WHOLE, False),
        ({"type": "number"}, WHOLE, True),
        (WHOLE, {"type": "number"}, False),
        # Bounds may become wider, and may go.
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4}, True),
        ({"type": "string", "maxLength": 4}, {"type": "string", "maxLength": 5}, False),
        ({"type": "string", "maxLength": 4}, TEXT, False),
        (TEXT, {"type": "string", "maxLength": 4}, True),
        ({"type": "string", "minLength": 4}, {"type": "string", "minLength": 5}, True),
        ({"type": "string", "minLength": 5}, {"type": "string", "minLength": 4}, False),
        ({"type": "string", "pattern": "a"}, TEXT, False),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, False),
        (TEXT, {"type": "string", "pattern": "b"}, True),
        ({"type": "number", "minimum": 1}, {"type": "number", "minimum": 2}, True),
        ({"type": "number", "exclusiveMaximum": 1}, {"type": "number", "exclusiveMaximum": 2}, False),
        ({"type": "number", "multipleOf": 0.5}, {"type": "number", "multipleOf": 10}, True),
        ({"type": "number", "multipleOf": 10}, {"type": "number", "multipleOf": 0.5}, False),
        ({"type": "number", "multipleOf": 10}, {"type": "number"}, False),
        ({"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 2}, True),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, False),
        ({"type": "object", "minProperties": 2}, {"type": "object"}, False),
        # Values.
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
        ({"enum": ["a", "b"]}, {"const": "a"}, True),
        ({"const": "a"}, {"const": "b"}, False),
        ({"enum": [1]}, {"enum": [True]}, False),
        # A property may be added to a closed model, and go from an open one.
        (closed(a=TEXT, b=TEXT), closed(a=TEXT), True),
        (closed("b", a=TEXT, b=TEXT), closed(a=TEXT), False),
        (closed("b", a=TEXT, b={"type": "string", "default": ""}), closed(a=TEXT), True),
        (closed(a=TEXT), closed(a=TEXT, b=TEXT), False),
        (opened(a=TEXT, b=TEXT), opened(a=TEXT), False),
        (opened(a=TEXT, b={}), opened(a=TEXT), True),
        (opened(a=TEXT), opened(a=TEXT, b=TEXT), True),
        (opened(a=TEXT), closed(a=TEXT), True),
        (closed(a=TEXT), opened(a=TEXT), False),
        (opened("a", a=TEXT), opened(a=TEXT), False),
        (opened(a=TEXT), opened("a", a=TEXT), True),
        (opened(a=WHOLE), opened(a=TEXT), False),
        # What holds for the properties without a name may cover one.
        ({**opened(a=TEXT, b=TEXT), "additionalProperties": TEXT}, {**opened(a=TEXT), "additionalProperties": TEXT}, True),
        ({**opened(a=TEXT, b=WHOLE), "additionalProperties": TEXT}, {**opened(a=TEXT), "additionalProperties": TEXT}, False),
        ({**opened(), "additionalProperties": TEXT}, {**opened(b=TEXT), "additionalProperties": TEXT}, True),
        ({**closed(), "patternProperties": {"^x-": TEXT}}, {**closed(**{"x-a": TEXT}), "patternProperties": {"^x-": TEXT}}, True),
        ({**closed(), "patternProperties": {"^x-": WHOLE}}, closed(**{"x-a": TEXT}), False),
        # Dependencies.
        ({"type": "object", "dependencies": {"a": ["b"]}}, {"type": "object"}, False),
        ({"type": "object", "dependencies": {"a": ["b"]}}, {"type": "object", "dependencies": {"a": ["b", "c"]}}, True),
        # Items.
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": WHOLE}, True),
        ({"type": "array", "items": WHOLE}, {"type": "array"}, False),
        ({"type": "array", "items": [TEXT, WHOLE], "additionalItems": False}, {"type": "array", "items": [TEXT], "additionalItems": False}, True),
        ({"type": "array", "items": [TEXT], "additionalItems": False}, {"type": "array", "items": [TEXT, WHOLE], "additionalItems": False}, False),
        # Combinations.
        ({"oneOf": [TEXT, WHOLE]}, {"oneOf": [TEXT]}, True),
        ({"oneOf": [TEXT]}, {"oneOf": [TEXT, WHOLE]}, False),
        ({"oneOf": [TEXT, WHOLE]}, TEXT, True),
        (TEXT, {"oneOf": [TEXT, WHOLE]}, False),
        ({"anyOf": [TEXT, WHOLE]}, {"oneOf": [WHOLE, TEXT]}, True),
        ({"oneOf": [TEXT, WHOLE]}, {"anyOf": [WHOLE, TEXT]}, False),
        ({"allOf": [TEXT]}, {"allOf": [TEXT, {"maxLength": 4}]}, True),
        ({"allOf": [TEXT, {"maxLength": 4}]}, {"allOf": [TEXT]}, False),
        (TEXT, {"allOf": [TEXT, {"maxLength": 4}]}, True),
        ({"type": ["string", "null"]}, TEXT, True),
        (TEXT, {"type": ["string", "null"]}, False),
        ({"type": ["string", "integer", "null"]}, {"type": ["null", "string"]}, True),
        ({"not": {"type": "string", "maxLength": 3}}, {"not": TEXT}, True),
        ({"not": TEXT}, {"not": {"type": "string", "maxLength": 3}}, False),
    ],
)  # fmt: skip
def test_a_reader_accepts_what_the_rules_permit(
    reader: Any, writer: Any, is_readable: bool
) -> None:
    reasons = parsed(reader).cannot_read(parsed(writer))
    assert (not reasons) is is_readable, reasons


def test_the_reasons_name_the_places() -> None:
    writer = closed(a=opened(b=TEXT))
    reader = closed(a=opened(b=WHOLE))
    assert parsed(reader).cannot_read(parsed(writer)) == [
        "at /properties/a/properties/b, a string was permitted, and a number is expected"
    ]


def test_references_lead_into_the_schema_and_to_others() -> None:
    other = {"$id": "http://x.example/other.json", "type": "object", "properties": {"n": WHOLE}}
    schema = {
        "definitions": {"node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}}},
        "type": "object",
        "properties": {"first": {"$ref": "#/definitions/node"}, "other": {"$ref": "other.json"}},
    }  # fmt: skip
    texts = {"other.json": json.dumps(other)}
    one = parse(json.dumps(schema), texts)
    assert one.cannot_read(one) == []
    changed = {"other.json": json.dumps({**other, "properties": {"n": TEXT}})}
    (reason,) = parse(json.dumps(schema), changed).cannot_read(one)
    assert reason.startswith("at /properties/other/properties/n")


def test_a_change_behind_a_circle_is_found() -> None:
    def schema(leaf: str) -> Any:
        return {
            "definitions": {
                "a": opened(b={"$ref": "#/definitions/b"}, id={"type": leaf}),
                "b": {"oneOf": [{"$ref": "#/definitions/a"}, {"type": "null"}]},
            },
            "oneOf": [{"$ref": "#/definitions/b"}, {"$ref": "#/definitions/a"}],
        }

    assert parsed(schema("string")).cannot_read(parsed(schema("string"))) == []
    assert parsed(schema("integer")).cannot_read(parsed(schema("string"))) != []


@pytest.mark.parametrize(
    "schema",
    [
        5,
        None,
        "text",
        [],
        {"type": "unknown"},
        {"type": 5},
        {"properties": []},
        {"required": "a"},
        {"minLength": -1},
        {"enum": "a"},
        {"$ref": "#/definitions/missing"},
        {"$ref": "http://x.example/missing.json"},
        {"properties": {"a": {"$ref": "missing.json"}}},
        {"$ref": "file:///etc/passwd"},
    ],
)
def test_what_is_no_json_schema_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        parsed(schema)


def test_references_that_lead_to_each_other_end() -> None:
    circle = {"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}, "$ref": "#/definitions/a"}  # fmt: skip
    assert parsed(circle).cannot_read(parsed(circle)) == []


def test_newer_drafts_are_known() -> None:
    draft = "https://json-schema.org/draft/2020-12/schema"
    writer = {"$schema": draft, "type": "array", "prefixItems": [TEXT], "items": False}
    reader = {"$schema": draft, "type": "array", "prefixItems": [TEXT, WHOLE], "items": False}
    assert parsed(reader).cannot_read(parsed(writer)) == []
    assert parsed(writer).cannot_read(parsed(reader)) != []


def test_a_normalized_text_has_its_keywords_sorted() -> None:
    one, other = parsed({"type": "string", "maxLength": 3}), parsed({"maxLength": 3, "type": "string"})  # fmt: skip
    assert one.text != other.text
    assert one.normalized() == other.normalized()


def test_unions_that_would_take_for_ever_to_compare_are_given_up() -> None:
    def deep(depth: int, leaf: str) -> Any:
        if not depth:
            return {"type": leaf}
        below = [opened(p=deep(depth - 1, leaf)) for _ in range(4)]
        return {"oneOf": [{**each, "title": str(index)} for index, each in enumerate(below)]}

    assert parsed(deep(2, "integer")).cannot_read(parsed(deep(2, "string"))) != []
    assert parsed(deep(2, "integer")).cannot_read(parsed(deep(2, "integer"))) == []
    reader, writer = parsed(deep(4, "integer")), parsed(deep(4, "string"))
    with pytest.raises(InvalidSchema, match="too long"):
        reader.cannot_read(writer)


def test_very_many_alternatives_are_given_up_and_do_not_fill_the_memory() -> None:
    many = {"oneOf": [{"type": "string", "maxLength": each} for each in range(2_000)]}
    reader, writer = parsed(many), parsed(many)
    with pytest.raises(InvalidSchema, match="too long"):
        reader.cannot_read(writer)

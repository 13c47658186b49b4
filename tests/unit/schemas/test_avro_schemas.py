"""Avro: which schemas are valid, which texts are the same schema, and which reader reads which writer."""

import json
from typing import Any

import pytest
from registry_support import record

from zhumq.schemas.avro import AvroSchema, parse
from zhumq.schemas.errors import InvalidSchema


def parsed(schema: Any, *references: Any) -> AvroSchema:
    return parse(json.dumps(schema), [json.dumps(each) for each in references])


def union(*branches: Any) -> dict[str, Any]:
    return record("R", x=list(branches))


COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
MORE_COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE", "GREEN"]}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"], "default": None}],
}


@pytest.mark.parametrize(
    ("reader", "writer", "is_readable"),
    [
        ("int", "int", True),
        ("long", "int", True),
        ("int", "long", False),
        ("float", "long", True),
        ("double", "float", True),
        ("float", "double", False),
        ("string", "bytes", True),
        ("bytes", "string", True),
        ("boolean", "int", False),
        (record("R", a="int"), record("R", a="int", b="string"), True),
        (record("R", a="int", b="string"), record("R", a="int"), False),
        (record("R", a="int", b=("string", "")), record("R", a="int"), True),
        (record("R", a=("long", 0)), record("R", a="string"), False),
        (record("S", a="int"), record("R", a="int"), False),
        ({**record("S", a="int"), "aliases": ["R"]}, record("R", a="int"), True),
        ({**record("R", a="int"), "namespace": "one"}, {**record("R", a="int"), "namespace": "two"}, True),
        (MORE_COLOURS, COLOURS, True),
        (COLOURS, MORE_COLOURS, False),
        ({**COLOURS, "default": "RED"}, MORE_COLOURS, True),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 4}, True),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}, False),
        ({"type": "fixed", "name": "G", "size": 4}, {"type": "fixed", "name": "F", "size": 4}, False),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, False),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, False),
        (["null", "int"], "int", True),
        (["null", "string"], "int", False),
        ("long", ["int", "long"], True),
        ("int", ["null", "int"], False),
        (["null", "int", "string"], ["null", "int"], True),
        (["null", "int"], ["null", "int", "string"], False),
        (NODE, NODE, True),
    ],
)  # fmt: skip
def test_a_reader_reads_what_avros_resolution_permits(
    reader: Any, writer: Any, is_readable: bool
) -> None:
    reasons = parsed(reader).cannot_read(parsed(writer))
    assert (not reasons) is is_readable, reasons


def test_a_field_is_found_by_its_alias() -> None:
    reader = record("R", new="int")
    reader["fields"][0]["aliases"] = ["old"]
    assert parsed(reader).cannot_read(parsed(record("R", old="int"))) == []
    assert parsed(record("R", old="int")).cannot_read(parsed(reader)) != []


def test_the_reasons_name_the_places() -> None:
    reader = record("R", a=record("Inner", b={"type": "array", "items": "int"}), c="string")
    writer = record("R", a=record("Inner", b={"type": "array", "items": "string"}))
    assert parsed(reader).cannot_read(parsed(writer)) == [
        "at /a/b/array, string was written, and int is expected",
        "at /c, the field was not written, and has no default",
    ]


def test_records_that_contain_themselves_are_compared() -> None:
    grown = json.loads(json.dumps(NODE))
    grown["fields"].append({"name": "size", "type": "int"})
    assert parsed(NODE).cannot_read(parsed(grown)) == []
    assert len(parsed(grown).cannot_read(parsed(NODE))) == 1


def test_schemas_that_would_take_for_ever_to_compare_are_given_up() -> None:
    def levels(prefix: str, leaf: str) -> AvroSchema:
        """Each level has types of one name in many namespaces, any of which could be the one that was written."""
        types: list[Any] = [leaf]
        for depth in range(6):
            below, names = types, [f"{prefix}{depth}n{each}" for each in range(6)]
            first = {**record("L", x=below), "namespace": names[0]}
            used = [each if isinstance(each, str) else f"{each['namespace']}.L" for each in below]
            types = [first, *({**record("L", x=used), "namespace": each} for each in names[1:])]
        return parsed(types)

    reader, writer = levels("r", "int"), levels("w", "string")
    with pytest.raises(InvalidSchema, match="too long"):
        reader.cannot_read(writer)


@pytest.mark.parametrize(
    "schema",
    [
        5,
        None,
        {},
        {"type": "unknown"},
        {"type": "array"},
        {"type": "map", "items": "int"},
        {"type": "record", "name": "R"},
        {"type": "record", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "a"}]},
        {"type": "record", "name": "R", "fields": [5]},
        {"type": "record", "name": "1R", "fields": []},
        {"type": "record", "name": "R", "namespace": 5, "fields": []},
        {"type": "record", "name": "R", "aliases": "x", "fields": []},
        {"type": "enum", "name": "E"},
        {"type": "enum", "name": "E", "symbols": ["A", "A"]},
        {"type": "enum", "name": "E", "symbols": [["A"]]},
        {"type": "enum", "name": "E", "symbols": ["A-B"]},
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"},
        {"type": "fixed", "name": "F"},
        {"type": "fixed", "name": "F", "size": -1},
        ["int", "int"],
        ["int", ["string"]],
        record("R", **{"a b": "int"}),
        record("R", a="R2"),
        record("R", a=record("R")),
        record("R", a=("int", "one")),
        record("R", a=("int", 2**31)),
        record("R", a=("string", None)),
        record("R", a=("bytes", "\u0100")),
        record("R", a=({"type": "array", "items": "int"}, ["x"])),
        record("R", a=(record("S", b="int"), {})),
        record("R", a=(["null", "int"], "x")),
    ],
)
def test_what_is_no_avro_schema_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        parsed(schema)


def test_defaults_of_every_type_are_accepted() -> None:
    parsed(
        record(
            "R",
            a=("null", None),
            b=("boolean", True),
            c=("long", 2**63 - 1),
            d=("double", 1),
            e=("bytes", "\u00ff"),
            f=({"type": "map", "values": "int"}, {"x": 1}),
            g=(record("S", h=("int", 1)), {}),
            i=(COLOURS, "RED"),
            j=({"type": "fixed", "name": "F", "size": 2}, "ab"),
            k=(["null", "int"], 5),
        )
    )


def test_a_schema_has_one_text_however_it_was_written() -> None:
    text = '{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[{"name":"x","type":"S","order":"ignore"}]}'
    inner = '{"type":"enum","name":"S","symbols":["P"]}'
    written = text.replace('"S"', inner)
    for same in (
        written,
        json.dumps(json.loads(written), indent=3),
        written.replace('"name":"R","namespace":"a.b"', '"namespace":"ignored","name":"a.b.R"'),
        written.replace('"name":"S"', '"name":"S","namespace":"a.b"'),
    ):
        assert parse(same, []).text == written
    assert parsed({"type": {"type": "string"}}).text == '"string"'
    assert parsed({"type": "string", "avro.java.string": "String"}).text == (
        '{"type":"string","avro.java.string":"String"}'
    )


def test_a_normalized_text_has_its_attributes_sorted() -> None:
    one = {"type": "string", "b": 1, "a": {"d": 1, "c": 2}}
    other = {"a": {"c": 2, "d": 1}, "b": 1, "type": "string"}
    assert parsed(one).text != parsed(other).text
    assert parsed(one).normalized() == parsed(other).normalized()


def test_a_nesting_as_deep_as_permitted_is_handled() -> None:
    schema: Any = "int"
    for _ in range(190):
        schema = {"type": "array", "items": schema}
    deep = parsed(schema)
    assert deep.cannot_read(deep) == []
    for _ in range(20):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidSchema, match="deep"):
        parsed(schema)

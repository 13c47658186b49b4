"""Avro data as JSON: the same as fastavro reads, and bounded whatever the data says."""

import io
import json
import struct
from typing import Any

import fastavro
import pytest

from zhumq.schemas.avro import parse
from zhumq.schemas.errors import NotDecoded

CHARACTERS_MAX = 10_000
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "a.b",
    "fields": [
        {"name": "nothing", "type": "null"},
        {"name": "yes", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "half", "type": "float"},
        {"name": "third", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "list", "type": {"type": "array", "items": ["null", "long", "Colour"]}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
    ],
}
VALUE: dict[str, Any] = {
    "nothing": None,
    "yes": True,
    "small": -1,
    "large": -(2**63),
    "half": 0.5,
    "third": 1 / 3,
    "raw": b"\x00\xff",
    "text": "<ü\u202e>",
    "colour": "BLUE",
    "four": b"abcd",
    "list": [None, 2**62, "RED"],
    "map": {"a": ["x", ""], "b": []},
}


def written(schema: Any, value: Any) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(schema), value)
    return output.getvalue()


def decoded(schema: Any, data: bytes, characters_max: int = CHARACTERS_MAX) -> Any:
    return json.loads(parse(json.dumps(schema), []).as_json(data, characters_max))


def test_every_type_is_decoded() -> None:
    found = decoded(EVERYTHING, written(EVERYTHING, VALUE))
    assert found == VALUE | {"raw": "\x00\xff", "four": "abcd"}
    assert list(found) == list(VALUE)


def test_blocks_with_their_sizes_are_read() -> None:
    # Two blocks: -2 items in 2 bytes, 1 item, and the end.
    assert decoded({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x02\x06\x00") == [1, 2, 3]


def test_numbers_that_json_does_not_have_are_texts() -> None:
    numbers = {"type": "array", "items": "double"}
    data = written(numbers, [float("nan"), float("inf"), 1.0])
    assert decoded(numbers, data) == ["nan", "inf", 1.0]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_data_that_ends_early_is_not_decoded(cut: int) -> None:
    with pytest.raises(NotDecoded):
        decoded(EVERYTHING, written(EVERYTHING, VALUE)[:-cut])


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("int", b"\x02\x00"),  # more than a number
        ("boolean", b"\x02"),
        ("long", b"\xff" * 11),
        ("string", b"\x01"),  # a length of -1
        ("string", b"\x02\xff"),
        (["null", "int"], b"\x04"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_data_of_another_schema_is_not_decoded(schema: Any, data: bytes) -> None:
    with pytest.raises(NotDecoded):
        decoded(schema, data)


def test_an_array_of_items_without_bytes_does_not_fill_the_memory() -> None:
    many = struct.pack(">10B", *b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")  # 2^63 - 1 items
    empty_record = {"type": "record", "name": "Nothing", "fields": []}
    for items in ("null", empty_record, {"type": "fixed", "name": "Zero", "size": 0}):
        with pytest.raises(NotDecoded, match="too large"):
            decoded({"type": "array", "items": items}, many + b"\x00")


def test_long_names_count_for_each_record_that_has_them() -> None:
    field = {"name": "x" * 1000, "type": "null"}
    items = {"type": "record", "name": "Wide", "fields": [field]}
    # A hundred records of no bytes.
    with pytest.raises(NotDecoded, match="too large"):
        decoded({"type": "array", "items": items}, b"\xc8\x01\x00")


def test_a_chain_of_records_has_a_bound() -> None:
    assert decoded(NODE, b"\x02\x02\x00") == {"next": {"next": {"next": None}}}
    with pytest.raises(NotDecoded, match="levels deep"):
        decoded(NODE, b"\x02" * 5_000 + b"\x00", 10_000_000)

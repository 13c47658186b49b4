"""Protobuf messages as JSON: which message they are, the types with a JSON of their own, and hostile data."""

import json
import resource
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from zhumq.admin.protoc import compile_protobuf
from zhumq.schemas.errors import InvalidSchema, NotDecoded
from zhumq.schemas.protobuf import ProtobufSchema, parse
from zhumq.schemas.protobuf_types import MemoryBudget, MessageTypes, without_indexes

CHARACTERS_MAX = 10_000
SHOP = """syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "shop/money.proto";
message Order {
  message Line { message Part { string name = 1; } string item = 1; Money price = 2; map<string, Part> parts = 3; }
  map<string, Line> by_name = 1;
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
  google.protobuf.Int64Value limit = 4;
  google.protobuf.Struct more = 5;
  google.protobuf.Any any = 6;
  Order before = 7;
  Colour colour = 8;
  bytes raw = 9;
}
enum Colour { RED = 0; BLUE = 1; }
message Payment { uint64 cents = 1; float rate = 2; }
"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; string currency = 2; }'


@pytest.fixture(scope="module")
def shop() -> ProtobufSchema:
    return parse(SHOP, {"shop/money.proto": MONEY}, compile_protobuf)


def made(schema: ProtobufSchema, type_: str, **fields: Any) -> Any:
    found = schema.types.named(type_)
    assert found is not None
    return GetMessageClass(found)(**fields)


def decoded(schema: ProtobufSchema, data: bytes, characters_max: int = CHARACTERS_MAX) -> Any:
    return json.loads(schema.as_json(data, characters_max))


@pytest.mark.parametrize(
    ("frame", "type_"),
    [
        (b"\x00", "shop.Order"),
        (b"\x02\x00", "shop.Order"),
        (b"\x02\x02", "shop.Payment"),
        (b"\x04\x00\x00", "shop.Order.Line"),
        (b"\x06\x00\x00\x00", "shop.Order.Line.Part"),
    ],
)
def test_the_indexes_before_a_message_say_which_it_is(
    shop: ProtobufSchema, frame: bytes, type_: str
) -> None:
    indexes, data = without_indexes(frame + b"data")
    assert (shop.types.at(indexes).full_name, data) == (type_, b"data")


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x02", b"\x02\x04", b"\x02\x01", b"\x01", b"\x04\x00\x04", b"\x08\0\0\0\0", b"\xff" * 20],
)  # fmt: skip
def test_indexes_that_lead_nowhere_are_refused(shop: ProtobufSchema, frame: bytes) -> None:
    with pytest.raises(NotDecoded):
        shop.as_json(frame, CHARACTERS_MAX)


def test_the_messages_of_a_file_are_listed(shop: ProtobufSchema) -> None:
    assert shop.types.names() == [
        "shop.Order", "shop.Order.Line", "shop.Order.Line.Part", "shop.Payment",
    ]  # fmt: skip
    assert shop.types.outermost() == ["shop.Order", "shop.Payment"]
    used = 'syntax = "proto3"; message Helper {} message M { map<string, Helper> h = 1; message I { M m = 1; } }'
    assert parse(used, {}, compile_protobuf).types.outermost() == ["M"]
    circle = 'syntax = "proto3"; message A { B b = 1; } message B { A a = 1; }'
    assert parse(circle, {}, compile_protobuf).types.outermost() == ["A", "B"]


def test_references_and_well_known_types_are_decoded(shop: ProtobufSchema) -> None:
    line = {"item": "chair", "price": {"cents": 2**60, "currency": "EUR"}}
    order = made(shop, "shop.Order", by_name={"é": line}, lines=[line, {}], raw=b"\xff")
    order.at.seconds = 1_700_000_000
    order.limit.value = -1
    order.more.update({"a": [1, None, {"b": True}]})
    order.any.Pack(made(shop, "shop.Payment", cents=2**64 - 1, rate=0.1))
    order.colour = 7  # of a newer schema
    money = {"cents": "1152921504606846976", "currency": "EUR"}
    assert decoded(shop, b"\x00" + order.SerializeToString()) == {
        "by_name": {"é": {"item": "chair", "price": money}},
        "lines": [{"item": "chair", "price": money}, {}],
        "at": "2023-11-14T22:13:20Z",
        "limit": "-1",
        "more": {"a": [1.0, None, {"b": True}]},
        "any": {"@type": "type.googleapis.com/shop.Payment", "cents": str(2**64 - 1), "rate": 0.1},
        "colour": 7,
        "raw": "/w==",
    }


def test_what_is_no_time_or_of_no_known_type_is_shown_as_it_is(shop: ProtobufSchema) -> None:
    order = made(shop, "shop.Order")
    order.at.seconds = 2**62
    order.any.type_url = "x/unknown.Type"
    order.any.value = b"\x01"
    assert decoded(shop, b"\x00" + order.SerializeToString()) == {
        "at": {"seconds": str(2**62)},
        "any": {"@type": "x/unknown.Type", "value": "AQ=="},
    }


def test_a_message_with_the_name_of_a_well_known_type_is_a_message() -> None:
    text = 'syntax = "proto3"; package google.protobuf; message Timestamp { string seconds = 1; }'
    schema = parse(text, {}, compile_protobuf)
    assert decoded(schema, b"\x00\x0a\x01x") == {"seconds": "x"}


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05a", b"\xff" * 9, b"\x0b", b"\x12\x02\x0a\x05", b"\x12\x04\x0a\x02\xff\xff"]
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(shop: ProtobufSchema, data: bytes) -> None:
    with pytest.raises(NotDecoded, match=r"it is no shop\.Order"):
        shop.as_json(b"\x00" + data, CHARACTERS_MAX)


def test_json_is_bounded_and_not_the_data(shop: ProtobufSchema) -> None:
    many = b"\x00" + b"\x12\x00" * 3000
    assert len(decoded(shop, many, 100_000)["lines"]) == 3000
    with pytest.raises(NotDecoded, match="too large to be shown"):
        shop.as_json(many, CHARACTERS_MAX)
    with pytest.raises(NotDecoded, match="too large to be shown"):
        shop.as_json(b"\x00" + b"\x4a\x81\x7f" + bytes(127 * 128 + 1), CHARACTERS_MAX)


@pytest.mark.parametrize("levels", [90, 200, 5000])
def test_messages_in_messages_are_bounded(shop: ProtobufSchema, levels: int) -> None:
    data = b""
    for _ in range(levels):
        length = made(shop, "shop.Payment", cents=len(data)).SerializeToString()[1:] or b"\x00"
        data = b"\x3a" + length + data
    if levels < 100:
        assert shop.as_json(b"\x00" + data, 100_000).count("before") == levels
    else:
        with pytest.raises(NotDecoded):
            shop.as_json(b"\x00" + data, 100_000)


def test_messages_in_any_are_bounded_together(shop: ProtobufSchema) -> None:
    order = made(shop, "shop.Order")
    for _ in range(150):
        outer = made(shop, "shop.Order")
        outer.any.Pack(order)
        order = outer
    with pytest.raises(NotDecoded, match="nested more than 100 levels"):
        shop.as_json(b"\x00" + order.SerializeToString(), 1_000_000)


def wide(kind: str, field: bytes) -> tuple[MessageTypes, bytes]:
    """A type with many fields, and a message that has a million of it in two or more bytes each."""
    fields = "".join(f"optional string f{number} = {number};" for number in range(1, 3000))
    text = f'syntax = "proto2"; message Wide {{ {fields} }} message M {{ extensions 4; repeated Wide w = 1; map<int32, Wide> m = 2; repeated group G = 3 {{ optional Wide w = 1; }} }} {kind}'
    return parse(text, {}, compile_protobuf).types, field * 1_000_000


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x12\x02\x12\x00", b"\x1b\x0a\x00\x1c", b"\x22\x00"])  # fmt: skip
def test_a_small_message_cannot_fill_the_memory(field: bytes) -> None:
    types, data = wide("extend M { repeated Wide e = 4; }", field)
    type_ = types.named("M")
    assert type_ is not None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(NotDecoded, match="too large"):
        types.read(type_, data, MemoryBudget())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_schemas_that_the_runtime_refuses_are_invalid() -> None:
    fields = "".join(f"string f{number} = {number};" for number in range(1, 10_000))
    schema = parse(f'syntax = "proto3"; message M {{ {fields} }}', {}, compile_protobuf)
    with pytest.raises(InvalidSchema, match="cannot be used"):
        schema.as_json(b"\x00", CHARACTERS_MAX)
    old = FileDescriptorProto(name="a.proto", syntax="proto2")
    old.message_type.add(name="M").options.message_set_wire_format = True
    with pytest.raises(InvalidSchema, match="message sets"):
        MessageTypes([old])

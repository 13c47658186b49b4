"""Protobuf messages as JSON, against the conversion of Google's library, with random messages and with broken ones."""

import json
import math
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from zhumq.admin.protoc import compile_protobuf
from zhumq.schemas.errors import NotDecoded
from zhumq.schemas.protobuf import parse

CHARACTERS_MAX = 1_000_000
DEPTH_MAX = 3
TEXT = """syntax = "proto3";
package p;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message M {
  double a = 1; float b = 2; int32 c = 3; int64 d = 4; uint32 e = 5; uint64 f = 6; sint32 g = 7; sint64 h = 8;
  fixed32 i = 9; fixed64 j = 10; sfixed32 k = 11; sfixed64 l = 12; bool m = 13; string n = 14; bytes o = 15;
  E some_enum = 16;
  optional int32 maybe = 17; optional string may_be_text = 18;
  repeated int64 many = 19; repeated string texts = 20; repeated E enums = 21; repeated M children = 22; repeated float floats = 23;
  map<string, int64> by_text = 24; map<int32, M> by_int = 25; map<bool, E> by_bool = 26; map<uint64, bytes> by_long = 27;
  oneof one { int32 first = 28; M second = 29; google.protobuf.NullValue third = 30; }
  google.protobuf.Timestamp at = 31; google.protobuf.Duration took = 32; google.protobuf.FieldMask mask = 33;
  google.protobuf.Struct more = 34; google.protobuf.Value value = 35; google.protobuf.ListValue list = 36;
  google.protobuf.DoubleValue w1 = 37; google.protobuf.FloatValue w2 = 38; google.protobuf.Int64Value w3 = 39;
  google.protobuf.UInt64Value w4 = 40; google.protobuf.Int32Value w5 = 41; google.protobuf.UInt32Value w6 = 42;
  google.protobuf.BoolValue w7 = 43; google.protobuf.StringValue w8 = 44; google.protobuf.BytesValue w9 = 45;
  repeated google.protobuf.Timestamp times = 46; repeated google.protobuf.Any anys = 47;
}
enum E { ZERO = 0; ONE = 1; MINUS = -1; }
"""
SCHEMA = parse(TEXT, {}, compile_protobuf)
POOL = DescriptorPool()
for _file in SCHEMA.files:
    POOL.AddSerializedFile(_file.SerializeToString())
MESSAGE: Any = GetMessageClass(POOL.FindMessageTypeByName("p.M"))

_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.sampled_from([0, 1, -1, 5]),
}
_PATHS = st.lists(st.sampled_from(["a", "some_enum", "a.b_c"]), max_size=3)


def single(draw: st.DrawFn, field: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return draw(st.text(max_size=5))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw(st.binary(max_size=5))
    if field.enum_type is not None and field.enum_type.name == "NullValue":
        return 0
    return draw(_NUMBERS[field.cpp_type])


def fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    """Set some fields of a message of any type."""
    match message.DESCRIPTOR.name:
        case "Timestamp":
            fill_time(draw, message, st.integers(-62135596800, 253402300799))
        case "Duration":
            fill_time(draw, message, st.integers(0, 315_576_000_000))
        case "FieldMask":
            message.paths.extend(draw(_PATHS))
        case "Any" if depth <= DEPTH_MAX:
            inner = draw(
                st.sampled_from(["p.M", "google.protobuf.Timestamp", "google.protobuf.Value"])
            )
            packed = GetMessageClass(POOL.FindMessageTypeByName(inner))()
            fill(draw, packed, depth + 1)
            message.Pack(packed)
        case "Any":
            pass
        case "Value" if draw(st.booleans()):
            # JSON has no other numbers.
            finite = draw(st.floats(allow_nan=False, allow_infinity=False))
            message.MergeFrom(type(message)(number_value=finite))
        case _:
            some = [each for each in message.DESCRIPTOR.fields if each.name != "number_value"]
            for field in draw(st.lists(st.sampled_from(some), max_size=6, unique_by=id)):
                fill_field(draw, message, field, depth)


def fill_time(draw: st.DrawFn, message: Any, seconds: st.SearchStrategy[int]) -> None:
    nanos = draw(st.integers(0, 999_999_999))
    message.MergeFrom(type(message)(seconds=draw(seconds), nanos=nanos))


def fill_field(draw: st.DrawFn, message: Any, field: Any, depth: int) -> None:
    is_message = field.message_type is not None
    if field.is_repeated and is_message and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        for _ in range(draw(st.integers(0, 2))):
            name, entries = single(draw, key), getattr(message, field.name)
            if value.message_type is None:
                entries[name] = single(draw, value)
            else:
                entries.get_or_create(name)
                if depth < DEPTH_MAX:
                    fill(draw, entries[name], depth + 1)
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 2))):
            many = getattr(message, field.name)
            if not is_message:
                many.append(single(draw, field))
            elif depth < DEPTH_MAX:
                fill(draw, many.add(), depth + 1)
    elif is_message:
        getattr(message, field.name).SetInParent()
        if depth < DEPTH_MAX:
            fill(draw, getattr(message, field.name), depth + 1)
    else:
        setattr(message, field.name, single(draw, field))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    found: Message = MESSAGE()
    fill(draw, found, 0)
    return found


def expected(message: Message) -> Any:
    text = json_format.MessageToJson(
        message, preserving_proto_field_name=True, descriptor_pool=POOL
    )
    return json.loads(text)


def same(one: Any, other: Any) -> bool:
    """Google's library writes a float with the fewest digits, or one more."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[each], other[each]) for each in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-7)
    return type(one) is type(other) and bool(one == other)


@given(messages())
def test_messages_have_the_json_of_googles_library(message: Message) -> None:
    found = json.loads(SCHEMA.as_json(b"\0" + message.SerializeToString(), CHARACTERS_MAX))
    assert same(found, expected(message)), (found, expected(message))


@given(messages(), st.data())
def test_broken_messages_are_refused_or_are_what_googles_library_reads(
    message: Message, data: st.DataObject
) -> None:
    content = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content.insert(data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 255)))
    del content[data.draw(st.integers(0, len(content))) :]
    try:
        read = MESSAGE.FromString(bytes(content))
    except DecodeError:
        read = None
    try:
        found = json.loads(SCHEMA.as_json(b"\0" + bytes(content), CHARACTERS_MAX))
    except NotDecoded:
        # The message within an Any may be broken while the outer one is not.
        assert read is None or b"type.googleapis.com" in content
        return
    assert read is not None
    try:
        other = expected(read)
    except (json_format.Error, ValueError):
        return  # Times out of their range and the like, which are shown as they are.
    except TypeError as error:
        if "Can not find message descriptor" in str(error):
            return  # The type of an Any, which is shown with its bytes.
        raise
    assert same(found, other)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        found = SCHEMA.as_json(data, CHARACTERS_MAX)
    except NotDecoded:
        return
    assert isinstance(json.loads(found), dict)

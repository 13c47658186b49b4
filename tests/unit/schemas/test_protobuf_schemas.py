"""Protobuf: compiled and printed again without a loss, and which schemas read what was written with others."""

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from zhumq.admin.protoc import compile_protobuf
from zhumq.schemas.errors import InvalidSchema
from zhumq.schemas.protobuf import ProtobufSchema, parse

HEAD = 'syntax = "proto3";\npackage shop;\n'
FULL = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option java_package = "x.\\"y";
message Order {
  option deprecated = true;
  reserved 9, 100 to 120, 1000 to max;
  reserved "old", "older";
  string id = 1 [deprecated = true, json_name = "ID"];
  optional int32 count = 2;
  repeated sint64 sizes = 3 [packed = false];
  map<string, Line> lines = 4;
  google.protobuf.Timestamp at = 7;
  oneof payment { string card = 5; bytes cash = 6; }
  message Line { Colour colour = 1; Order parent = 2; }
  enum Colour { option allow_alias = true; reserved 7 to 8; RED = 0; ROT = 0; BLUE = 1; }
}
service Orders { rpc Get (Order) returns (stream Order); rpc Put (stream Order) returns (Order) { option deprecated = true; } }
"""
PROTO2 = """syntax = "proto2";
message M {
  required int32 a = 1 [default = -5];
  optional string b = 2 [default = "x\\"\\n"];
  optional bytes c = 3 [default = "\\001\\377"];
  optional double d = 4 [default = inf];
  optional E e = 5 [default = TWO];
  extensions 100 to 199;
  enum E { ONE = 1; TWO = 2; }
}
extend M { optional int32 more = 101; }
"""


def parsed(text: str, **references: str) -> ProtobufSchema:
    return parse(text, references, compile_protobuf)


@pytest.mark.parametrize("text", [FULL, PROTO2])
def test_a_file_is_printed_without_a_loss(text: str) -> None:
    first = parsed(text)
    again = parsed(first.text)
    assert again.text == first.text
    assert again.file == first.file


def test_comments_and_spaces_make_no_difference() -> None:
    spaced = HEAD.replace(" ", "  ") + "// A comment.\nmessage M {\n\n string a=1; /* b */ }"
    assert parsed(spaced).text == parsed(HEAD + "message M { string a = 1; }").text


def test_custom_options_are_kept() -> None:
    text = """syntax = "proto3";
import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { string rule = 50001; }
message M { string a = 1 [(rule) = "len > 3"]; }"""
    assert parsed(text).text == text


def test_a_descriptor_is_the_same_schema_as_its_text() -> None:
    """Confluent's Python client sends the descriptor of a file, and reads it in this form."""
    text = parsed(FULL)
    descriptor = FileDescriptorProto.FromString(base64.b64decode(text.formatted("serialized")))
    assert descriptor == text.file
    descriptor.name = "somewhere/order.proto"
    sent = parsed(base64.b64encode(descriptor.SerializeToString()).decode())
    assert sent.text == text.text


def test_imports_are_references() -> None:
    money = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
    order = HEAD + 'import "shop/money.proto"; message Order { Money total = 1; }'
    with pytest.raises(InvalidSchema, match=r"shop/money\.proto"):
        parsed(order)
    made = parse(order, {"shop/money.proto": money}, compile_protobuf)
    assert [each.name for each in made.files][-2:] == ["shop/money.proto", "default.proto"]
    changed = parse(order, {"shop/money.proto": money.replace("int64", "string")}, compile_protobuf)
    (reason,) = changed.cannot_read(made)
    assert "cents" in reason


@pytest.mark.parametrize(
    ("reader", "writer", "is_readable"),
    [
        ("message M { string a = 1; }", "message M { string a = 1; }", True),
        ("message M { string renamed = 1; }", "message M { string a = 1; }", True),
        ("message M { string a = 1; int32 b = 2; }", "message M { string a = 1; }", True),
        ("message M { string a = 1; }", "message M { string a = 1; int32 b = 2; }", True),
        ("message N { string a = 1; }", "message M { string a = 1; }", False),
        ("message M {} message N {}", "message M {}", True),
        ("message M { message I {} }", "message M { message I {} }", True),
        ("message M {}", "message M { message I {} }", False),
        ("message M { int64 a = 1; }", "message M { int32 a = 1; }", True),
        ("message M { bool a = 1; }", "message M { uint64 a = 1; }", True),
        ("message M { sint32 a = 1; }", "message M { int32 a = 1; }", False),
        ("message M { fixed32 a = 1; }", "message M { sfixed32 a = 1; }", True),
        ("message M { fixed64 a = 1; }", "message M { fixed32 a = 1; }", False),
        ("message M { bytes a = 1; }", "message M { string a = 1; }", True),
        ("message M { string a = 1; }", "message M { int32 a = 1; }", False),
        ("message M { float a = 1; }", "message M { double a = 1; }", False),
        ("enum E { Z = 0; } message M { E a = 1; }", "message M { int32 a = 1; }", True),
        ("enum E { Z = 0; Y = 1; }", "enum E { Z = 0; X = 1; W = 2; }", True),
        ("message M { repeated string a = 1; }", "message M { string a = 1; }", True),
        ("message M { repeated int32 a = 1; }", "message M { int32 a = 1; }", False),
        ("message N {} message M { N a = 1; }", "message N {} message M { string a = 1; }", False),
        ("message N {} message O {} message M { N a = 1; }", "message N {} message O {} message M { O a = 1; }", False),
        ("message M { map<string, int32> a = 1; }", "message M { map<string, int64> a = 1; }", True),
        ("message M { map<string, int32> a = 1; }", "message M { map<string, string> a = 1; }", False),
        ("message M { map<string, int32> a = 1; }", "message M { repeated string a = 1; }", False),
        ("message M { oneof x { string a = 1; int32 b = 2; } }", "message M { oneof x { string a = 1; } }", True),
        ("message M { oneof x { string a = 1; } }", "message M { oneof x { string a = 1; int32 b = 2; } }", False),
        ("message M { string c = 3; }", "message M { oneof x { string a = 1; int32 b = 2; } string c = 3; }", True),
        ("message M { oneof x { string a = 1; } }", "message M { string a = 1; }", True),
        ("message M { oneof x { string a = 1; int32 b = 2; } }", "message M { string a = 1; int32 b = 2; }", False),
        ("message M { string a = 1; int32 b = 2; }", "message M { oneof x { string a = 1; int32 b = 2; } }", True),
        ("message M { optional string a = 1; }", "message M { string a = 1; }", True),
        ("message M { M next = 1; int32 n = 2; }", "message M { M next = 1; }", True),
    ],
)  # fmt: skip
def test_a_reader_reads_what_the_rules_permit(reader: str, writer: str, is_readable: bool) -> None:
    reasons = parsed(HEAD + reader).cannot_read(parsed(HEAD + writer))
    assert (not reasons) is is_readable, reasons


def test_required_fields_neither_come_nor_go() -> None:
    with_it, without = (f'syntax = "proto2"; message M {{ {each} }}' for each in ("required int32 a = 1;", ""))  # fmt: skip
    assert parsed(with_it).cannot_read(parsed(without)) != []
    assert parsed(without).cannot_read(parsed(with_it)) != []


@pytest.mark.parametrize(
    "text",
    [
        "message",
        "AAAA",
        HEAD + "message M { string a = 1; string b = 1; }",
        HEAD + "message M { Missing a = 1; }",
        HEAD + 'import "missing.proto";',
        HEAD + 'import "/etc/passwd";',
        HEAD + 'import "../../../etc/passwd";',
        HEAD + "message M {" * 101 + "}" * 101,
        "\0",
    ],
)
def test_what_is_no_protobuf_schema_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parsed(text)
    assert "\n" not in str(refused.value)
    assert "/tmp" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["../out.proto", "/abs.proto", "a\0b", "x" * 5000, "default.proto"]
)
def test_a_reference_cannot_leave_the_folder_of_the_compiler(name: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(HEAD, {name: HEAD}, compile_protobuf)

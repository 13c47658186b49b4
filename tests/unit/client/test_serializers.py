"""Serializers: what goes in comes out, and what is none of theirs is refused in one clear line."""

import datetime as dt
import json
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zhumq
import zhumq.aio
from zhumq.client.avro import HEADER_BYTES
from zhumq.client.codec import Codec
from zhumq.client.errors import DecodeFailed, EncodeFailed
from zhumq.client.task import Task
from zhumq.protocol.push import push_pb2


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, kw_only=True)
class Line:
    item: str
    price: Decimal
    size: Size = Size.SMALL
    gift: "Line | None" = None


@dataclass(frozen=True, kw_only=True)
class Order:
    id: UUID
    at: dt.datetime
    day: dt.date
    lines: list[Line]
    paid: bool
    kind: Literal["new", "again"] = "new"
    weight: float | None = None
    tags: frozenset[str] = frozenset()
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    codes: tuple[int, ...] = ()
    image: Annotated[bytes, "base64"] = b""
    extra: Any = None


lines = st.builds(
    Line,
    item=st.text(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    size=st.sampled_from(Size),
    gift=st.none()
    | st.builds(Line, item=st.text(), price=st.decimals(allow_nan=False), gift=st.none()),
)
orders = st.builds(
    Order,
    id=st.uuids(),
    at=st.datetimes(timezones=st.just(dt.UTC)),
    day=st.dates(),
    lines=st.lists(lines, max_size=3),
    paid=st.booleans(),
    kind=st.sampled_from(["new", "again"]),
    weight=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    tags=st.frozensets(st.text()),
    places=st.dictionaries(st.text(), st.tuples(st.integers(), st.integers()), max_size=3),
    codes=st.lists(st.integers()).map(tuple),
    image=st.binary(),
    extra=st.none() | st.integers() | st.lists(st.text()),
)


@given(orders)
def test_a_dataclass_comes_back_from_json(order: Order) -> None:
    serializer = zhumq.Json(Order)
    assert serializer.deserialize("orders", serializer.serialize("orders", order)) == order


BASE = {
    "id": "12345678-1234-5678-1234-567812345678",
    "at": "2026-01-02T03:04:05+00:00",
    "day": "2026-01-02",
    "lines": [{"item": "chair", "price": "9.90"}],
    "paid": True,
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"paid": "yes"}, "paid is not true or false: 'yes'"),
        ({"paid": 1}, "paid is not true or false: 1"),
        ({"id": "no"}, "id is not a UUID: 'no'"),
        ({"at": 7}, "at is not a date and time (ISO 8601): 7"),
        ({"lines": {}}, "lines is not a list: {}"),
        ({"lines": [{"item": "x"}]}, "lines[0].price is missing"),
        ({"lines": [{"item": True, "price": "1"}]}, "lines[0].item is not a string: True"),
        ({"lines": [{"item": "x", "price": 1.5}]}, "lines[0].price is not a decimal number as a string: 1.5"),
        ({"lines": [{"item": "x", "price": "1", "size": "huge"}]}, "lines[0].size is not one of 'small', 'large': 'huge'"),
        ({"kind": "old"}, "kind is not one of 'new', 'again': 'old'"),
        ({"places": {"a": [1]}}, "places.a is not a list of 2: [1]"),
        ({"codes": [1, 2.5]}, "codes[1] is not a whole number: 2.5"),
        ({"image": "%%"}, "image is not base64: '%%'"),
        ({"extra": None, "lines": None}, "lines is not a list: None"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_json_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        zhumq.Json(Order).deserialize("orders", json.dumps(BASE | change).encode())
    assert str(caught.value) == reason


def test_unknown_fields_are_ignored_and_missing_ones_take_their_defaults() -> None:
    order = zhumq.Json(Order).deserialize("orders", json.dumps(BASE | {"new": [1]}).encode())
    assert (order.kind, order.codes, order.weight) == ("new", (), None)
    (line,) = order.lines
    assert (line.price, line.size, line.gift) == (Decimal("9.90"), Size.SMALL, None)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": 1', b"1" * 5000], ids=lambda data: str(data[:4])
)  # fmt: skip
def test_json_that_is_none_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        zhumq.Json().deserialize("t", data)


def test_a_type_that_cannot_be_made_of_json_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"socket.*cannot be made of JSON: use a dataclass"):
        zhumq.Json(__import__("socket").socket)


def test_json_without_a_type_is_whatever_json_is() -> None:
    assert (
        zhumq.Json().serialize("t", {"a": [1, None], "b": Size.LARGE})
        == b'{"a":[1,null],"b":"large"}'
    )
    assert zhumq.Json().deserialize("t", b'{"a": [1.5]}') == {"a": [1.5]}
    assert zhumq.Json(list[Line]).deserialize("t", b'[{"item":"x","price":"1"}]')[0].item == "x"


@given(st.text())
def test_text_comes_back(text: str) -> None:
    assert zhumq.Text().deserialize("t", zhumq.Text().serialize("t", text)) == text


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
}
NEWER = SCHEMA | {
    "fields": [*SCHEMA["fields"], {"name": "note", "type": ["null", "string"], "default": None}]  # type: ignore[misc]
}


@dataclass
class Small:
    item: str
    count: int = 1
    note: str | None = None


@given(st.text(), st.integers(-(2**31), 2**31 - 1))
def test_avro_comes_back_and_old_messages_are_read_with_the_new_schema(
    item: str, count: int
) -> None:
    old, new = zhumq.Avro(SCHEMA), zhumq.Avro(json.dumps(NEWER), Small, older=[SCHEMA])
    data = old.serialize("orders", {"item": item, "count": count})
    assert old.deserialize("orders", data) == {"item": item, "count": count}
    assert new.deserialize("orders", data) == Small(item, count)
    assert new.deserialize("orders", new.serialize("orders", Small(item, count, "x"))) == Small(
        item, count, "x"
    )


def test_avro_begins_with_the_fingerprint_of_the_schema() -> None:
    """CRC-64-AVRO of the schema "int" is 7275d51a3f395c8f, and is written with its lowest byte first."""
    data = zhumq.Avro('"int"').serialize("t", 1)  # type: ignore[arg-type]
    assert data[:HEADER_BYTES].hex() == "c301" + bytes.fromhex("7275d51a3f395c8f")[::-1].hex()
    assert data[HEADER_BYTES:] == b"\x02"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not in Avro's single-object encoding"),
        (b"\xc3\x01\x00", "not in Avro's single-object encoding"),
        (b"\0\0\0\0\1rest", "format of a schema registry"),
        (b"\xc3\x01" + b"a" * 8, "no schema has the fingerprint 6161616161616161: add the one"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_avro_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        zhumq.Avro(SCHEMA).deserialize("t", data)


def test_protobuf_comes_back_and_refuses_other_messages() -> None:
    serializer = zhumq.Protobuf(push_pb2.Credit)
    data = serializer.serialize("t", push_pb2.Credit(messages=7))
    assert serializer.deserialize("t", data).messages == 7
    with pytest.raises(TypeError, match="a Pause is not a Credit"):
        serializer.serialize("t", push_pb2.Pause())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a class of messages that protoc has made"):
        zhumq.Protobuf(dict)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (zhumq.Json(Small), {"item": "x"}),
        (zhumq.Json(), float("nan")),
        (zhumq.Json(), object()),
        (zhumq.Text(), b"bytes"),
        (zhumq.Bytes(), "text"),
        (zhumq.Avro(SCHEMA), {"item": 7}),
        (zhumq.Avro(SCHEMA, Small), {"item": "x", "count": 1}),
        (zhumq.Protobuf(push_pb2.Credit), b"bytes"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_value_that_cannot_be_encoded_is_refused_in_one_line(serializer: Any, value: Any) -> None:
    with pytest.raises(EncodeFailed) as caught:
        Codec(serializer, None).encode("orders", value, None)
    assert str(caught.value).startswith("cannot encode the value for 'orders': ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("serializer", "data"),
    [
        (zhumq.Json(Small), b'{"item": 7}'),
        (zhumq.Text(), b"\xff"),
        (zhumq.Avro(SCHEMA), zhumq.Avro(SCHEMA).serialize("t", {"item": "xyz", "count": 1})[:-3]),
        (zhumq.Protobuf(push_pb2.Credit), b"\xff\xff"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_bytes_that_cannot_be_decoded_are_named_by_their_place(
    serializer: Any, data: bytes
) -> None:
    task: Task = Task("orders", 3, 17, data, None, (), None)
    with pytest.raises(DecodeFailed) as caught:
        Codec(None, serializer).decode_task(task)
    assert str(caught.value).startswith("cannot decode the key of orders-3@17: ")
    assert "\n" not in str(caught.value)
    assert caught.value.message is task


def test_no_value_stays_no_value() -> None:
    codec = Codec(zhumq.Json(Small), zhumq.Text())
    assert codec.encode("orders", None, None) == (None, None)
    task = codec.decode_task(Task("orders", 0, 0, None, None, (), None))
    assert (task.value, task.key) == (None, None)


def test_a_class_in_place_of_a_serializer_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"value=.*Small.* is no serializer: for example value=zhumq.Text"
    ):
        zhumq.Producer(value=Small)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="on_undecodable is raise, dead-letter or skip, not 'drop'"
    ):
        zhumq.Worker("t", print, group="g", on_undecodable="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("package", "code", "line"),
    [
        ("fastavro", "zhumq.Avro({})", "Avro needs fastavro: pip install 'zhumq[avro]'"),
        ("google", "zhumq.Protobuf(int)", "Protobuf needs protobuf: pip install 'zhumq[protobuf]'"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_command(package: str, code: str, line: str) -> None:
    program = f"import sys, zhumq\nsys.modules[{package!r}] = None\ntry:\n    {code}\nexcept zhumq.client.errors.ExtraMissing as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == (line, 0), done.stderr


def test_the_type_of_keys_may_be_left_out() -> None:
    for each in (
        zhumq.Consumer, zhumq.Message, zhumq.Producer, zhumq.PushConsumer, zhumq.Task, zhumq.Worker,
        zhumq.aio.Consumer, zhumq.aio.Producer, zhumq.aio.Worker,
    ):  # fmt: skip
        assert each[Small].__args__ == (Small,)
        assert each[Small, str].__args__ == (Small, str)

"""The test oracle kio, an independent Kafka codec: generates messages, and maps its values to ours."""

import dataclasses
import datetime as dt
import enum
import importlib
import io
import re
import typing
import uuid
from functools import cache

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import Message, fields_of

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)

INTEGERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
# Kafka strings longer than 127 bytes need a second length byte.
TEXT = st.one_of(st.text(max_size=6), st.sampled_from(["x" * 127, "y" * 128, "ö" * 300]))
BLOB = st.one_of(st.binary(max_size=6), st.sampled_from([b"\x00" * 127, b"\xff" * 20_000]))


def kio_type(api_name: str, version: int, kind: str, class_name: str) -> type:
    """kio's class for one version of a message: `kio_type("Produce", 9, "request", "ProduceRequest")`."""
    package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api_name).lower()
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    return getattr(module, class_name)


@cache
def messages_of(kio_class: type) -> st.SearchStrategy:
    """Hypothesis strategy for instances of a kio message."""
    return st.builds(
        kio_class,
        **{field.name: _values_of(field) for field in dataclasses.fields(kio_class)},
    )


def encoded(kio_message: object) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(kio_message))(buffer, kio_message)
    return buffer.getvalue()


def decoded(kio_class: type, data: bytes) -> object:
    message, size = entity_reader(kio_class)(data, 0)
    assert size == len(data)
    return message


def assert_same_values(ours: Message, theirs: object) -> None:
    """Assert that each field of kio's message has the same value in ours, and our other fields the default."""
    default = type(ours)()
    known = set()
    for field in dataclasses.fields(theirs):
        name = _our_name(ours, field.name)
        known.add(name)
        _assert_same(getattr(ours, name), getattr(theirs, field.name))
    for spec in fields_of(type(ours)):
        if spec.name not in known:
            assert getattr(ours, spec.name) == getattr(default, spec.name)


def _our_name(ours: Message, kio_name: str) -> str:
    """kio drops the unit of a time, since its values are timedeltas."""
    return kio_name if kio_name in type(ours).__slots__ else f"{kio_name}_ms"


def _assert_same(ours: object, theirs: object) -> None:
    if isinstance(theirs, tuple):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for our_element, their_element in zip(ours, theirs, strict=True):
            _assert_same(our_element, their_element)
    elif dataclasses.is_dataclass(theirs):
        if ours is None:  # a tagged struct with default values
            assert theirs == type(theirs)()
            return
        assert isinstance(ours, Message)
        assert_same_values(ours, theirs)
    elif isinstance(theirs, dt.timedelta):
        assert ours == theirs // MILLISECOND
    elif isinstance(theirs, dt.datetime):
        assert ours == (theirs - EPOCH) // MILLISECOND
    elif theirs is None:
        # kio has None for the zero uuid and for a time of -1.
        assert ours is None or ours == ZERO_UUID or ours == -1
    elif isinstance(theirs, enum.Enum):
        assert ours == theirs.value
    else:
        assert ours == theirs


def _values_of(field: dataclasses.Field) -> st.SearchStrategy:
    hint = field.type
    arguments = typing.get_args(hint)
    optional = type(None) in arguments
    if optional:
        (hint,) = (argument for argument in arguments if argument is not type(None))
    kafka_type = field.metadata.get("kafka_type")
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        elements = (
            messages_of(element) if dataclasses.is_dataclass(element) else _primitives(kafka_type)
        )
        values = st.lists(elements, max_size=2).map(tuple)
    elif dataclasses.is_dataclass(hint):
        values = messages_of(hint)
    else:
        values = _primitives(kafka_type)
    return st.none() | values if optional else values


def _primitives(kafka_type: str) -> st.SearchStrategy:
    if kafka_type in INTEGERS:
        return INTEGERS[kafka_type]
    match kafka_type:
        case "string":
            return TEXT
        case "bytes":
            return BLOB
        case "records":
            return BLOB.map(Records)
        case "bool":
            return st.booleans()
        case "float64":
            return st.floats(allow_nan=False)  # which is not equal to itself
        case "error_code":
            return st.sampled_from(KioErrorCode)
        case "uuid":
            return st.uuids() | st.just(uuid.UUID(int=1))
        case "timedelta_i32":
            return st.integers(-(2**31), 2**31 - 1).map(lambda value: value * MILLISECOND)
        case "timedelta_i64":
            return st.integers(-(10**12), 10**12).map(lambda value: value * MILLISECOND)
        case "datetime_i64":
            return st.integers(0, 10**10).map(lambda value: EPOCH + dt.timedelta(seconds=value))
    raise AssertionError(f"no values for {kafka_type}")

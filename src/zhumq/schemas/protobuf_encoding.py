"""Writes JSON as Protobuf messages of a schema, with the indexes that say which message of the file it is."""

from typing import Any

from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from zhumq.schemas.errors import NotEncoded
from zhumq.schemas.protobuf_types import MessageTypes

_REASON_CHARACTERS = 300


def json_as_protobuf(types: MessageTypes, value: Any, name: str | None) -> bytes:
    """The indexes and the data of a message, whose value is JSON as Protobuf's specification has it.

    Without a name it is the first message of the file. Raises NotEncoded.
    """
    indexes = types.indexes(name)
    if indexes is None:
        known = ", ".join(types.names()[:10])
        raise NotEncoded(
            f"the schema has no message {name!r}, it has {known}"
            if name
            else "the schema has no message"
        )
    type_ = types.at(indexes)
    if not isinstance(value, dict) and types.well_known(type_) is None:
        raise NotEncoded(f"{type_.full_name} is a JSON object")
    message = GetMessageClass(type_)()
    try:
        json_format.ParseDict(value, message, descriptor_pool=types.pool)
        data = message.SerializeToString()
    except (json_format.Error, ValueError, TypeError, AttributeError) as error:
        raise NotEncoded(str(error)[:_REASON_CHARACTERS]) from None
    except RecursionError:
        raise NotEncoded("the value is nested too deeply") from None
    return _indexed(indexes) + data


def _indexed(indexes: tuple[int, ...]) -> bytes:
    # | count zigzag varint | index zigzag varint ... |; the first message is a single zero
    if indexes == (0,):
        return b"\x00"
    return b"".join(_varint(each << 1) for each in (len(indexes), *indexes))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append((value & 0x7F) | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)

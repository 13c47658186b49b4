"""The types that Protobuf's specification gives a JSON of their own."""

from functools import cache
from typing import Final

from google.protobuf import (
    any_pb2,
    duration_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor

# Of each field its name, its type, whether it is repeated, its message and its oneof.
_Shape = tuple[tuple[str, int, bool, str | None, str | None], ...]

WRAPPER: Final = "Wrapper"
_WRAPPERS: Final = (
    "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value",
    "BoolValue", "StringValue", "BytesValue",
)  # fmt: skip


def well_known(type_: Descriptor) -> str | None:
    """The name of a type that Protobuf gives a JSON of its own. Anyone can give a name of these to another message."""
    genuine = _genuine().get(type_.full_name)
    if genuine is None:
        return None
    expected, name = genuine
    return name if _shape(type_) == expected else None


@cache
def _genuine() -> dict[str, tuple[_Shape, str]]:
    modules = (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    types: list[Descriptor] = [
        each for module in modules for each in module.DESCRIPTOR.message_types_by_name.values()
    ]
    return {
        each.full_name: (_shape(each), WRAPPER if each.name in _WRAPPERS else each.name)
        for each in types
    }


def _shape(type_: Descriptor) -> _Shape:
    return tuple(
        (
            each.name,
            each.type,
            each.is_repeated,
            None if each.message_type is None else each.message_type.full_name,
            None if each.containing_oneof is None else each.containing_oneof.name,
        )
        for each in type_.fields
    )

"""A sample of any message with every field filled."""

import uuid
from collections.abc import Iterator
from typing import Any

from zhumq.protocol.api import APIS
from zhumq.protocol.compiler import encoder
from zhumq.protocol.messages import coordinator_records
from zhumq.protocol.schema import (
    STRING,
    ArrayOf,
    Fixed,
    Message,
    StructOf,
    WireType,
    fields_of,
)

RECORD_CLASSES = (
    coordinator_records.ConsumerProtocolSubscription,
    coordinator_records.ConsumerProtocolAssignment,
    coordinator_records.OffsetCommitKey,
    coordinator_records.OffsetCommitValue,
    coordinator_records.GroupMetadataKey,
    coordinator_records.GroupMetadataValue,
)


def all_versions() -> Iterator[tuple[type[Message], int]]:
    """Every message in every version: requests, responses and records of internal topics."""
    for spec in APIS.values():
        for version in range(spec.min_version, spec.max_version + 1):
            yield spec.request, version
            yield spec.response, version
    for cls in RECORD_CLASSES:
        versions = cls.__declared__.versions
        for version in range(versions.first, versions.last + 1):
            yield cls, version


def sample(cls: type[Message], version: int, elements: int = 2) -> Message:
    """A message in which every field of the version differs from its default."""
    return cls(
        **{
            spec.name: _value(spec.type, spec.name, version, elements)
            for spec in fields_of(cls)
            if version in spec.versions
        }
    )


def encode_body(message: Message, version: int) -> bytes:
    parts: list[Any] = []
    encoder(type(message), version)(message, parts)
    return b"".join(parts)


def _value(wire_type: WireType, name: str, version: int, elements: int) -> Any:
    match wire_type:
        case Fixed(code="16s"):
            return uuid.UUID(int=len(name) << 64 | 7)
        case Fixed(code="?"):
            return True
        case Fixed():
            return 3 + len(name)
        case ArrayOf(element):
            return [_value(element, name, version, elements) for _ in range(elements)]
        case StructOf(message):
            return sample(message, version, elements)
    return name if wire_type is STRING else name.encode()

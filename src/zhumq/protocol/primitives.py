"""Primitive types of the wire format: varints, uuids, tagged fields, all with bounds checks."""

import struct
import uuid
from functools import lru_cache

from zhumq.model.errors import MalformedFrame

VARINT_BYTES_MAX = 5
STRING_BYTES_MAX = 0x7FFF  # a legacy string has an int16 length; Kafka holds compact ones to it too
UUIDS_REMEMBERED_MAX = 4096  # topic ids come back in every request, so their objects are shared

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")

# Lengths below 128, which are nearly all of them, are one byte.
SMALL_UVARINTS = tuple(bytes((value,)) for value in range(128))

# What the generated decoders may raise on bad bytes. Their callers turn these into MalformedFrame.
BAD_BYTES = (IndexError, struct.error, UnicodeDecodeError)


def encode_uvarint(value: int) -> bytes:
    # Unrolled by size for speed: it encodes the length of every records field.
    if 0 <= value < 1 << 14:
        if value < 128:
            return SMALL_UVARINTS[value]
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0 < value < 1 << 28:
        if value < 1 << 21:
            return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
        return bytes(
            (
                value & 0x7F | 0x80,
                value >> 7 & 0x7F | 0x80,
                value >> 14 & 0x7F | 0x80,
                value >> 21,
            )
        )
    if not 0 < value < 1 << 32:
        raise ValueError(f"{value} does not fit an unsigned varint")
    low = value & (1 << 28) - 1
    return bytes(low >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)) + bytes((value >> 28,))


def decode_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    """The value and the position after it."""
    byte = buffer[position]
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift == 7 * VARINT_BYTES_MAX:
            raise MalformedFrame(f"a varint is longer than {VARINT_BYTES_MAX} bytes")
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        shift += 7
    if value >> 32:
        raise MalformedFrame("a varint holds more than 32 bits")
    return value, position + 1


@lru_cache(maxsize=UUIDS_REMEMBERED_MAX)
def uuid_from_bytes(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)


def skip_tagged_fields(buffer: bytes, position: int) -> int:
    """The position after a section of unknown tagged fields."""
    count, position = decode_uvarint(buffer, position)
    for _ in range(count):
        _tag, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise MalformedFrame("a tagged field reaches past the end of the frame")
    return position

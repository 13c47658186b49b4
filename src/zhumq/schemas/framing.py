"""Messages that Confluent's serializers have written: a zero byte, the id of the schema, the data."""

import struct
from typing import Final

# | magic u8: 0 | id of the schema u32 | data |
_FRAME: Final = struct.Struct(">BI")
FRAME_BYTES: Final = _FRAME.size
_MAGIC: Final = 0


def schema_id(content: bytes) -> int | None:
    """The id that a message may have; None if it is surely none of these. Any bytes may begin with a zero."""
    if len(content) < FRAME_BYTES:
        return None
    magic, id_ = _FRAME.unpack_from(content)
    return id_ if magic == _MAGIC else None


def unframed(content: bytes) -> bytes:
    """The data behind the id."""
    return content[FRAME_BYTES:]


def framed(id_: int, data: bytes) -> bytes:
    """Data with the id of its schema before it."""
    return _FRAME.pack(_MAGIC, id_) + data

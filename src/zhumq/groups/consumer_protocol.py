"""Reads the topics of a subscription from the consumer protocol's metadata."""

import struct

PROTOCOL_TYPE = "consumer"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription of any version; None if it is not one.

    The embedded protocol only ever appends fields: the first ones have the same layout in every version, so that
    the coordinator can read a later client's metadata.
    """
    # | version i16 | topic count i32 | (length i16, utf-8)* | later fields ... |
    try:
        (version,) = _INT16.unpack_from(metadata, 0)
        (count,) = _INT32.unpack_from(metadata, 2)
        if version < 0 or count < 0:
            return None
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)

"""Reads offset, timestamp, key and tags of each record in a batch without decoding the rest."""

from collections.abc import Iterable, Iterator
from typing import Final

from zhumq.model.message_headers import TAGS_HEADER, split_tags
from zhumq.records.batch import BatchHeader, RecordHeader
from zhumq.records.layout import decode_headers, field_at
from zhumq.records.outline import outline_payload

_TAGS_NAME: Final = TAGS_HEADER.encode()
_NO_TAGS: Final[tuple[bytes, ...]] = ()

# Offset, timestamp, key, tags. A plain tuple: a NamedTuple doubles the cost of the walk.
RecordKeys = tuple[int, int, bytes | None, tuple[bytes, ...]]


def keys_of(header: BatchHeader, payload: bytes) -> Iterator[RecordKeys]:
    """Offset, timestamp, key and tags of the records in a decompressed section."""
    has_tags = _TAGS_NAME in payload  # One search in C for the whole batch.
    tags = _NO_TAGS
    for timestamp, offset, key_begin, key_end, end in outline_payload(header, payload):
        if has_tags:
            tags = _tags_at(payload, key_end, end)
        yield offset, timestamp, None if key_begin < 0 else payload[key_begin:key_end], tags


def _tags_at(payload: bytes, position: int, end: int) -> tuple[bytes, ...]:
    """The tags of a record whose value begins at this position."""
    if payload.find(_TAGS_NAME, position, end) < 0:
        return _NO_TAGS
    _, value_end = field_at(payload, position, end)
    return split_tags(decode_headers(payload, value_end, end).get(_TAGS_NAME))


def tags_of(headers: Iterable[RecordHeader]) -> tuple[bytes, ...]:
    """The tags of a decoded record."""
    found = _NO_TAGS
    for each in headers:
        if each.key == TAGS_HEADER:
            found = split_tags(each.value)  # The last one counts.
    return found

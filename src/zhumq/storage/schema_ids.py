"""The ids of schemas with which the keys and values of a batch begin."""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from zhumq.model.errors import CorruptMessage, InvalidRecord
from zhumq.records.batch import BatchHeader, read_varint
from zhumq.records.outline import outline_payload
from zhumq.schemas.framing import FRAME_BYTES, schema_id
from zhumq.storage.log_config import SchemaRule

NAMED_RECORDS_MAX: Final = 1_000  # the invalid records of a batch that an error lists


class UsedIds(NamedTuple):
    """By id, the first record that has it."""

    of_keys: Mapping[int, int]
    of_values: Mapping[int, int]


class KnownSchemas(Protocol):
    """Knows which ids are registered."""

    def check(self, topic: str, used: UsedIds, *, any_subject: bool) -> None:
        """Raises InvalidRecord for an id that is not registered, and a retriable error while that is not known."""


def used_ids(header: BatchHeader, payload: bytes, rule: SchemaRule) -> UsedIds:
    """The ids in a batch. Raises InvalidRecord if something has none. Nothing at all, as in a tombstone, needs none."""
    keys: dict[int, int] = {}
    values: dict[int, int] = {}
    without: list[int] = []
    what = ""
    for index, (_, _, key_begin, key_end, end) in enumerate(outline_payload(header, payload)):
        if rule.keys and key_begin >= 0:
            found = schema_id(payload[key_begin : min(key_begin + FRAME_BYTES, key_end)])
            if found is None:
                without.append(index)
                what = what or "key"
            else:
                keys.setdefault(found, index)
        if rule.values:
            length, begin = read_varint(payload, key_end)
            if length < 0:
                continue
            if begin + length > end:
                raise CorruptMessage(f"a record's value says it has {length} bytes")
            found = schema_id(payload[begin : begin + min(FRAME_BYTES, length)])
            if found is None:
                if not without or without[-1] != index:
                    without.append(index)
                what = what or "value"
            else:
                values.setdefault(found, index)
    if without:
        raise _without_id(f"the {what} of record {without[0]}", tuple(without[:NAMED_RECORDS_MAX]))
    return UsedIds(keys, values)


def ids_of_message(key: bytes | None, value: bytes | None, rule: SchemaRule) -> UsedIds:
    """The same of one message."""
    keys: dict[int, int] = {}
    values: dict[int, int] = {}
    for what, content, ids in (
        ("key", key if rule.keys else None, keys),
        ("value", value if rule.values else None, values),
    ):
        if content is not None:
            found = schema_id(content)
            if found is None:
                raise _without_id(f"the {what}", (0,))
            ids[found] = 0
    return UsedIds(keys, values)


def _without_id(what: str, indexes: tuple[int, ...]) -> InvalidRecord:
    return InvalidRecord(
        f"{what} does not begin with the id of a schema, which this topic requires (schema.validation):"
        " use a serializer with the schema registry",
        indexes,
    )

"""The fields of messages as columns, each decoded when a filter first needs it: of a batch, or of one message."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, auto
from typing import Final, Protocol, assert_never, cast

from zhumq.filters.syntax import Field, FieldKind
from zhumq.filters.values import Value, as_number
from zhumq.model.errors import CorruptMessage
from zhumq.model.message_headers import TAGS_HEADER, split_tags
from zhumq.records.batch import BatchHeader
from zhumq.records.layout import RecordLayout, decode_headers, layout_records

# What is in a column: values, and of the field `tags` the set of each message, or None.
Column = Sequence[Value] | Sequence[frozenset[str] | None]
_TAGS_KEY: Final = TAGS_HEADER.encode()
# NaN and Infinity are not JSON.
_JSON: Final = json.JSONDecoder(parse_constant=lambda _: None)
_NO_JSON: Final = object()
_UNREAD: Final = object()


class IndexKind(IntEnum):
    """How an index compares values: as texts, as numbers, or tag by tag."""

    TEXT = auto()
    NUMBER = auto()
    TAG = auto()


class Columns(Protocol):
    """Messages by column."""

    def __len__(self) -> int: ...

    def column(self, field: Field) -> Column: ...

    def index(self, field: Field, kind: IndexKind) -> Mapping[object, Sequence[int]]:
        """The positions of the messages with each value of a field."""


class BatchColumns:
    """The records of adjacent batches. All filters on a partition share it, so each part is decoded once.

    `unreadable` are the positions of records whose headers are malformed. No filter can say whether they pass.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self.payload = b""
        self.records: list[RecordLayout] = []
        self.offsets: list[int] = []
        self.unreadable: set[int] = set()
        self._columns: dict[str, Column] = {}
        self._indexes: dict[tuple[str, IndexKind], dict[object, list[int]]] = {}
        self._headers: list[dict[bytes, bytes | None]] | None = None
        self._documents: _Documents | None = None

    def __len__(self) -> int:
        return len(self.records)

    def add(self, sections: Sequence[tuple[BatchHeader, bytes]]) -> list[bool]:
        """Add the records of batches, before any column is read; for each batch: False if it is corrupt."""
        shift = 0
        outcomes: list[bool] = []
        for header, section in sections:
            try:
                self.records += layout_records(header, section, shift)
            except CorruptMessage:
                outcomes.append(False)
            else:
                outcomes.append(True)
            shift += len(section)
        self.payload = b"".join(section for _, section in sections)
        self.offsets = [each.offset for each in self.records]
        return outcomes

    def column(self, field: Field) -> Column:
        found = self._columns.get(field.label)
        if found is None:
            found = self._columns[field.label] = self._decode(field)
        return found

    def index(self, field: Field, kind: IndexKind) -> Mapping[object, Sequence[int]]:
        found = self._indexes.get((field.label, kind))
        if found is None:
            found = self._indexes[field.label, kind] = _index(self.column(field), kind)
        return found

    def _decode(self, field: Field) -> Column:
        match field.kind:
            case FieldKind.HEADER:
                name = field.name.encode()
                return [_text(headers.get(name)) for headers in self._all_headers()]
            case FieldKind.TAGS:
                return [_tags(headers.get(_TAGS_KEY)) for headers in self._all_headers()]
            case FieldKind.KEY:
                payload = self.payload
                return [
                    None if each.key_begin < 0 else _text(payload[each.key_begin : each.key_end])
                    for each in self.records
                ]
            case FieldKind.VALUE:
                if self._documents is None:
                    self._documents = _Documents(self._values())
                return _JsonColumn(self._documents, field.path)
            case FieldKind.TOPIC:
                return [self._topic] * len(self)
            case FieldKind.PARTITION:
                return [self._partition] * len(self)
            case FieldKind.OFFSET:
                return self.offsets
            case FieldKind.TIMESTAMP:
                return [each.timestamp for each in self.records]

    def _all_headers(self) -> list[dict[bytes, bytes | None]]:
        if self._headers is None:
            self._headers = [self._decode_headers(position) for position in range(len(self))]
        return self._headers

    def _decode_headers(self, position: int) -> dict[bytes, bytes | None]:
        try:
            record = self.records[position]
            return decode_headers(self.payload, record.value_end, record.end)
        except CorruptMessage:
            self.unreadable.add(position)
            return {}

    def _values(self) -> "list[memoryview | None]":
        view = memoryview(self.payload)
        return [
            None if each.value_begin < 0 else view[each.value_begin : each.value_end]
            for each in self.records
        ]


class MessageColumns:
    """One message as columns with one element each."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> None:
        self._facts: dict[FieldKind, Value] = {
            FieldKind.TOPIC: topic,
            FieldKind.PARTITION: partition,
            FieldKind.OFFSET: offset,
            FieldKind.TIMESTAMP: timestamp_ms,
        }
        self._key = key
        self._headers = dict(headers)
        self._documents = _Documents([value])

    def __len__(self) -> int:
        return 1

    def column(self, field: Field) -> Column:
        match field.kind:
            case FieldKind.HEADER:
                return [_text(self._headers.get(field.name))]
            case FieldKind.TAGS:
                return [_tags(self._headers.get(TAGS_HEADER))]
            case FieldKind.KEY:
                return [_text(self._key)]
            case FieldKind.VALUE:
                return _JsonColumn(self._documents, field.path)
            case _:
                return [self._facts[field.kind]]

    def index(self, field: Field, kind: IndexKind) -> Mapping[object, Sequence[int]]:
        return _index(self.column(field), kind)


class _Documents:
    """The JSON documents of messages, each parsed when it is first asked for."""

    def __init__(self, values: "Sequence[bytes | memoryview | None]") -> None:
        self._values = values
        self._parsed: list[object] = [_UNREAD] * len(values)

    def __len__(self) -> int:
        return len(self._values)

    def at(self, position: int) -> object:
        """The document; _NO_JSON if the value is none."""
        document = self._parsed[position]
        if document is _UNREAD:
            document = self._parsed[position] = _parse(self._values[position])
        return document


class _JsonColumn(Sequence[Value]):
    """The part at one path of each document."""

    __slots__ = ("_documents", "_path")

    def __init__(self, documents: _Documents, path: tuple[str | int, ...]) -> None:
        self._documents = documents
        self._path = path

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, position: int) -> Value:  # type: ignore[override]
        part = self._documents.at(position)
        for step in self._path:
            if isinstance(part, dict):
                part = part.get(step)
            elif isinstance(part, list) and isinstance(step, int) and step < len(part):
                part = part[step]
            else:
                return None
        return cast("Value", part)

    def __iter__(self) -> Iterator[Value]:
        return (self[position] for position in range(len(self)))


def _parse(value: "bytes | memoryview | None") -> object:
    if value is None:
        return _NO_JSON
    try:
        return _JSON.decode(str(value, "utf-8"))
    except (ValueError, RecursionError):
        # Not JSON, or nested deeper than the parser goes.
        return _NO_JSON


def _text(value: bytes | None) -> str | None:
    """NULL if the bytes are no text."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _tags(value: bytes | None) -> frozenset[str] | None:
    if _text(value) is None:
        return None
    return frozenset(tag.decode() for tag in split_tags(value)) or None


def _index(column: Column, kind: IndexKind) -> dict[object, list[int]]:
    found: defaultdict[object, list[int]] = defaultdict(list)
    # One loop for each kind: it runs over every message.
    match kind:
        case IndexKind.TEXT:
            for position, value in enumerate(column):
                if isinstance(value, str):
                    found[value].append(position)
        case IndexKind.NUMBER:
            for position, value in enumerate(column):
                if (number := as_number(cast("Value", value))) is not None:
                    found[number].append(position)
        case IndexKind.TAG:
            for position, value in enumerate(column):
                if isinstance(value, frozenset):
                    for tag in value:
                        found[tag].append(position)
        case _:
            assert_never(kind)
    # A lookup of another value adds nothing.
    return dict(found)

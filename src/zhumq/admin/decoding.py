"""Messages whose schemas the registry has, as JSON: for those who look at them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from zhumq.admin.errors import AdminError
from zhumq.admin.schema_log import SchemaLink
from zhumq.admin.schema_store import SchemaStore
from zhumq.schemas.errors import InvalidSchema, NotDecoded, SchemaNotFound
from zhumq.schemas.formats import Parsed, Resolved
from zhumq.schemas.framing import schema_id, unframed
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import Schema, Version

CHARACTERS_MAX: Final = 1_000_000  # of the JSON of one message
ALL_CHARACTERS_MAX: Final = 4_000_000  # of all messages of a page

# Of a page, before the last schema that is parsed for it: that of Protobuf is compiled by a process.
PARSE_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMessage:
    """What a message is by its schema. Either its JSON, or why there is none."""

    schema_id: int
    subject: str  # the one that the schema was registered for; of several, the one that the topic's name makes
    version: int
    type: str
    message: str | None = None  # of Protobuf: which message of the file
    text: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    schema: Schema
    resolved: Resolved
    versions: list[Version]


class MessageDecoder:
    """Decodes the messages of one page, with the rights of a caller to the registry.

    Its work is bounded: what is beyond the bounds has a reason in the place of JSON.
    """

    def __init__(
        self, store: SchemaStore, link: SchemaLink, contents: Iterable[bytes | None]
    ) -> None:
        """`contents` are all that will be decoded: the registry is asked once for their schemas."""
        self._store = store
        self._characters_left = ALL_CHARACTERS_MAX
        self._parse_seconds_left = PARSE_SECONDS_MAX
        self._failed: dict[int, InvalidSchema] = {}
        self._known: dict[int, _Known] = {}
        ids = {id_ for each in contents if each is not None and (id_ := schema_id(each))}
        if ids:
            try:
                self._known = store.read(link, lambda registry: _look_up(registry, ids))
            except AdminError:
                # Who may not read the registry sees bytes, as without one.
                return

    def decode(self, content: bytes | None, subject: str) -> DecodedMessage | None:
        """The JSON of a key or a value. None: it does not begin with the id of a schema that the registry has."""
        id_ = schema_id(content) if content is not None else None
        if content is None or id_ is None or id_ not in self._known:
            return None
        known = self._known[id_]
        version = next(
            (each for each in known.versions if each.subject == subject), known.versions[0]
        )
        text = reason = message = None
        try:
            text = self._as_json(id_, known, unframed(content))
            message = self._parsed(id_, known).message_of(unframed(content))
        except (NotDecoded, InvalidSchema) as error:
            reason = str(error)
        return DecodedMessage(
            schema_id=id_,
            subject=version.subject,
            version=version.version,
            type=known.schema.type,
            message=message,
            text=text,
            reason=reason,
        )

    def _as_json(self, id_: int, known: _Known, data: bytes) -> str:
        if self._characters_left <= 0:
            raise NotDecoded("too much of this page is decoded already: open the message alone")
        room = min(CHARACTERS_MAX, self._characters_left)
        parsed = self._parsed(id_, known)
        spent = room  # What turns out to be too large was as much work as what is not.
        try:
            text = parsed.as_json(data, room)
            spent = len(text)
        finally:
            self._characters_left -= spent
        return text

    def _parsed(self, id_: int, known: _Known) -> Parsed:
        """The schema of a message. One that cannot be parsed is not tried again for this page."""
        if id_ in self._failed:
            raise self._failed[id_]
        if self._parse_seconds_left <= 0:
            raise NotDecoded("the schemas of this page take too long: open the message alone")
        begin = time.monotonic()
        try:
            return self._store.formats.parse(known.schema, known.resolved)
        except InvalidSchema as error:
            self._failed[id_] = error
            raise
        finally:
            self._parse_seconds_left -= time.monotonic() - begin


def _look_up(registry: Registry, ids: Iterable[int]) -> dict[int, _Known]:
    found = {}
    for id_ in ids:
        try:
            schema = registry.schema(id_)
            versions = registry.with_id(id_, deleted=True)
            resolved = registry.resolve(schema.references)
        except (SchemaNotFound, InvalidSchema):
            continue
        if versions:
            found[id_] = _Known(schema=schema, resolved=resolved, versions=versions)
    return found

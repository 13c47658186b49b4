"""A request to the registry as its handlers see it: names, parameters and the body. What is not known is ignored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec

from zhumq.admin.schema_log import SchemaLink
from zhumq.admin.schema_store import SchemaStore
from zhumq.schemas.changes import Change, NewSchema
from zhumq.schemas.errors import InvalidSchema, InvalidVersion, SchemaError
from zhumq.schemas.formats import Formats
from zhumq.schemas.log_records import compact
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import Reference, Schema, SchemaType

VERSION_MAX: Final = 2**31 - 1
LATEST: Final = "latest"

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class BadRequest(SchemaError):
    """The request is not as Confluent's registry describes it."""

    error_code = 422


class ReferenceBody(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    subject: str
    version: int


class SchemaBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client sends to register, look up or check a schema. Fields of newer clients are ignored."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. The link has the rights of its caller."""

    store: SchemaStore
    link: SchemaLink
    names: Mapping[str, str]  # of the path, percent-encoded
    query: Mapping[str, str]
    body: bytes

    @property
    def formats(self) -> Formats:
        return self.store.formats

    def read(self, ask: Callable[[Registry], Answer]) -> Answer:
        return self.store.read(self.link, ask)

    def change(self, decide: Callable[[Registry], Change[Answer]]) -> Answer:
        return self.store.change(self.link, decide)

    @property
    def subject(self) -> str:
        try:
            return unquote(self.names["subject"], errors="strict")
        except UnicodeDecodeError:
            raise BadRequest("the subject is not UTF-8") from None

    @property
    def version(self) -> int | None:
        """The version of the path; None: the latest."""
        text = self.names["version"]
        if text in (LATEST, "-1"):
            return None
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:20]) <= VERSION_MAX:
            raise InvalidVersion(text)
        return int(text)

    @property
    def id(self) -> int:
        text = self.names["id"]
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            raise BadRequest(f"an id is a number, not {text[:40]!r}")
        return int(text)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def page(self, items: Sequence[Item]) -> list[Item]:
        """The items from `offset` on, up to `limit` of them."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        return list(items[max(0, offset) :])[: limit if limit >= 0 else None]

    def _number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else default

    def decode(self, type_: type[Answer]) -> Answer:
        """The body. Raises BadRequest."""
        try:
            return msgspec.json.decode(self.body, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is invalid: {error}") from None

    def new_schema(self) -> NewSchema:
        """The schema of the body. Raises BadRequest, InvalidSchema."""
        body = self.decode(SchemaBody)
        kind = body.schema_type or SchemaType.AVRO
        if kind not in set(SchemaType):
            raise InvalidSchema(f"a schema type is {', '.join(SchemaType)}, not {kind[:40]!r}")
        if body.schema is None:
            raise InvalidSchema("the schema is empty")
        schema = Schema(
            type=SchemaType(kind),
            text=body.schema,
            references=tuple(
                Reference(name=each.name, subject=each.subject, version=each.version)
                for each in body.references or ()
            ),
            metadata=_kept(body.metadata),
            rule_set=_kept(body.rule_set),
        )
        return NewSchema(
            schema=schema,
            id=body.id if body.id is not None and body.id >= 0 else None,
            version=body.version if body.version is not None and body.version > 0 else None,
            normalize=self.flag("normalize"),
        )


def _kept(value: dict[str, Any] | None) -> str | None:
    return None if value is None else compact(value)

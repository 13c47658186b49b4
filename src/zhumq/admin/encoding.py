"""JSON as messages with the id of a schema of the registry, as Confluent's serializers write them."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schema_log import SchemaLink
from zhumq.admin.schema_store import SchemaStore
from zhumq.schemas.errors import NotEncoded
from zhumq.schemas.formats import Parsed
from zhumq.schemas.framing import framed
from zhumq.schemas.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChoice:
    """A version of a subject, the latest if it has no number; and of a .proto file the message, its first if it has no name."""

    subject: str
    version: int | None = None
    message: str | None = None


@contextlib.contextmanager
def open_encoder(connection: ClusterConnection) -> Iterator["MessageEncoder"]:
    """An encoder for a program that has no registry in memory."""
    store, link = SchemaStore(), SchemaLink(connection)
    try:
        yield MessageEncoder(store, link)
    finally:
        store.close()
        link.close()


class MessageEncoder:
    """Encodes the messages of one request, with the rights of a caller to the registry."""

    def __init__(self, store: SchemaStore, link: SchemaLink) -> None:
        self._store = store
        self._link = link
        self._known: dict[tuple[str, int | None], tuple[int, Parsed]] = {}

    def encode(self, text: str, choice: SchemaChoice) -> bytes:
        """The id of a schema and the data that JSON is by it.

        Raises SubjectNotFound, VersionNotFound, InvalidSchema, and NotEncoded if the text is not what the schema says.
        """
        id_, parsed = self._parsed(choice)
        try:
            data = parsed.from_json(_read(text), choice.message)
        except NotEncoded as error:
            version = (
                "the latest version" if choice.version is None else f"version {choice.version}"
            )
            raise NotEncoded(f"it does not fit {version} of {choice.subject!r}: {error}") from None
        # JSON stays as it is written: its numbers are not read and written again.
        return framed(id_, text.encode() if data is None else data)

    def _parsed(self, choice: SchemaChoice) -> tuple[int, Parsed]:
        key = (choice.subject, choice.version)
        if key not in self._known:

            def look_up(registry: Registry) -> Any:
                found = registry.version(*key)
                return found, registry.resolve(found.schema.references)

            version, resolved = self._store.read(self._link, look_up)
            self._known[key] = (version.id, self._store.formats.parse(version.schema, resolved))
        return self._known[key]


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise NotEncoded("the JSON is nested too deeply") from None
    except ValueError as error:
        raise NotEncoded(f"it is no JSON: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")

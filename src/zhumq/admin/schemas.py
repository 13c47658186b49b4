"""Schemas of the registry: list, show, register, check and delete them, without a web process."""

import contextlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schema_log import SchemaLink
from zhumq.admin.schema_store import SchemaStore
from zhumq.schemas import changes
from zhumq.schemas.changes import NewSchema
from zhumq.schemas.compatibility import incompatibilities
from zhumq.schemas.errors import SubjectNotFound
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import Reference, Schema, SchemaType, Version

_PACKAGES: Final = ("fastavro", "jsonschema", "grpc_tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSummary:
    """A subject of a listing, with what holds for its next version."""

    subject: str
    type: str
    versions: tuple[int, ...]
    latest_id: int
    compatibility: str
    mode: str
    is_deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlace:
    """A version of a subject."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSummary:
    """A version of a subject without its text, and what refers to it."""

    version: int
    id: int
    type: str
    is_deleted: bool
    references: tuple[Reference, ...]
    referenced_by: tuple[SchemaPlace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDetails:
    """A subject with all its versions, also the deleted ones, and what holds for its next version."""

    subject: str
    compatibility: str
    has_own_compatibility: bool  # else it is that of all subjects
    mode: str
    versions: tuple[VersionSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    type: str
    schema: str
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableSchema(RegisteredSchema):
    """A version of a subject with all that is needed to read what was written with it."""

    # The names and texts of what it refers to, also through others, each after those that it uses itself.
    uses: tuple[tuple[str, str], ...]


def list_subjects(connection: ClusterConnection, *, prefix: str = "") -> list[SubjectSummary]:
    """The subjects by name, without those that are deleted."""
    with _store(connection) as (store, link):
        found = store.read(link, subject_summaries)
    return [each for each in found if each.subject.startswith(prefix)]


def subject_summaries(registry: Registry, *, deleted: bool = False) -> list[SubjectSummary]:
    """The subjects of a registry by name; those with all versions deleted only if they are asked for."""
    found = []
    for subject in registry.subjects(deleted=deleted):
        is_deleted = not registry.has(subject)
        versions = registry.versions(subject, deleted=is_deleted)
        found.append(
            SubjectSummary(
                subject=subject,
                type=versions[-1].schema.type,
                versions=tuple(each.version for each in versions),
                latest_id=versions[-1].id,
                compatibility=registry.level(subject),
                mode=registry.mode(subject),
                is_deleted=is_deleted,
            )
        )
    return found


def subject_details(registry: Registry, subject: str) -> SubjectDetails:
    """A subject of a registry with all its versions. Raises SubjectNotFound."""
    versions = registry.versions(subject, deleted=True)
    if not versions:
        raise SubjectNotFound(subject)
    return SubjectDetails(
        subject=subject,
        compatibility=registry.level(subject),
        has_own_compatibility=registry.has_config(subject),
        mode=registry.mode(subject),
        versions=tuple(
            VersionSummary(
                version=each.version,
                id=each.id,
                type=each.schema.type,
                is_deleted=each.is_deleted,
                references=each.schema.references,
                referenced_by=tuple(
                    SchemaPlace(subject=other.subject, version=other.version)
                    for other in registry.referrers(subject, each.version)
                ),
            )
            for each in versions
        ),
    )


def missing_packages() -> list[str]:
    """The packages of zhumq[registry] that are not installed: without them schemas cannot be parsed."""
    return [each for each in _PACKAGES if importlib.util.find_spec(each) is None]


def show_schema(
    connection: ClusterConnection, subject: str, version: int | None = None
) -> RegisteredSchema:
    """A version of a subject; None is the latest. Raises SubjectNotFound, VersionNotFound."""
    with _store(connection) as (store, link):
        return _shown(store.read(link, lambda registry: registry.version(subject, version)))


def show_versions(connection: ClusterConnection, subject: str) -> list[ReadableSchema]:
    """All versions of a subject with what they use, the oldest first. Raises SubjectNotFound, InvalidSchema."""

    def ask(registry: Registry) -> list[ReadableSchema]:
        return [_readable(registry, each) for each in registry.versions(subject)]

    with _store(connection) as (store, link):
        found = store.read(link, ask)
    if not found:
        raise SubjectNotFound(subject)
    return found


def register_schema(
    connection: ClusterConnection,
    subject: str,
    text: str,
    *,
    type_: SchemaType = SchemaType.AVRO,
    references: Sequence[Reference] = (),
    normalize: bool = False,
) -> RegisteredSchema:
    """Register a schema as the next version of a subject, unless it is one of its versions.

    Raises InvalidSchema, Incompatible and NotPermitted.
    """
    new = _new(text, type_, references, normalize=normalize)
    with _store(connection) as (store, link):
        made = store.change(
            link, lambda registry: changes.register(registry, store.formats, subject, new)
        )
    return _shown(made)


def check_schema(
    connection: ClusterConnection,
    subject: str,
    text: str,
    *,
    type_: SchemaType = SchemaType.AVRO,
    references: Sequence[Reference] = (),
) -> list[str]:
    """Why a schema cannot be the next version of a subject; empty if it can. Raises InvalidSchema."""
    new = _new(text, type_, references, normalize=False)
    with _store(connection) as (store, link):

        def ask(registry: Registry) -> list[str]:
            schema = changes.canonical(
                registry, store.formats, subject, new.schema, normalize=False
            )
            versions, level = registry.versions(subject), registry.level(subject)
            return incompatibilities(registry, store.formats, schema, versions, level)

        return store.read(link, ask)


def delete_schema(
    connection: ClusterConnection,
    subject: str,
    version: int | None = None,
    *,
    permanent: bool = False,
) -> list[int]:
    """Delete a version of a subject, or all of them. The versions that were deleted.

    `permanent` removes what is deleted already. Raises SubjectNotFound, ReferenceExists and others.
    """

    def decide(registry: Registry) -> Any:
        if version is None:
            return changes.delete_subject(registry, subject, permanent=permanent)
        made = changes.delete_version(registry, subject, version, permanent=permanent)
        return changes.Change(records=made.records, answer=[made.answer])

    with _store(connection) as (store, link):
        found: list[int] = store.change(link, decide)
        return found


@contextlib.contextmanager
def _store(connection: ClusterConnection) -> Iterator[tuple[SchemaStore, SchemaLink]]:
    store, link = SchemaStore(), SchemaLink(connection)
    try:
        yield store, link
    finally:
        store.close()
        link.close()


def _new(
    text: str, type_: SchemaType, references: Sequence[Reference], *, normalize: bool
) -> NewSchema:
    schema = Schema(type=type_, text=text, references=tuple(references))
    return NewSchema(schema=schema, normalize=normalize)


def _shown(version: Version) -> RegisteredSchema:
    return RegisteredSchema(
        subject=version.subject,
        version=version.version,
        id=version.id,
        type=version.schema.type,
        schema=version.schema.text,
        references=version.schema.references,
    )


def _readable(registry: Registry, version: Version) -> ReadableSchema:
    resolved = registry.resolve(version.schema.references)
    return ReadableSchema(
        subject=version.subject,
        version=version.version,
        id=version.id,
        type=version.schema.type,
        schema=version.schema.text,
        references=version.schema.references,
        uses=tuple((name, each.text) for name, each in resolved),
    )

"""The state of the registry, which its records make: every lookup, and nothing that decides about a change."""

from collections.abc import Iterator
from typing import Final

from zhumq.schemas.errors import (
    InvalidSchema,
    LevelNotConfigured,
    ModeNotConfigured,
    SchemaNotFound,
    SubjectNotFound,
    VersionNotFound,
)
from zhumq.schemas.log_records import (
    ConfigRecord,
    DeleteSubjectRecord,
    LogRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
)
from zhumq.schemas.schema import Level, Mode, Reference, Schema, SubjectConfig, Version

LEVEL_DEFAULT: Final = Level.BACKWARD
REFERENCES_MAX: Final = 200  # that a schema uses, also through others

Place = tuple[str, int]  # a subject and a version


class Registry:
    """The subjects with their versions. `replay` is the only way to change them."""

    def __init__(self) -> None:
        self.max_id = 0  # the largest id that was ever given
        self._subjects: dict[str, dict[int, Version]] = {}
        self._schemas: dict[int, Schema] = {}
        self._ids: dict[bytes, int] = {}  # by the digest of the schema
        self._places: dict[int, set[Place]] = {}  # the versions that have an id
        self._referrers: dict[Place, set[Place]] = {}  # the versions that refer to a version
        self._configs: dict[str | None, SubjectConfig] = {}
        self._modes: dict[str | None, Mode] = {}

    # What the records say

    def replay(self, record: LogRecord) -> None:
        """Apply a record. It never fails: what makes no sense has no effect."""
        match record:
            case SchemaRecord(value=None):
                self._remove(record.subject, record.version)
            case SchemaRecord(value=Version() as version):
                self._remove(record.subject, record.version)
                self._add(version)
            case ConfigRecord():
                _set(self._configs, record.subject, record.value)
            case ModeRecord():
                _set(self._modes, record.subject, record.value)
            case DeleteSubjectRecord(version=int() as last):
                for version in list(self._subjects.get(record.subject, {}).values()):
                    if version.version <= last and not version.is_deleted:
                        self._put(_deleted(version))
            case DeleteSubjectRecord():
                pass
            case NoopRecord():
                self.max_id = max(self.max_id, record.max_id)

    def _add(self, version: Version) -> None:
        known = self._schemas.setdefault(version.id, version.schema)
        if known == version.schema:
            # Versions of one schema share its text.
            version = Version(
                subject=version.subject,
                version=version.version,
                id=version.id,
                schema=known,
                is_deleted=version.is_deleted,
            )
        self._ids.setdefault(version.schema.digest, version.id)
        self._put(version)
        place = (version.subject, version.version)
        self._places.setdefault(version.id, set()).add(place)
        for each in version.schema.references:
            self._referrers.setdefault((each.subject, each.version), set()).add(place)
        self.max_id = max(self.max_id, version.id)

    def _put(self, version: Version) -> None:
        self._subjects.setdefault(version.subject, {})[version.version] = version

    def _remove(self, subject: str, number: int) -> None:
        version = self._subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        place = (subject, number)
        if not self._subjects[subject]:
            del self._subjects[subject]
        for each in version.schema.references:
            referrers = self._referrers.get((each.subject, each.version), set())
            referrers.discard(place)
            if not referrers:
                self._referrers.pop((each.subject, each.version), None)
        places = self._places[version.id]
        places.discard(place)
        if not places:
            del self._places[version.id]
            for schema in (self._schemas.pop(version.id), version.schema):
                if self._ids.get(schema.digest) == version.id:
                    del self._ids[schema.digest]

    # Lookups

    def subjects(self, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """The names of subjects, sorted; those with all versions deleted only if they are asked for."""
        found = []
        for name, versions in self._subjects.items():
            is_live = any(not each.is_deleted for each in versions.values())
            if not is_live if deleted_only else (is_live or deleted):
                found.append(name)
        return sorted(found)

    def has(self, subject: str, *, deleted: bool = False) -> bool:
        versions = self._subjects.get(subject, {})
        return any(deleted or not each.is_deleted for each in versions.values())

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, the oldest first. Empty: there is no such subject."""
        versions = self._subjects.get(subject, {})
        return [
            versions[each] for each in sorted(versions) if deleted or not versions[each].is_deleted
        ]

    def version(self, subject: str, number: int | None, *, deleted: bool = False) -> Version:
        """A version of a subject; None is the latest. Raises SubjectNotFound, VersionNotFound."""
        versions = self.versions(subject, deleted=deleted)
        if not versions:
            raise SubjectNotFound(subject)
        if number is None:
            return versions[-1]
        found = self._subjects[subject].get(number)
        if found is None or (found.is_deleted and not deleted):
            raise VersionNotFound(number)
        return found

    def schema(self, id_: int) -> Schema:
        """The schema with an id, also a deleted one. Raises SchemaNotFound."""
        found = self._schemas.get(id_)
        if found is None:
            raise SchemaNotFound(f"there is no schema with the id {id_}")
        return found

    def has_id(self, id_: int) -> bool:
        return id_ in self._schemas

    def with_id(self, id_: int, *, deleted: bool = False) -> list[Version]:
        """The versions that have an id. Raises SchemaNotFound."""
        self.schema(id_)
        found = [self._subjects[subject][number] for subject, number in sorted(self._places[id_])]
        return [each for each in found if deleted or not each.is_deleted]

    def id_of(self, schema: Schema) -> int | None:
        """The id that just this schema has."""
        return self._ids.get(schema.digest)

    def id_of_digest(self, digest: bytes) -> int:
        """Raises SchemaNotFound."""
        if digest not in self._ids:
            raise SchemaNotFound("there is no schema with this guid")
        return self._ids[digest]

    def find(self, subject: str, schema: Schema, *, deleted: bool = False) -> Version | None:
        """The newest version of a subject that is just this schema."""
        for each in reversed(self.versions(subject, deleted=deleted)):
            if each.schema == schema:
                return each
        return None

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[Version]:
        """The versions that refer to a version."""
        places = sorted(self._referrers.get((subject, number), ()))
        found = [self._subjects[name][each] for name, each in places]
        return [each for each in found if deleted or not each.is_deleted]

    def resolve(self, references: tuple[Reference, ...]) -> list[tuple[str, Schema]]:
        """The schemas that are referred to, each after those that it uses itself, with the names that are used.

        Raises InvalidSchema for one that does not exist, for a circle, and for too many.
        """
        found: dict[str, Schema] = {}
        for each in references:
            self._resolve(each, found, ())
        return list(found.items())

    def _resolve(
        self, reference: Reference, found: dict[str, Schema], path: tuple[Place, ...]
    ) -> None:
        place = (reference.subject, reference.version)
        if place in path:
            raise InvalidSchema(
                f"the references form a circle: {reference.subject!r} version {reference.version}"
            )
        # Deleted versions are found as well: others may still use them.
        version = self._subjects.get(reference.subject, {}).get(reference.version)
        if version is None:
            raise InvalidSchema(
                f"the reference {reference.name!r} leads to version {reference.version} of"
                f" {reference.subject!r}, which does not exist: register it first"
            )
        if reference.name in found:
            return
        if len(found) + len(path) >= REFERENCES_MAX:
            raise InvalidSchema(f"the schema uses more than {REFERENCES_MAX} others")
        for each in version.schema.references:
            self._resolve(each, found, (*path, place))
        found[reference.name] = version.schema

    def level(self, subject: str) -> Level:
        """The compatibility level that applies to a subject."""
        own, common = self._configs.get(subject), self._configs.get(None)
        return (own and own.level) or (common and common.level) or LEVEL_DEFAULT

    def normalizes(self, subject: str) -> bool:
        own, common = self._configs.get(subject), self._configs.get(None)
        if own is not None and own.normalize is not None:
            return own.normalize
        return common is not None and common.normalize is True

    def own_config(self, subject: str | None) -> SubjectConfig:
        """The settings of a subject, or of all. Raises LevelNotConfigured."""
        found = self._configs.get(subject)
        if found is None and subject is not None:
            raise LevelNotConfigured(subject)
        return found or SubjectConfig(level=LEVEL_DEFAULT)

    def has_config(self, subject: str | None) -> bool:
        return subject in self._configs

    def mode(self, subject: str | None) -> Mode:
        """The mode that applies to a subject."""
        common = self._modes.get(None, Mode.READWRITE)
        return common if subject is None else self._modes.get(subject, common)

    def own_mode(self, subject: str) -> Mode:
        """Raises ModeNotConfigured."""
        if subject not in self._modes:
            raise ModeNotConfigured(subject)
        return self._modes[subject]

    def has_mode(self, subject: str | None) -> bool:
        return subject in self._modes

    def all_versions(self, *, deleted: bool = False) -> Iterator[Version]:
        """The versions of all subjects, by subject and version."""
        for subject in self.subjects(deleted=deleted):
            yield from self.versions(subject, deleted=deleted)


def _deleted(version: Version) -> Version:
    return Version(
        subject=version.subject,
        version=version.version,
        id=version.id,
        schema=version.schema,
        is_deleted=True,
    )


def _set(values: dict, key: str | None, value: object) -> None:  # type: ignore[type-arg]
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value

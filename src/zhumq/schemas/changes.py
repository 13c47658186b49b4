"""Changes of the registry: given its state and what is asked for, the records to write and the answer."""

from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from zhumq.schemas.compatibility import check_compatible
from zhumq.schemas.errors import (
    IdTaken,
    InvalidSchema,
    InvalidSubject,
    LevelNotConfigured,
    ModeNotConfigured,
    NotPermitted,
    ReferenceExists,
    SchemaTooLarge,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from zhumq.schemas.formats import Formats
from zhumq.schemas.log_records import (
    ConfigRecord,
    DeleteSubjectRecord,
    LogRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
)
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import (
    SUBJECT_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    Mode,
    Schema,
    SubjectConfig,
    Version,
)

ID_MAX: Final = 2**31 - 1  # a message has the id of its schema in four bytes

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[Answer]):
    """What to write, in one transaction, and what to answer then. No records: nothing has to change."""

    records: tuple[LogRecord, ...]
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchema:
    """A schema to register. Only an import has the id, and only an import may choose the version."""

    schema: Schema
    id: int | None = None
    version: int | None = None
    normalize: bool = False


def check_subject(subject: str) -> None:
    """Raises InvalidSubject."""
    if not subject or len(subject) > SUBJECT_CHARACTERS_MAX or any(ord(each) < 32 for each in subject):  # fmt: skip
        raise InvalidSubject(
            f"a subject has 1 to {SUBJECT_CHARACTERS_MAX} characters, and none of them is a control character"
        )
    if subject in ("__GLOBAL", "__EMPTY") or subject.startswith(":."):
        raise InvalidSubject(
            f"{subject[:40]!r} is a name that Confluent's registry keeps for itself"
        )


def canonical(
    registry: Registry, formats: Formats, subject: str, schema: Schema, *, normalize: bool
) -> Schema:
    """A schema with its text as it is kept. Raises InvalidSchema, SchemaTooLarge."""
    if len(schema.text) > TEXT_CHARACTERS_MAX:
        raise SchemaTooLarge(
            f"the schema has {len(schema.text)} characters, more than {TEXT_CHARACTERS_MAX}"
        )
    if not schema.text.strip():
        raise InvalidSchema("the schema is empty")
    parsed = formats.parse(schema, registry.resolve(schema.references))
    normalize = normalize or registry.normalizes(subject)
    return replace(schema, text=parsed.normalized() if normalize else parsed.text)


def find_registered(
    registry: Registry,
    formats: Formats,
    subject: str,
    new: NewSchema,
    *,
    deleted: bool = False,
) -> Version | None:
    """The version of a subject that a schema is registered as."""
    return registry.find(
        subject,
        canonical(registry, formats, subject, new.schema, normalize=new.normalize),
        deleted=deleted,
    )


def register(registry: Registry, formats: Formats, subject: str, new: NewSchema) -> Change[Version]:
    """Register a schema as the next version of a subject, unless it is one of its versions."""
    check_subject(subject)
    mode = registry.mode(subject)
    _check_mode(subject, mode, is_import=new.id is not None)
    schema = canonical(registry, formats, subject, new.schema, normalize=new.normalize)
    if new.id is None:
        known = registry.find(subject, schema)
        if known is not None and new.version is None:
            return Change(records=(), answer=known)
    every = registry.versions(subject, deleted=True)
    next_version = every[-1].version + 1 if every else 1
    number = next_version if new.version is None else new.version
    if mode is not Mode.IMPORT:
        if number != next_version:
            raise InvalidSchema(f"the next version of {subject!r} is {next_version}, not {number}")
        check_compatible(registry, formats, subject, schema)
    given = _id_of_import(registry, schema, new.id) if new.id is not None else None
    id_ = given or registry.id_of(schema) or registry.max_id + 1
    if id_ > ID_MAX:
        raise NotPermitted(f"all ids up to {ID_MAX} are taken")
    version = Version(subject=subject, version=number, id=id_, schema=schema)
    same = next((each for each in every if each.version == number), None)
    if same is not None and not same.is_deleted:
        if same.schema == schema and same.id == id_:
            return Change(records=(), answer=same)
        raise NotPermitted(f"version {number} of {subject!r} is another schema")
    # A deleted version of the same schema makes room for the new one, unless another schema refers to it.
    replaced = [
        SchemaRecord(subject=subject, version=each.version, value=None)
        for each in every
        if each.is_deleted
        and each.id == id_
        and each.version < number
        and not registry.referrers(subject, each.version, deleted=True)
    ]
    added = SchemaRecord(subject=subject, version=number, value=version)
    return Change(records=(*replaced, added), answer=version)


def delete_version(
    registry: Registry, subject: str, number: int | None, *, permanent: bool
) -> Change[int]:
    """Delete a version of a subject; None is the latest. The answer is its number."""
    _check_writable(registry, subject)
    if number is None:
        number = registry.version(subject, None, deleted=permanent).version
    version = registry.version(subject, number, deleted=True)
    if version.is_deleted and not permanent:
        raise VersionSoftDeleted(subject, number)
    if permanent and not version.is_deleted:
        raise VersionNotSoftDeleted(subject, number)
    if registry.referrers(subject, number, deleted=permanent):
        raise ReferenceExists(subject, number)
    if not permanent:
        record = SchemaRecord(
            subject=subject, version=number, value=replace(version, is_deleted=True)
        )
        return Change(records=(record,), answer=number)
    removed: list[LogRecord] = [SchemaRecord(subject=subject, version=number, value=None)]
    if len(registry.versions(subject, deleted=True)) == 1:
        removed += _settings_removed(registry, subject)
    return Change(records=(*removed, NoopRecord(max_id=registry.max_id)), answer=number)


def delete_subject(registry: Registry, subject: str, *, permanent: bool) -> Change[list[int]]:
    """Delete all versions of a subject. The answer is their numbers."""
    if not registry.has(subject, deleted=True):
        raise SubjectNotFound(subject)
    _check_writable(registry, subject)
    if permanent and registry.has(subject):
        raise SubjectNotSoftDeleted(subject)
    if not permanent and not registry.has(subject):
        raise SubjectSoftDeleted(subject)
    versions = [each.version for each in registry.versions(subject, deleted=permanent)]
    for number in versions:
        referrers = registry.referrers(subject, number, deleted=permanent)
        if any(each.subject != subject for each in referrers):
            raise ReferenceExists(subject, number)
    if not permanent:
        record = DeleteSubjectRecord(subject=subject, version=versions[-1])
        return Change(records=(record,), answer=versions)
    # The newest first: a version may refer to an older one of its subject.
    removed: list[LogRecord] = [
        SchemaRecord(subject=subject, version=each, value=None) for each in reversed(versions)
    ]
    removed += [DeleteSubjectRecord(subject=subject, version=None)]
    removed += _settings_removed(registry, subject)
    return Change(records=(*removed, NoopRecord(max_id=registry.max_id)), answer=versions)


def set_config(
    registry: Registry, subject: str | None, config: SubjectConfig
) -> Change[SubjectConfig]:
    """Set the settings of a subject, or of all; those that are not given stay as they are."""
    if subject is not None:
        check_subject(subject)
    _check_not_read_only(registry, subject)
    before = registry.own_config(subject) if registry.has_config(subject) else SubjectConfig()
    after = SubjectConfig(
        level=config.level or before.level,
        normalize=before.normalize if config.normalize is None else config.normalize,
    )
    return Change(records=(ConfigRecord(subject=subject, value=after),), answer=after)


def delete_config(registry: Registry, subject: str | None) -> Change[SubjectConfig]:
    """Delete the settings of a subject, or of all. The answer is what they were."""
    if subject is not None and not registry.has_config(subject):
        raise LevelNotConfigured(subject)
    _check_not_read_only(registry, subject)
    before = registry.own_config(subject)
    return Change(records=(ConfigRecord(subject=subject, value=None),), answer=before)


def set_mode(registry: Registry, subject: str | None, mode: Mode, *, force: bool) -> Change[Mode]:
    """Set the mode of a subject, or of all. `force` permits IMPORT where there are schemas."""
    if subject is not None:
        check_subject(subject)
    if mode is Mode.IMPORT and not force:
        exists = registry.has(subject) if subject is not None else bool(registry.subjects())
        if exists:
            raise NotPermitted("schemas exist: delete them first, or repeat it with force=true")
    return Change(records=(ModeRecord(subject=subject, value=mode),), answer=mode)


def delete_mode(registry: Registry, subject: str | None) -> Change[Mode]:
    """Delete the mode of a subject, or of all. The answer is what it was."""
    if subject is not None and not registry.has_mode(subject):
        raise ModeNotConfigured(subject)
    before = registry.mode(subject)
    return Change(records=(ModeRecord(subject=subject, value=None),), answer=before)


def _check_mode(subject: str, mode: Mode, *, is_import: bool) -> None:
    if mode is Mode.READONLY:
        raise NotPermitted(f"the subject {subject!r} is in mode READONLY")
    if is_import and mode is not Mode.IMPORT:
        raise NotPermitted(f"a schema that has an id needs the mode IMPORT of {subject!r}")
    if not is_import and mode is Mode.IMPORT:
        raise NotPermitted(f"the subject {subject!r} is in mode IMPORT: give the id of the schema")


def _check_writable(registry: Registry, subject: str) -> None:
    if registry.mode(subject) is Mode.READONLY:
        raise NotPermitted(f"the subject {subject!r} is in mode READONLY")


def _check_not_read_only(registry: Registry, subject: str | None) -> None:
    if registry.mode(subject) is Mode.READONLY:
        what = "the registry" if subject is None else f"the subject {subject!r}"
        raise NotPermitted(f"{what} is in mode READONLY")


def _id_of_import(registry: Registry, schema: Schema, id_: int) -> int:
    """The id of an imported schema, unless another schema has it."""
    if not 1 <= id_ <= ID_MAX:
        raise IdTaken(f"an id is 1 to {ID_MAX}, not {id_}")
    # Ids that were given once are known by the schemas that still have them.
    known = registry.id_of(schema)
    if known is not None and known != id_:
        raise IdTaken(f"this schema has the id {known} already")
    if registry.has_id(id_) and registry.schema(id_) != schema:
        raise IdTaken(f"the id {id_} is that of another schema")
    return id_


def _settings_removed(registry: Registry, subject: str) -> list[LogRecord]:
    removed: list[LogRecord] = []
    if registry.has_config(subject):
        removed.append(ConfigRecord(subject=subject, value=None))
    if registry.has_mode(subject):
        removed.append(ModeRecord(subject=subject, value=None))
    return removed

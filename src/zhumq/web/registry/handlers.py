"""What the registry answers to each request: handlers that block, in threads."""

import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec

from zhumq.schemas import changes
from zhumq.schemas.compatibility import incompatibilities
from zhumq.schemas.errors import (
    InvalidLevel,
    InvalidMode,
    InvalidSchema,
    SchemaNotFound,
    SubjectNotFound,
    VersionNotFound,
)
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import Level, Mode, Schema, SchemaType, SubjectConfig, Version
from zhumq.web.registry.calls import BadRequest, Call

# Settings of Confluent's registry that this one does not have.
_UNSUPPORTED: Final = ("alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")  # fmt: skip


class ConfigBody(msgspec.Struct, frozen=True, kw_only=True):
    compatibility: str | None = None
    normalize: bool | None = None


class ModeBody(msgspec.Struct, frozen=True, kw_only=True):
    mode: str | None = None


# Subjects and versions


def list_subjects(call: Call) -> Any:
    deleted_only = call.flag("deletedOnly") or call.flag("deleted_only")
    found = call.read(
        lambda registry: registry.subjects(deleted=call.flag("deleted"), deleted_only=deleted_only)
    )
    # Confluent's wildcard for all contexts, of which there is one.
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")
    return call.page([each for each in found if each.startswith(prefix)])


def list_versions(call: Call) -> Any:
    def ask(registry: Registry) -> list[int]:
        deleted_only = call.flag("deletedOnly") or call.flag("deleted_only")
        found = registry.versions(call.subject, deleted=deleted_only or call.flag("deleted"))
        if not found:
            raise SubjectNotFound(call.subject)
        return [each.version for each in found if each.is_deleted or not deleted_only]

    return call.page(call.read(ask))


def show_version(call: Call) -> Any:
    return call.read(lambda registry: _version(call, registry, _found(call, registry)))


def show_schema_of_version(call: Call) -> Any:
    return call.read(lambda registry: _raw(call, registry, _found(call, registry).schema))


def register(call: Call) -> Any:
    new, subject = call.new_schema(), call.subject
    made = call.change(lambda registry: changes.register(registry, call.formats, subject, new))
    return {"id": made.id, "version": made.version} | _described(made.schema)


def look_up(call: Call) -> Any:
    new, subject = call.new_schema(), call.subject
    deleted = call.flag("deleted")

    def ask(registry: Registry) -> Any:
        if not registry.has(subject, deleted=deleted):
            raise SubjectNotFound(subject)
        found = changes.find_registered(registry, call.formats, subject, new, deleted=deleted)
        if found is None:
            raise SchemaNotFound(f"the schema is no version of {subject!r}")
        return _version(call, registry, found)

    return call.read(ask)


def list_referrers(call: Call) -> Any:
    def ask(registry: Registry) -> list[int]:
        found = registry.version(call.subject, call.version, deleted=True)
        referrers = registry.referrers(found.subject, found.version, deleted=call.flag("deleted"))
        return sorted({each.id for each in referrers})

    return call.page(call.read(ask))


def delete_version(call: Call) -> Any:
    subject, number, permanent = call.subject, call.version, call.flag("permanent")
    return call.change(
        lambda registry: changes.delete_version(registry, subject, number, permanent=permanent)
    )


def delete_subject(call: Call) -> Any:
    subject, permanent = call.subject, call.flag("permanent")
    return call.change(
        lambda registry: changes.delete_subject(registry, subject, permanent=permanent)
    )


# Schemas by id


def list_schemas(call: Call) -> Any:
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")

    def ask(registry: Registry) -> list[Any]:
        found = [
            each
            for each in registry.all_versions(deleted=call.flag("deleted"))
            if each.subject.startswith(prefix)
        ]
        if call.flag("latestOnly"):
            found = list({each.subject: each for each in found}.values())
        return [_version(call, registry, each) for each in call.page(found)]

    return call.read(ask)


def show_schema(call: Call) -> Any:
    def ask(registry: Registry) -> Any:
        schema = registry.schema(call.id)
        shown = _schema(call, registry, schema)
        if call.flag("fetchMaxId"):
            shown["maxId"] = registry.max_id
        return shown

    return call.read(ask)


def show_raw_schema(call: Call) -> Any:
    return call.read(lambda registry: _raw(call, registry, registry.schema(call.id)))


def show_schema_by_guid(call: Call) -> Any:
    try:
        digest = uuid.UUID(call.names["guid"]).bytes
    except ValueError:
        raise BadRequest("a guid is a UUID") from None
    return call.read(
        lambda registry: _schema(call, registry, registry.schema(registry.id_of_digest(digest)))
    )


def list_subjects_of_schema(call: Call) -> Any:
    found = call.read(lambda registry: registry.with_id(call.id, deleted=call.flag("deleted")))
    return call.page(sorted({each.subject for each in found}))


def list_versions_of_schema(call: Call) -> Any:
    found = call.read(lambda registry: registry.with_id(call.id, deleted=call.flag("deleted")))
    return call.page([{"subject": each.subject, "version": each.version} for each in found])


def list_types(call: Call) -> Any:
    del call
    return [SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO]


def list_contexts(call: Call) -> Any:
    return call.page(["."])


# Compatibility


def check_with_version(call: Call) -> Any:
    def ask(registry: Registry, new: changes.NewSchema) -> list[str]:
        try:
            versions = [registry.version(call.subject, call.version)]
        except SubjectNotFound:
            if call.version is not None:
                raise VersionNotFound(call.version) from None
            versions = []
        return _check(call, registry, new, versions)

    return _checked(call, ask)


def check_with_all(call: Call) -> Any:
    return _checked(
        call, lambda registry, new: _check(call, registry, new, registry.versions(call.subject))
    )


def _checked(call: Call, ask: Callable[[Registry, changes.NewSchema], list[str]]) -> Any:
    new = call.new_schema()
    try:
        reasons = call.read(lambda registry: ask(registry, new))
    except InvalidSchema as error:
        if not call.flag("verbose"):
            raise
        reasons = [str(error)]
    answer: dict[str, Any] = {"is_compatible": not reasons}
    return answer | {"messages": reasons} if call.flag("verbose") else answer


def _check(
    call: Call, registry: Registry, new: changes.NewSchema, versions: list[Version]
) -> list[str]:
    schema = changes.canonical(
        registry, call.formats, call.subject, new.schema, normalize=new.normalize
    )
    level = registry.level(call.subject)
    return incompatibilities(registry, call.formats, schema, versions, level)


# Settings and modes


def show_config(call: Call) -> Any:
    return _config(call.read(lambda registry: registry.own_config(None)))


def show_subject_config(call: Call) -> Any:
    subject = call.subject

    def ask(registry: Registry) -> Any:
        if call.flag("defaultToGlobal") and not registry.has_config(subject):
            return _config(SubjectConfig(level=registry.level(subject)))
        return _config(registry.own_config(subject))

    return call.read(ask)


def set_config(call: Call) -> Any:
    subject = call.subject if "subject" in call.names else None
    body = call.decode(ConfigBody)
    others = call.decode(dict[str, Any])
    unsupported = [each for each in _UNSUPPORTED if others.get(each) is not None]
    if unsupported:
        raise BadRequest(f"{unsupported[0]} is not supported by this registry")
    level = (body.compatibility or "").upper()
    if body.compatibility is not None and level not in set(Level):
        raise InvalidLevel(f"a compatibility level is one of {', '.join(Level)}")
    config = SubjectConfig(level=Level(level) if level else None, normalize=body.normalize)
    set_ = call.change(lambda registry: changes.set_config(registry, subject, config))
    shown: dict[str, Any] = {"compatibility": set_.level}
    return shown if set_.normalize is None else shown | {"normalize": set_.normalize}


def delete_config(call: Call) -> Any:
    subject = call.subject if "subject" in call.names else None
    return _config(call.change(lambda registry: changes.delete_config(registry, subject)))


def show_mode(call: Call) -> Any:
    return {"mode": call.read(lambda registry: registry.mode(None))}


def show_subject_mode(call: Call) -> Any:
    subject = call.subject

    def ask(registry: Registry) -> Mode:
        is_default = call.flag("defaultToGlobal")
        return registry.mode(subject) if is_default else registry.own_mode(subject)

    return {"mode": call.read(ask)}


def set_mode(call: Call) -> Any:
    subject = call.subject if "subject" in call.names else None
    name = (call.decode(ModeBody).mode or "").upper()
    if name not in set(Mode):
        raise InvalidMode(f"a mode is one of {', '.join(Mode)}")
    force = call.flag("force")
    return {
        "mode": call.change(
            lambda registry: changes.set_mode(registry, subject, Mode(name), force=force)
        )
    }


def delete_mode(call: Call) -> Any:
    subject = call.subject if "subject" in call.names else None
    return {"mode": call.change(lambda registry: changes.delete_mode(registry, subject))}


# Answers


def _found(call: Call, registry: Registry) -> Version:
    return registry.version(call.subject, call.version, deleted=call.flag("deleted"))


def _version(call: Call, registry: Registry, version: Version) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
    } | _schema(call, registry, version.schema)
    return shown | {"deleted": True} if version.is_deleted else shown


def _schema(call: Call, registry: Registry, schema: Schema) -> dict[str, Any]:
    return _described(schema) | {"schema": _text(call, registry, schema)}


def _described(schema: Schema) -> dict[str, Any]:
    """What there is beside the text. Clients take a schema without a type for Avro."""
    shown: dict[str, Any] = {"guid": str(uuid.UUID(bytes=schema.digest))}
    if schema.type is not SchemaType.AVRO:
        shown["schemaType"] = schema.type
    if schema.references:
        shown["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    if schema.metadata is not None:
        shown["metadata"] = msgspec.Raw(schema.metadata.encode())
    if schema.rule_set is not None:
        shown["ruleSet"] = msgspec.Raw(schema.rule_set.encode())
    return shown


def _text(call: Call, registry: Registry, schema: Schema) -> str:
    form = call.query.get("format", "")
    if not form:
        return schema.text
    return call.formats.parse(schema, registry.resolve(schema.references)).formatted(form)


def _raw(call: Call, registry: Registry, schema: Schema) -> Any:
    """The schema alone: JSON as it is, and other text as a string."""
    text = _text(call, registry, schema)
    return text if schema.type is SchemaType.PROTOBUF else msgspec.Raw(text.encode())


def _config(config: SubjectConfig) -> dict[str, Any]:
    shown: dict[str, Any] = {"compatibilityLevel": config.level}
    return shown if config.normalize is None else shown | {"normalize": config.normalize}

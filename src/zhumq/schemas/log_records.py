"""The records of the topic `_schemas`, in the JSON that Confluent's registry writes: to bytes, and from them."""

import json
from dataclasses import dataclass
from typing import Any, Final

from zhumq.schemas.schema import Level, Mode, Reference, Schema, SchemaType, SubjectConfig, Version

TOPIC: Final = "_schemas"
_MAX_ID: Final = "maxId"  # of the value of NOOP, which Confluent's registry does not read


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord:
    """A version of a subject. None: it is removed for good."""

    subject: str
    version: int
    value: Version | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """The settings of a subject, or of all. None: it has none of its own any more."""

    subject: str | None
    value: SubjectConfig | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRecord:
    """The mode of a subject, or of all. None: it has none of its own any more."""

    subject: str | None
    value: Mode | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubjectRecord:
    """All versions of a subject up to this one are deleted. None: the record has no meaning any more."""

    subject: str
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoopRecord:
    """No change. Ours has the largest id that was ever given, which outlives the schema that has it."""

    max_id: int = 0


LogRecord = SchemaRecord | ConfigRecord | ModeRecord | DeleteSubjectRecord | NoopRecord


def encode(record: LogRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a record."""
    match record:
        case SchemaRecord(subject=subject, version=version, value=value):
            key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
            return _bytes(key), None if value is None else _bytes(_schema_value(value))
        case ConfigRecord(subject=subject, value=config):
            value_of = None if config is None else _config_value(subject, config)
            return _key("CONFIG", subject), None if value_of is None else _bytes(value_of)
        case ModeRecord(subject=subject, value=mode):
            named = {} if subject is None else {"subject": subject}
            return _key("MODE", subject), None if mode is None else _bytes({**named, "mode": mode})
        case DeleteSubjectRecord(subject=subject, version=last):
            value_of = None if last is None else {"subject": subject, "version": last}
            return _key("DELETE_SUBJECT", subject), None if value_of is None else _bytes(value_of)
        case NoopRecord(max_id=max_id):
            return _bytes({"keytype": "NOOP", "magic": 0}), _bytes({_MAX_ID: max_id})


def decode(key: bytes | None, value: bytes | None) -> LogRecord:
    """The record of a message. Raises ValueError with the reason for one that is none."""
    if key is None:
        raise ValueError("the message has no key")
    try:
        named = _object(key)
        content = None if value is None else _object(value)
        return _decode(named, content)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a field is missing or has the wrong type: {error}") from None


def _decode(key: dict[str, Any], value: dict[str, Any] | None) -> LogRecord:
    subject = key.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise ValueError("the subject is no text")
    match key["keytype"]:
        case "SCHEMA":
            name, version = _text(key, "subject"), _number(key, "version")
            found = None if value is None else _version(name, version, value)
            return SchemaRecord(subject=name, version=version, value=found)
        case "CONFIG":
            return ConfigRecord(subject=subject, value=None if value is None else _config(value))
        case "MODE":
            return ModeRecord(subject=subject, value=None if value is None else Mode(value["mode"]))
        case "DELETE_SUBJECT":
            last = None if value is None else _number(value, "version")
            return DeleteSubjectRecord(subject=_text(key, "subject"), version=last)
        case "NOOP":
            return NoopRecord(max_id=_number(value, _MAX_ID) if value and _MAX_ID in value else 0)
        case other:
            raise ValueError(f"the key type {str(other)[:40]!r} is unknown")


def _schema_value(version: Version) -> dict[str, Any]:
    schema = version.schema
    value: dict[str, Any] = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
    }
    if schema.type is not SchemaType.AVRO:
        value["schemaType"] = schema.type
    if schema.references:
        value["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    if schema.metadata is not None:
        value["metadata"] = json.loads(schema.metadata)
    if schema.rule_set is not None:
        value["ruleSet"] = json.loads(schema.rule_set)
    return value | {"schema": schema.text, "deleted": version.is_deleted}


def _version(subject: str, version: int, value: dict[str, Any]) -> Version:
    metadata, rule_set = value.get("metadata"), value.get("ruleSet")
    schema = Schema(
        type=SchemaType(value.get("schemaType") or SchemaType.AVRO),
        text=_text(value, "schema"),
        references=tuple(
            Reference(
                name=_text(each, "name"),
                subject=_text(each, "subject"),
                version=_number(each, "version"),
            )
            for each in value.get("references") or ()
        ),
        metadata=None if metadata is None else compact(metadata),
        rule_set=None if rule_set is None else compact(rule_set),
    )
    return Version(
        subject=subject,
        version=version,
        id=_number(value, "id"),
        schema=schema,
        is_deleted=value.get("deleted") is True,
    )


def _config_value(subject: str | None, config: SubjectConfig) -> dict[str, Any]:
    value: dict[str, Any] = {} if subject is None else {"subject": subject}
    if config.normalize is not None:
        value["normalize"] = config.normalize
    if config.level is not None:
        value["compatibilityLevel"] = config.level
    return value


def _config(value: dict[str, Any]) -> SubjectConfig:
    level, normalize = value.get("compatibilityLevel"), value.get("normalize")
    return SubjectConfig(
        level=None if level is None else Level(level),
        normalize=normalize if isinstance(normalize, bool) else None,
    )


def compact(value: Any) -> str:
    """JSON without spaces, its characters as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _key(kind: str, subject: str | None) -> bytes:
    named = {} if subject is None else {"subject": subject}
    return _bytes({"keytype": kind, **named, "magic": 0})


def _bytes(value: Any) -> bytes:
    # A lone surrogate, which JSON can name, has no UTF-8.
    return compact(value).encode(errors="backslashreplace")


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - the data is wrong, not the program
    return found


def _text(value: dict[str, Any], name: str) -> str:
    found = value[name]
    if not isinstance(found, str):
        raise ValueError(f"{name} is no text")  # noqa: TRY004 - as above
    return found


def _number(value: dict[str, Any], name: str) -> int:
    found = value[name]
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"{name} is no number from 0 on")
    return found

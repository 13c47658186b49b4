"""Which earlier versions a new schema is compared with, in which direction, and where they differ."""

from collections.abc import Sequence
from typing import Final

from zhumq.schemas.errors import Incompatible
from zhumq.schemas.formats import Formats, Parsed
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import Level, Schema, Version

REASONS_MAX: Final = 20  # of an answer


def check_compatible(registry: Registry, formats: Formats, subject: str, schema: Schema) -> None:
    """Raise Incompatible unless the level of the subject permits a schema as its next version."""
    reasons = incompatibilities(
        registry, formats, schema, registry.versions(subject), registry.level(subject)
    )
    if reasons:
        raise Incompatible(subject, reasons)


def incompatibilities(
    registry: Registry,
    formats: Formats,
    schema: Schema,
    versions: Sequence[Version],
    level: Level,
) -> list[str]:
    """Why a level does not permit a schema after these versions; empty if it does. The oldest version is first."""
    if level is Level.NONE or not versions:
        return []
    new = formats.parse(schema, registry.resolve(schema.references))
    compared = versions if level.is_transitive else versions[-1:]
    for version in reversed(compared):
        old = formats.parse(version.schema, registry.resolve(version.schema.references))
        reasons = _between(new, old, level)
        if reasons:
            return [f"version {version.version}: {each}" for each in reasons[:REASONS_MAX]]
    return []


def _between(new: Parsed, old: Parsed, level: Level) -> list[str]:
    if new.type is not old.type:
        return [f"it is {old.type}, and the new schema is {new.type}"]
    reasons = []
    if level.is_backward:
        reasons += [f"the new schema cannot read it: {each}" for each in new.cannot_read(old)]
    if level.is_forward:
        reasons += [f"it cannot read the new schema: {each}" for each in old.cannot_read(new)]
    return reasons

"""Checks values by JSON Schemas with bounded work: expressions by RE2, and a number of steps for each value."""

import json
from collections.abc import Iterator, Mapping, Sized
from typing import Any, Final

import re2
from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from zhumq.schemas.errors import NotEncoded

STEPS_MAX: Final = (
    100_000  # keywords that are looked at, each as often as what it lists or is applied to
)
_REASON_CHARACTERS: Final = 200
# They take expressions of schemas to an engine without a bound, so they are not checked.
_UNCHECKED: Final = ("unevaluatedProperties", "unevaluatedItems")

Errors = Iterator[ValidationError]


def check_json(schema: Any, registry: Registry[Any], value: Any) -> None:
    """Raise NotEncoded, which names the place, if a value is not as a schema says."""
    known: Any = validator_for(schema, default=Draft7Validator)
    steps_left = STEPS_MAX

    def counted(check: Any) -> Any:
        def check_counted(validator: Any, given: Any, instance: Any, around: Any) -> Errors:
            nonlocal steps_left
            steps_left -= 1 + _length(given) + _length(instance)
            if steps_left < 0:
                raise NotEncoded("the value and its schema take too many steps to compare")
            yield from check(validator, given, instance, around) or ()

        return check_counted

    own = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        **dict.fromkeys(_UNCHECKED, _nothing),
    }
    keywords = {name: counted(own.get(name, check)) for name, check in known.VALIDATORS.items()}
    bounded: Any = extend(known, keywords)  # type: ignore[no-untyped-call]
    try:
        found = next(bounded(schema, registry=registry).iter_errors(value), None)
    except (Unresolvable, RecursionError):
        raise NotEncoded("the schema refers to itself without an end") from None
    if found is not None:
        place = "/".join(str(each) for each in found.absolute_path)
        raise NotEncoded(f"/{place}: {found.message[:_REASON_CHARACTERS]}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, Sized) and not isinstance(value, str) else 0


def _nothing(validator: Any, given: Any, instance: Any, around: Any) -> Errors:
    del validator, given, instance, around
    return iter(())


def _pattern(validator: Any, given: Any, instance: Any, around: Any) -> Errors:
    del around
    if validator.is_type(instance, "string") and not matches(given, instance):
        yield ValidationError(f"{instance!r} does not match {given!r}")


def _pattern_properties(validator: Any, given: Any, instance: Any, around: Any) -> Errors:
    del around
    if not validator.is_type(instance, "object"):
        return
    for pattern, below in given.items():
        for name, value in instance.items():
            if matches(pattern, name):
                yield from validator.descend(value, below, path=name, schema_path=pattern)


def _additional_properties(validator: Any, given: Any, instance: Any, around: Any) -> Errors:
    if not validator.is_type(instance, "object"):
        return
    properties: Mapping[str, Any] = around.get("properties", {})
    patterns: Mapping[str, Any] = around.get("patternProperties", {})
    for name, value in instance.items():
        if name in properties or any(matches(each, name) for each in patterns):
            continue
        if given is False:
            yield ValidationError(f"the property {name!r} is not in the schema")
        else:
            yield from validator.descend(value, given, path=name)


def _unique_items(validator: Any, given: Any, instance: Any, around: Any) -> Errors:
    del around
    if not given or not validator.is_type(instance, "array"):
        return
    seen: set[str] = set()
    for each in instance:
        text = json.dumps(_same_number(each), sort_keys=True)
        if text in seen:
            yield ValidationError(f"{text[:_REASON_CHARACTERS]} is there twice")
            return
        seen.add(text)


def _same_number(value: Any) -> Any:
    """1.0 is 1 in JSON Schema, also within others."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_same_number(each) for each in value]
        case dict():
            return {name: _same_number(each) for name, each in value.items()}
        case _:
            return value


def matches(pattern: str, text: str) -> bool:
    """Whether an expression is found in a text. One that only slower engines know takes any text."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(text) is not None
    except re2.error:
        return True

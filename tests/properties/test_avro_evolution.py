"""What the registry calls compatible can be read: fastavro reads data of the old schema with the new one, or cannot."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from zhumq.schemas.avro import parse

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
FIELDS = ["a", "b", "c"]
SYMBOLS = ["P", "Q", "R"]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["primitive"] * 3 + (["array", "map", "union", "enum", "record"] if depth else [])))  # fmt: skip
    match kind:
        case "array":
            return {"type": "array", "items": draw(types(depth - 1))}
        case "map":
            return {"type": "map", "values": draw(types(depth - 1))}
        case "union":
            return draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))  # fmt: skip
        case "enum":
            symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
            return {"type": "enum", "name": f"E{depth}", "symbols": symbols}
        case "record":
            return draw(records(depth - 1))
        case _:
            return draw(st.sampled_from(PRIMITIVES))


@st.composite
def records(draw: st.DrawFn, depth: int = 2) -> Any:
    fields = []
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=3, unique=True)):
        type_ = draw(types(depth))
        field = {"name": name, "type": type_}
        if draw(st.booleans()):
            field["default"] = default_of(type_)
        fields.append(field)
    return {"type": "record", "name": f"R{depth}", "fields": fields}


def default_of(type_: Any) -> Any:
    if isinstance(type_, list):
        return default_of(type_[0])
    kind = type_ if isinstance(type_, str) else type_["type"]
    if kind == "enum":
        return type_["symbols"][0]
    if kind == "record":
        return {each["name"]: default_of(each["type"]) for each in type_["fields"]}
    defaults: dict[str, Any] = {"null": None, "boolean": False, "bytes": "", "string": "", "array": [], "map": {}}  # fmt: skip
    return defaults.get(kind, 0)


def values(type_: Any) -> list[Any]:
    """Data of a type, among which each branch of a union and each symbol of an enum occurs."""
    if isinstance(type_, list):
        return [each for one in type_ for each in values(one)]
    kind = type_ if isinstance(type_, str) else type_["type"]
    match kind:
        case "enum":
            return list(type_["symbols"])
        case "array":
            return [[each] for each in values(type_["items"])]
        case "map":
            return [{"k": each} for each in values(type_["values"])]
        case "record":
            found: list[Any] = [{}]
            for field in type_["fields"]:
                inner = values(field["type"])[:6]
                found = [{**each, field["name"]: one} for each in found for one in inner][:60]
            return found
        case _:
            # A whole number of a union of int and long would be written as the first of the two.
            some: dict[str, Any] = {
                "null": None, "boolean": True, "int": 7, "long": 2**40, "float": 1.5, "double": 1e300,
                "bytes": b"x", "string": "x",
            }  # fmt: skip
            return [some[kind]]


def reads(writer: Any, reader: Any) -> bool:
    """Whether fastavro reads all data of one schema with another."""
    written_with, read_with = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for value in values(writer):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, written_with, value)
        buffer.seek(0)
        try:
            fastavro.schemaless_reader(buffer, written_with, read_with)
        except Exception:
            return False
    return True


def copied(schema: Any) -> Any:
    return json.loads(json.dumps(schema))


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema and a later one: some fields gone, added or of another type."""
    old = draw(records())
    new = copied(old)
    for field in list(new["fields"]):
        match draw(st.sampled_from(["keep", "keep", "drop", "retype"])):
            case "drop":
                new["fields"].remove(field)
            case "retype":
                field["type"] = draw(types(1))
                field.pop("default", None)
    names = {each["name"] for each in new["fields"]}
    for name in draw(st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True)):
        assert name not in names
        added = {"name": name, "type": draw(types(0))}
        if draw(st.booleans()):
            added["default"] = default_of(added["type"])
        new["fields"].append(added)
    return old, new


def is_valid(schema: Any) -> bool:
    """Names are drawn without regard to others of the same schema."""
    names: list[str] = []

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if part.get("type") in ("record", "enum"):
                names.append(part["name"])
            for each in part.values():
                walk(each)
        elif isinstance(part, list):
            for each in part:
                walk(each)

    walk(schema)
    return len(names) == len(set(names))


@pytest.mark.thorough
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(evolutions())
def test_a_compatible_evolution_is_readable_and_a_refused_one_has_a_counterexample(
    pair: tuple[Any, Any],
) -> None:
    old, new = pair
    assume(is_valid(old) and is_valid(new))
    writer, reader = parse(json.dumps(old), []), parse(json.dumps(new), [])
    reasons = reader.cannot_read(writer)
    if not reasons:
        assert reads(copied(old), copied(new)), (old, new)
    else:
        assert not reads(copied(old), copied(new)), (old, new, reasons)


@settings(max_examples=200, deadline=None)
@given(records())
def test_a_schema_reads_its_own_data_and_its_text_is_a_fixed_point(schema: Any) -> None:
    assume(is_valid(schema))
    parsed = parse(json.dumps(schema), [])
    assert parsed.cannot_read(parsed) == []
    assert parse(parsed.text, []).text == parsed.text
    normalized = parsed.normalized()
    assert parse(normalized, []).normalized() == normalized
    assert parse(normalized, []).cannot_read(parsed) == []

"""Random conditions as nested tuples with their text, and random messages that they are about."""

import json
from typing import Any

from hypothesis import strategies as st
from reference_filter import Sample

NAMES = ("region", "n", "x-y", "trace.id")
PATHS = (("a",), ("b", "c"), ("list", 0), ("list", 1, "d"), ("odd name",))
TEXTS = (
    "",
    "eu",
    "us",
    "order-1",
    "order-22",
    "10",
    "9",
    "-3.5",
    "1e2",
    "true",
    "FALSE",
    "é_%",
    "it's",
    "a\nb",
)
NUMBERS = (0, 1, -1, 3, 9, 10, 2.5, -3.5, 100, 2**53 + 1, 10**18)
TAGS = ("a", "b", "c-d")

texts = st.sampled_from(TEXTS)
numbers = st.sampled_from(NUMBERS)
_scalars = st.one_of(texts, numbers, st.booleans(), st.none())
_documents = st.fixed_dictionaries(
    {},
    optional={
        "a": _scalars,
        "b": st.one_of(_scalars, st.fixed_dictionaries({}, optional={"c": _scalars})),
        "list": st.lists(st.one_of(_scalars, st.fixed_dictionaries({"d": _scalars})), max_size=2),
        "odd name": _scalars,
    },
)
_bytes = st.one_of(texts.map(str.encode), st.just(b"\xff\xfe"), st.none())
messages = st.builds(
    Sample,
    key=_bytes,
    value=st.one_of(_documents.map(lambda each: json.dumps(each).encode()), _bytes),
    headers=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(NAMES), _bytes),
            st.tuples(
                st.just("zhumq-tags"),
                st.lists(st.sampled_from(TAGS), max_size=3).map(
                    lambda each: " , ".join(each).encode()
                ),
            ),
        ),
        max_size=4,
    ).map(tuple),
    timestamp=st.sampled_from((0, 1_000, 2_000)),
)

fields = st.one_of(
    st.sampled_from(NAMES).map(lambda name: ("header", name)),
    st.just(("key",)),
    st.sampled_from(("offset", "timestamp", "partition")).map(lambda name: ("fact", name)),
    st.sampled_from(PATHS).map(lambda path: ("json", *path)),
)
_number_operands = st.recursive(
    st.one_of(numbers.map(lambda each: ("literal", each)), fields),
    lambda inner: st.one_of(
        inner.map(lambda each: ("minus", each)),
        st.tuples(st.just("arithmetic"), inner, st.tuples(st.sampled_from("+-*/%"), inner)),
    ),
    max_leaves=4,
)
_operators = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))
_not_facts = fields.filter(lambda each: each[0] != "fact")
_predicates = st.one_of(
    st.tuples(st.just("compare"), _operators, _number_operands, _number_operands),
    st.tuples(
        st.just("compare"), _operators, _not_facts, texts.map(lambda each: ("literal", each))
    ),
    st.tuples(
        st.just("compare"), _operators, texts.map(lambda each: ("literal", each)), _not_facts
    ),
    st.tuples(
        st.just("compare"),
        st.sampled_from(("=", "<>")),
        fields,
        st.booleans().map(lambda each: ("literal", each)),
    ),
    st.tuples(st.just("between"), _number_operands, _number_operands, _number_operands),
    st.tuples(
        _not_facts,
        st.lists(
            st.one_of(texts, numbers).map(lambda each: ("literal", each)), min_size=1, max_size=4
        ),
    ).map(lambda each: ("in", each[0], *each[1])),
    st.tuples(
        st.just("like"),
        _not_facts,
        st.text(alphabet="%_eu1order-\\'é", max_size=8),
        st.sampled_from(("", "\\")),
    ).filter(lambda each: not each[3] or (len(each[2]) - len(each[2].rstrip("\\"))) % 2 == 0),
    st.tuples(st.just("is null"), fields),
    st.lists(st.sampled_from(TAGS), min_size=1, max_size=3).map(lambda each: ("tags", *each)),
    st.tuples(st.just("truth"), _not_facts),
)
conditions = st.recursive(
    _predicates,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda each: ("and", *each)),
        st.lists(inner, min_size=2, max_size=4).map(lambda each: ("or", *each)),
        inner.map(lambda each: ("not", each)),
    ),
    max_leaves=8,
)


def text_of(node: tuple[Any, ...]) -> str:
    """The condition in SQL."""
    match node:
        case ("and" | "or" as word, *parts):
            return f" {word} ".join(f"({text_of(part)})" for part in parts)
        case ("not", part):
            return f"NOT ({text_of(part)})"
        case ("compare", operator, left, right):
            return f"{_operand_text(left)} {operator} {_operand_text(right)}"
        case ("between", operand, low, high):
            return (
                f"{_operand_text(operand)} BETWEEN {_operand_text(low)} AND {_operand_text(high)}"
            )
        case ("in", operand, *values):
            return f"{_operand_text(operand)} in ({', '.join(map(_operand_text, values))})"
        case ("like", operand, pattern, escape):
            ending = f" ESCAPE {_quoted(escape)}" if escape else ""
            return f"{_operand_text(operand)} LIKE {_quoted(pattern)}{ending}"
        case ("is null", operand):
            return f"{_operand_text(operand)} Is Null"
        case ("tags", *tags):
            return f"tags IN ({', '.join(map(_quoted, tags))})"
        case ("truth", operand):
            return _operand_text(operand)
    raise AssertionError(node)


def _operand_text(node: tuple[Any, ...]) -> str:
    match node:
        case ("literal", bool(value)):
            return str(value).upper()
        case ("literal", str(value)):
            return _quoted(value)
        case ("literal", value):
            return f"{value}"
        case ("header", name):
            return f'"{name}"'
        case ("key",):
            return "key"
        case ("fact", name):
            return str(name)
        case ("json", *path):
            return "value" + "".join(
                f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in path
            )
        case ("minus", operand):
            return f"-({_operand_text(operand)})"
        case ("arithmetic", first, *rest):
            return (
                f"(({_operand_text(first)})"
                + "".join(f" {operator} ({_operand_text(operand)})" for operator, operand in rest)
                + ")"
            )
    raise AssertionError(node)


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"

"""Compiled filters let pass exactly what a simple evaluator does, and SQLite."""

import sqlite3
from typing import Any

import pytest
from filter_samples import conditions, messages, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_filter import TRUE, Sample, holds

from zhumq.filters.columns import BatchColumns, MessageColumns
from zhumq.filters.filter import Filter, compile_filter
from zhumq.records.batch import HEADER_BYTES, Record, RecordHeader, batches
from zhumq.records.builder import build_batch


def _columns_of_batch(samples: list[Sample]) -> BatchColumns:
    (batch,) = batches(
        build_batch(
            [
                Record(
                    key=each.key,
                    value=each.value,
                    headers=tuple(RecordHeader(*header) for header in each.headers),
                    timestamp=each.timestamp,
                )
                for each in samples
            ]
        )
    )
    columns = BatchColumns("orders", 0)
    assert columns.add([(batch.header, bytes(batch.data[HEADER_BYTES:]))]) == [True]
    return columns


def _columns_of_one(sample: Sample) -> MessageColumns:
    return MessageColumns(
        topic=sample.topic,
        partition=sample.partition,
        offset=sample.offset,
        timestamp_ms=sample.timestamp,
        key=sample.key,
        value=sample.value,
        headers=sample.headers,
    )


def _compiled(text: str) -> Filter:
    compiled = compile_filter(text)
    assert compiled is not None
    return compiled


@pytest.mark.thorough
@settings(max_examples=400, deadline=None)
@given(condition=conditions, drawn=st.lists(messages, min_size=1, max_size=8))
def test_a_filter_lets_pass_what_the_reference_says_is_true(
    condition: tuple[Any, ...], drawn: list[Sample]
) -> None:
    # A batch gives its messages adjacent offsets.
    samples = [
        Sample(
            key=each.key,
            value=each.value,
            headers=each.headers,
            timestamp=each.timestamp,
            offset=offset,
        )
        for offset, each in enumerate(drawn)
    ]
    text = text_of(condition)
    compiled = _compiled(text)
    expected = [index for index, each in enumerate(samples) if holds(condition, each) == TRUE]
    assert compiled.select(_columns_of_batch(samples)) == expected, text
    alone = [index for index, each in enumerate(samples) if compiled.select(_columns_of_one(each))]
    assert alone == expected, text


# SQLite has the same three-valued logic, but types of its own: here texts meet texts, and numbers numbers.
_WORDS = ("", "a", "ab", "b_", "50%", "é", "it's")
_words = st.sampled_from(_WORDS)
_whole = st.integers(-20, 20)
_text_fields = st.sampled_from(("t1", "t2"))
_number_fields = st.sampled_from(("n1", "n2"))
_symbols = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))
_negations = st.sampled_from(("", "NOT "))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_sqlite_predicates = st.one_of(
    st.builds(lambda f, s, v: f"{f} {s} {_quoted(v)}", _text_fields, _symbols, _words),
    st.builds(lambda f, s, g: f"{f} {s} {g}", _text_fields, _symbols, _text_fields),
    st.builds(
        lambda f, s, v, o, w: f"value.{f} {s} {v} {o} value.{w}",
        _number_fields, _symbols, _whole, st.sampled_from("+-*"), _number_fields,
    ),
    st.builds(lambda f, n, a, b: f"value.{f} {n}BETWEEN {a} AND {b}", _number_fields, _negations, _whole, _whole),
    st.builds(
        lambda f, n, v: f"{f} {n}IN ({', '.join(map(_quoted, v))})",
        _text_fields, _negations, st.lists(_words, min_size=1, max_size=4),
    ),
    st.builds(
        lambda f, n, p: f"{f} {n}LIKE {_quoted(p)} ESCAPE '!'",
        _text_fields, _negations, st.text(alphabet="ab%_é", max_size=5),
    ),
    st.builds(lambda f, n: f"{f} IS {n}NULL", _text_fields, _negations),
)  # fmt: skip
_sqlite_conditions = st.recursive(
    _sqlite_predicates,
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"({a}) AND ({b})", inner, inner),
        st.builds(lambda a, b: f"({a}) OR ({b})", inner, inner),
        # Without parentheses: both have the same precedences.
        st.builds(lambda a, b, c: f"{a} OR {b} AND NOT {c}", *[_sqlite_predicates] * 3),
        st.builds(lambda a: f"NOT ({a})", inner),
    ),
    max_leaves=6,
)
_rows = st.tuples(
    st.one_of(_words, st.none()),
    st.one_of(_words, st.none()),
    st.one_of(_whole, st.none()),
    st.one_of(_whole, st.none()),
)


@settings(max_examples=300, deadline=None)
@given(text=_sqlite_conditions, rows=st.lists(_rows, min_size=1, max_size=6))
def test_a_filter_lets_pass_what_sqlite_selects(text: str, rows: list[tuple[Any, ...]]) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute("CREATE TABLE value (t1 TEXT, t2 TEXT, n1 INTEGER, n2 INTEGER)")
    database.executemany("INSERT INTO value VALUES (?, ?, ?, ?)", rows)
    selected = {
        number - 1 for (number,) in database.execute(f"SELECT rowid FROM value WHERE {text}")
    }
    database.close()
    samples = [
        Sample(
            headers=tuple(
                (name, None if each is None else each.encode())
                for name, each in (("t1", t1), ("t2", t2))
            ),
            value=f'{{"n1": {"null" if n1 is None else n1}, "n2": {"null" if n2 is None else n2}}}'.encode(),
        )
        for t1, t2, n1, n2 in rows
    ]
    assert set(_compiled(text).select(_columns_of_batch(samples))) == selected, text

"""The syntax of filters: what texts mean, and what the errors of wrong ones show."""

import json

import pytest

from zhumq.filters import columns
from zhumq.filters.columns import BatchColumns, MessageColumns
from zhumq.filters.filter import Filter, compile_filter
from zhumq.filters.invalid import FilterInvalid
from zhumq.filters.parser import CHARACTERS_MAX, DEPTH_MAX, TABLES_MAX, TERMS_MAX
from zhumq.model.message_headers import format_tags
from zhumq.records.batch import HEADER_BYTES, Record, RecordHeader, batches
from zhumq.records.builder import build_batch

ORDER = MessageColumns(
    topic="orders",
    partition=3,
    offset=42,
    timestamp_ms=1_700_000_000_000,
    key=b"eu-17",
    value=b'{"total": 120.5, "paid": true, "items": [{"sku": "A-1"}], "odd name": 1, "in": 2}',
    headers=[
        ("zhumq-tags", b"new, big"),
        ("region", b"eu"),
        ("attempts", b"3"),
        ("content-type", b"application/json"),
        ("Trace.Id", b"t-1"),
        ("key", b"a header"),
    ],
)


def passes(text: str) -> bool:
    compiled = compile_filter(text)
    return compiled is None or compiled.select(ORDER) == [0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "tags: *",
        "new",
        "new || old",
        "old||big",
        "tags: new",
        "TAGS : old || new",
        "tags = 'new'",
        "tags IN ('old', 'big')",
        "TAGS <> 'old'",
        "tags IS NOT NULL",
        "tags = 'new' AND tags = 'big'",
        "key = 'eu-17'",
        "key LIKE 'eu-%'",
        "key >= 'eu' AND key < 'ev'",
        "region = 'eu'",
        "headers.region = 'eu'",
        "\"key\" = 'a header'",
        "headers.\"content-type\" = 'application/json'",
        "Trace.Id = 't-1'",
        "attempts = 3",
        "attempts > 2.5",
        "attempts BETWEEN 1 AND 3",
        "attempts + 1 = 4",
        "attempts / 2 = 1.5",
        "-attempts = -3",
        "10 - attempts - 2 = 5",
        "2 + attempts * 2 = 8",
        "offset % 10 = 2",
        "partition IN (1, 3)",
        "topic = 'orders'",
        "timestamp >= 1700000000000",
        "value.total > 100",
        "value.items[0].sku = 'A-1'",
        'value."odd name" = 1',
        "value.in = 2",
        "value.paid",
        "value.paid = TRUE AND NOT value.paid = FALSE",
        "missing IS NULL",
        "missing = 'x' OR region = 'eu'",
        "NOT (missing = 'x' AND region = 'us')",
        "region NOT IN ('us', 'asia')",
        "region NOT LIKE 'u_'",
        "region != 'us'",
        "not region like 'us'",
    ],
)
def test_the_order_passes(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "text",
    [
        "old",
        "Region = 'eu'",
        "tags: bi",
        "key = 'eu'",
        "key = 17",
        "region",
        "value.missing = 1",
        "NOT value.missing",
        "missing <> 'x'",
        "missing = missing",
        "NOT missing = 'x'",
        "region > 5",
        "NOT region > 5",
        "attempts < '20'",  # as texts
        "attempts / 0 = 1",
        "value.items = 1",
        "FALSE",
        "attempts BETWEEN 3 AND 1",
    ],
)
def test_the_order_does_not_pass(text: str) -> None:
    assert not passes(text)


@pytest.mark.parametrize(
    ("text", "character", "problem"),
    [
        ("price > > 5", 9, "a name, a text in single quotes or a number is expected here, not '>'"),
        ("price > ", 9, "not the end"),
        ("region == 'eu'", 8, "write ="),
        ("region = 'eu", 10, "the ' that begins here has no end"),
        ("a = 1 || b = 2", 7, "a condition has OR"),
        ("a = 1 b = 2", 7, "AND, OR or the end is expected here, not 'b'"),
        ("(a = 1", 7, ") is expected here"),
        ("timestamp > '2026-01-01'", 13, "timestamp is in milliseconds since 1970"),
        ("tags > 'a'", 1, "tags are compared with =, <>, IN and IS NULL only"),
        ("tags: a || || b", 12, "a tag is expected here"),
        ("a = 1 AND 5", 11, "a condition is expected here"),
        ("value = 'x'", 1, "value.price"),
        ("key LIKE 'a!' ESCAPE '!'", 10, "the pattern ends with its escape character"),
        ("(" * (DEPTH_MAX + 1), DEPTH_MAX + 2, f"more than {DEPTH_MAX} levels"),
        (" OR ".join(["a=1"] * TERMS_MAX), 1_751, f"at most {TERMS_MAX} values and names"),
        ("a = 1" + " " * CHARACTERS_MAX, CHARACTERS_MAX + 1, f"at most {CHARACTERS_MAX} characters"),
        ("a LIKE '_' OR " * TABLES_MAX + "a LIKE '_'", 288, f"at most {TABLES_MAX} patterns"),
        ("a = '\ud800'", 6, "half a character"),
    ],
)  # fmt: skip
def test_an_error_points_at_the_character(text: str, character: int, problem: str) -> None:
    with pytest.raises(FilterInvalid) as raised:
        compile_filter(text)
    assert problem in str(raised.value)
    assert str(raised.value).startswith(f"the filter is invalid at character {character}: ")


def test_an_error_shows_the_line_with_a_caret_under_the_place() -> None:
    with pytest.raises(FilterInvalid) as raised:
        compile_filter("price > 5 AND region == 'eu'")
    assert str(raised.value).splitlines()[1:] == [
        "  price > 5 AND region == 'eu'",
        "                       ^",
    ]


def test_an_error_in_a_long_filter_shows_the_part_around_the_place() -> None:
    text = "a = 1 OR " * 50 + "b = = 2" + " OR a = 1" * 50
    with pytest.raises(FilterInvalid) as raised:
        compile_filter(text)
    _, line, caret = str(raised.value).splitlines()
    assert line.startswith("  ...")
    assert line.endswith("...")
    assert line[len(caret) - 1] == "="


def batch_of(*messages: Record) -> BatchColumns:
    (batch,) = batches(build_batch(messages))
    found = BatchColumns("t", 0)
    assert found.add([(batch.header, bytes(batch.data[HEADER_BYTES:]))]) == [True]
    return found


def test_only_what_the_filter_names_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("this filter needs the key alone")

    monkeypatch.setattr(columns, "decode_headers", refuse)
    monkeypatch.setattr(json.JSONDecoder, "decode", refuse)
    by_key = compile_filter("key = 'k'")
    assert by_key is not None
    header = RecordHeader("h", b"1")
    assert by_key.select(batch_of(Record(key=b"k", value=b"{}", headers=(header,)))) == [0]


def test_a_record_with_malformed_headers_is_found_beside_readable_ones() -> None:
    good = Record(key=b"k", headers=(RecordHeader("h", b"1"),))
    (batch,) = batches(build_batch([good, good]))
    section = bytearray(batch.data[HEADER_BYTES:])
    section[-4] = 0x7F  # the length of the last header's name
    malformed = BatchColumns("t", 0)
    assert malformed.add([(batch.header, bytes(section))]) == [True]
    by_header = compile_filter("h = '1'")
    assert by_header is not None
    assert by_header.select(malformed) == [0]
    assert malformed.unreadable == {1}


def test_many_filters_share_the_columns_of_a_batch() -> None:
    messages = batch_of(
        *(Record(headers=(RecordHeader("n", b"%d" % number),)) for number in range(100))
    )
    filters = [compile_filter(f"n = {number} OR n = '{number}'") for number in range(100)]
    for number, each in enumerate(filters):
        assert isinstance(each, Filter)
        assert each.select(messages) == [number]


def test_the_last_of_several_headers_with_one_name_counts() -> None:
    message = batch_of(Record(headers=(RecordHeader("h", b"1"), RecordHeader("h", b"2"))))
    last = compile_filter("h = '2'")
    assert last is not None
    assert last.select(message) == [0]


def test_tags_become_one_header() -> None:
    assert format_tags("new") == "new"
    assert format_tags(["new", "big"]) == "new,big"
    for wrong in ("a,b", "", " a", "a|b"):
        with pytest.raises(ValueError, match="is not a tag"):
            format_tags([wrong])

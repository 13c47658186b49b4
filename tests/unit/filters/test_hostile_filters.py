"""Hostile filters compile or are refused with their place, and never crash on hostile messages."""

from hostile_filters import hostile_filters

from zhumq.filters.columns import MessageColumns
from zhumq.filters.filter import compile_filter
from zhumq.filters.invalid import SHOWN_CHARACTERS, FilterInvalid
from zhumq.filters.parser import CHARACTERS_MAX

DEEP = b"[" * 100_000
MESSAGES = [
    MessageColumns(
        topic="t",
        partition=0,
        offset=2**62,
        timestamp_ms=-1,
        key=key,
        value=value,
        headers=[("a", header), ("h", header), ("zhumq-tags", header)],
    )
    for key, value, header in (
        (None, None, None),
        (b"", b"", b""),
        (b"a" * 200_000, b'{"a": [' + b"1," * 1_000 + b"1]}", b"9" * 100_000),
        (b"\xff" * 100, DEEP, b"\xed\xa0\x80"),
        (b"aaaa_%", b'{"a": 1e999, "__class__": {"__mro__": 1}}', b"1e999"),
        (b"\x00", b'"\\ud800"', b"-0"),
        (b"x", b"1" * 10_000, b"," * 10_000),
        (b"true", b'{"a": NaN}', b"true"),
    )
]


def check_refusal(error: FilterInvalid, text: str) -> None:
    problem, line, caret = str(error).rsplit("\n", 2)
    assert problem.startswith(f"the filter is invalid at character {error.position + 1}: ")
    assert 0 <= error.position <= len(text)
    assert len(line) <= 2 * SHOWN_CHARACTERS + 10
    assert line.isprintable()
    assert caret.strip() == "^"
    assert len(caret) <= len(line) + 1


def test_more_than_300_hostile_filters_are_refused_with_their_place_or_work() -> None:
    texts = list(hostile_filters())
    assert len(set(texts)) > 300
    refused = 0
    for text in texts:
        try:
            compiled = compile_filter(text)
        except FilterInvalid as error:
            refused += 1
            check_refusal(error, text)
            continue
        assert len(text) <= CHARACTERS_MAX
        if compiled is not None:
            for message in MESSAGES:
                assert compiled.select(message) in ([], [0])
    assert 200 < refused < len(texts)

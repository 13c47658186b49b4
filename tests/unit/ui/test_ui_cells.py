"""Names and bytes of others as cells: one line, nothing that a terminal obeys, and a bounded length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("textual")

from zhumq.admin.lookup import FoundMessage
from zhumq.ui.cells import (
    NAME_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    lag_cell,
    name_cell,
    rate_cell,
    seconds_cell,
    shown,
    shown_bytes,
    size_cell,
    time_text,
)
from zhumq.ui.tail import line_of


@given(st.text(max_size=200))
def test_any_name_is_one_printable_line_of_bounded_length(name: str) -> None:
    text = shown(name)
    assert text.isprintable()
    assert len(text) <= NAME_CHARACTERS_MAX
    if name.isprintable() and len(name) <= NAME_CHARACTERS_MAX:
        assert text == name


@given(st.binary(max_size=5_000))
def test_any_bytes_are_one_printable_line_of_bounded_length(data: bytes) -> None:
    text = shown_bytes(data)
    assert text.isprintable()
    assert len(text) <= VALUE_CHARACTERS_MAX


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert shown("\x1b[2Ja\nb\u202e") == "\\x1b[2Ja\\nb\\u202e"
    assert shown_bytes(b"\xff\x00") == "0xff00"
    assert shown_bytes(None) == "null"
    assert shown_bytes("für".encode()) == "für"


def test_markup_is_text() -> None:
    assert name_cell("[red]x[/red]").plain == "[red]x[/red]"
    assert name_cell("[red]x[/red]").spans == []


def test_a_large_value_is_cut_also_in_the_middle_of_a_character() -> None:
    text = shown_bytes("é".encode() * 1_000_000)
    assert text == "é" * (VALUE_CHARACTERS_MAX - 1) + "…"


def test_what_is_not_known_is_a_dash() -> None:
    unknown = [size_cell(None), rate_cell(None), lag_cell(None), seconds_cell(None)]
    assert [each.plain.strip() for each in unknown] == ["-"] * 4
    assert size_cell(1_536).plain == "    1.5 KiB"
    assert lag_cell(0).style == ""
    assert lag_cell(1_234).plain.strip() == "1,234"


def test_a_timestamp_of_any_number_is_shown() -> None:
    assert time_text(2**62) == f"{2**62} ms"


def test_a_message_is_one_line_with_its_headers() -> None:
    line = line_of(
        FoundMessage(
            topic="t",
            partition=1,
            offset=17,
            timestamp_ms=0,
            key=b"k\x1b",
            value=b"[bold]\r\nvalue",
            headers=(("h[", b"\xff"), ("none", None)),
        )
    )
    assert line.plain.endswith("  1@17  k\\x1b  [bold]\\r\\nvalue  h[=0xff  none=null")

"""Bytes of messages as JSON, and back."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.web.content import Format, GivenContent, read_content, show
from zhumq.web.problems import RequestRefused

MANY = 1_000_000


@given(st.binary(), st.sampled_from(["auto", "text", "json", "base64"]))
def test_shown_bytes_sent_again_are_the_same(content: bytes, format_: Format) -> None:
    shown = msgspec.json.decode(msgspec.json.encode(show(content, format_, MANY)))
    assert shown.pop("size") == len(content)
    if "json" in shown:
        assert msgspec.json.decode(content) == shown["json"]
    else:
        given_back = msgspec.convert(shown, GivenContent)
        assert read_content(given_back, "value") == content


@given(st.text(), st.integers(0, 20))
def test_a_cut_text_is_the_beginning_of_the_text(text: str, bytes_max: int) -> None:
    content = text.encode()
    shown = show(content, "auto", bytes_max)
    assert shown is not None
    assert shown.is_cut == (len(content) > bytes_max)
    assert isinstance(shown.text, str)
    assert text.startswith(shown.text)
    assert len(shown.text.encode()) > bytes_max - 4 or not shown.is_cut


@pytest.mark.parametrize("content", [b"\xff", b"{", b"", b"1e400", b"[" * 100_000])
def test_what_is_no_json_is_shown_in_another_form(content: bytes) -> None:
    shown = show(content, "json", MANY)
    assert shown is not None
    assert shown.json is msgspec.UNSET


def test_json_is_sent_as_it_is_written() -> None:
    given = msgspec.json.decode(b'{"json": {"b":  1.50, "a": []}}', type=GivenContent)
    assert read_content(given, "value") == b'{"b":  1.50, "a": []}'


def test_text_base64_and_null_are_sent_as_bytes() -> None:
    assert read_content("ä", "value") == "ä".encode()
    assert read_content(GivenContent(text=""), "value") == b""
    assert read_content(GivenContent(base64=base64.b64encode(b"\0\xff").decode()), "v") == b"\0\xff"
    assert read_content(None, "value") is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (GivenContent(), "exactly one"),
        (GivenContent(text="", base64=""), "exactly one"),
        (GivenContent(base64="?"), "value is not base64"),
        (GivenContent(json=msgspec.Raw(b'"\xff"')), "value is not JSON"),
    ],
)
def test_other_contents_are_refused_by_the_name_of_the_field(
    given: GivenContent, reason: str
) -> None:
    with pytest.raises(RequestRefused, match=reason):
        read_content(given, "value")

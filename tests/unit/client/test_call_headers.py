"""Headers of request-reply: round trips, and addresses that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.client.call_headers import (
    CALL_HEADER,
    ERROR_HEADER,
    REPLY_PARTITION_HEADER,
    REPLY_TOPIC_HEADER,
    ReplyAddress,
    call_of,
    reply_address,
    reply_headers,
)

GOOD = {CALL_HEADER: b"c-1", REPLY_TOPIC_HEADER: b"replies", REPLY_PARTITION_HEADER: b"3"}


def test_an_address_survives_the_headers() -> None:
    address = ReplyAddress(call_id=b"c-1", topic="replies", partition=3)
    assert reply_address([("other", b"x"), *address.headers()]) == address


@pytest.mark.parametrize("missing", GOOD)
def test_a_message_without_one_of_the_headers_has_no_address(missing: str) -> None:
    assert reply_address([(name, value) for name, value in GOOD.items() if name != missing]) is None


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (CALL_HEADER, b""),
        (CALL_HEADER, None),
        (CALL_HEADER, b"x" * 129),
        (REPLY_TOPIC_HEADER, b"\xff"),
        (REPLY_TOPIC_HEADER, b"t" * 250),
        (REPLY_TOPIC_HEADER, b"__consumer_offsets"),
        (REPLY_PARTITION_HEADER, b"-1"),
        (REPLY_PARTITION_HEADER, b"one"),
        (REPLY_PARTITION_HEADER, b"1" * 10),
    ],
)
def test_an_impossible_address_is_none(header: str, value: bytes | None) -> None:
    assert reply_address([*GOOD.items(), (header, value)]) is None


def test_a_reply_names_its_call_and_its_error() -> None:
    assert call_of(reply_headers(b"c-1")) == (b"c-1", None)
    assert call_of(reply_headers(b"c-1", KeyError("x"))) == (b"c-1", "KeyError: 'x'")
    assert call_of([(ERROR_HEADER, b"\xff")]) == (None, "\ufffd")


def test_the_text_of_an_error_is_bounded() -> None:
    _, error = call_of(reply_headers(b"c-1", ValueError("x" * 1_000_000)))
    assert error is not None
    assert len(error) == 1_000


@given(
    st.lists(st.tuples(st.sampled_from([*GOOD, ERROR_HEADER]), st.none() | st.binary(max_size=20)))
)
def test_any_headers_can_be_read(headers: list[tuple[str, bytes | None]]) -> None:
    reply_address(headers)
    call_of(headers)

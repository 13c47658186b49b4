"""The messages of PLAIN and OAUTHBEARER, well-formed and not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.exchange import Challenge, PasswordGiven, Rejected, TokenGiven
from zhumq.security.oauthbearer import OAuthBearerExchange
from zhumq.security.plain import PlainExchange

TOKEN = "aGVhZGVy.Y2xhaW1z.c2lnbmF0dXJl"


@pytest.mark.parametrize("message", [b"\0alice\0se cret", b"alice\0alice\0se cret"])
def test_plain_gives_a_user_and_a_password(message: bytes) -> None:
    expected = PasswordGiven(user="alice", password="se cret")
    assert PlainExchange().respond(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0\0secret",
        b"\0alice\0",
        b"root\0alice\0secret",
        b"\0alice\0secret\0",
        b"\0alice\0\xff",
    ],
)
def test_plain_rejects_what_is_malformed_or_asks_to_be_another_user(message: bytes) -> None:
    assert isinstance(PlainExchange().respond(message), Rejected)


def test_a_password_is_not_in_the_text_form_of_a_step() -> None:
    assert "secret" not in repr(PasswordGiven(user="alice", password="secret"))
    assert TOKEN not in repr(TokenGiven(token=TOKEN, authorization_id=""))


@pytest.mark.parametrize(
    ("message", "authorization_id"),
    [
        (f"n,,\x01auth=Bearer {TOKEN}\x01\x01", ""),
        (f"n,,\x01auth=bearer  {TOKEN}\x01\x01", ""),
        (f"n,a=al=2Cice,\x01auth=Bearer {TOKEN}\x01\x01", "al,ice"),
        (f"n,,\x01host=broker\x01port=9092\x01auth=Bearer {TOKEN}\x01traceId=1\x01\x01", ""),
    ],
)
def test_oauthbearer_gives_a_token(message: str, authorization_id: str) -> None:
    expected = TokenGiven(token=TOKEN, authorization_id=authorization_id)
    assert OAuthBearerExchange().respond(message.encode()) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        f"n,,\x01auth=Bearer {TOKEN}\x01".encode(),
        f"y,,\x01auth=Bearer {TOKEN}\x01\x01".encode(),
        f"n,,\x01auth=Bearer {TOKEN}\xff\x01\x01".encode("latin-1"),
    ],
)
def test_oauthbearer_rejects_what_has_no_bearer_token(message: bytes) -> None:
    assert isinstance(OAuthBearerExchange().respond(message), Rejected)


def test_the_client_confirms_the_error_before_its_refused_token_is_final() -> None:
    exchange = OAuthBearerExchange()
    first = f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()
    assert isinstance(exchange.respond(first), TokenGiven)
    challenge = exchange.refuse("expired")
    assert isinstance(challenge, Challenge)
    assert json.loads(challenge.data) == {"status": "invalid_token"}
    step = exchange.respond(b"\x01")
    assert isinstance(step, Rejected)
    assert step.reason == "expired"
    assert json.loads(step.message) == {"status": "invalid_token"}


def test_a_refused_client_gets_no_second_try_in_the_same_exchange() -> None:
    exchange = OAuthBearerExchange()
    first = f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()
    exchange.respond(first)
    exchange.refuse("expired")
    assert isinstance(exchange.respond(first), Rejected)


@given(st.binary(max_size=300))
def test_any_bytes_are_answered(message: bytes) -> None:
    assert isinstance(OAuthBearerExchange().respond(message), TokenGiven | Rejected)
    assert isinstance(PlainExchange().respond(message), PasswordGiven | Rejected)

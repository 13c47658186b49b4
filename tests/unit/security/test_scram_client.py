"""The client's side of SCRAM: RFC 7677's example, and servers that are not what they claim."""

import pytest

from zhumq.security.scram_client import ITERATIONS_MAX, ScramClient, ScramFailed

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(password: str = "pencil", username: str = "user") -> ScramClient:
    return ScramClient(mechanism="SCRAM-SHA-256", username=username, password=password, nonce=NONCE)


def test_the_exchange_of_the_rfc_succeeds() -> None:
    scram = client()
    assert scram.first() == CLIENT_FIRST
    assert scram.final(SERVER_FIRST) == CLIENT_FINAL
    scram.verify(SERVER_FINAL)


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    scram = client(password="pencil2")
    assert scram.final(SERVER_FIRST) != CLIENT_FINAL
    with pytest.raises(ScramFailed, match="does not know the password"):
        scram.verify(SERVER_FINAL)


def test_a_server_that_skips_the_exchange_is_found_out() -> None:
    with pytest.raises(ScramFailed, match="does not know the password"):
        client().verify(SERVER_FINAL)


def test_a_server_that_refuses_is_reported() -> None:
    scram = client()
    scram.final(SERVER_FIRST)
    with pytest.raises(ScramFailed, match="'invalid-proof'"):
        scram.verify(b"e=invalid-proof")


def test_a_user_name_with_signs_of_the_protocol_is_escaped() -> None:
    assert client(username="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"m=x," + SERVER_FIRST, "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), "4096 to"),
        (SERVER_FIRST.replace(b"i=4096", b"i=%d" % (ITERATIONS_MAX + 1)), "are safe"),
        (SERVER_FIRST.replace(b"i=4096", b"i=99999999999999999999"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-5"), "iterations"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s=!"), "base64"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==,", b""), "lacks a field"),
        (SERVER_FIRST + b",i=5000", "not a SCRAM message"),
        (b"\xff", "UTF-8"),
        (b"", "not a SCRAM message"),
    ],
)
def test_a_wrong_first_message_of_the_server_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(ScramFailed, match=why):
        client().final(message)

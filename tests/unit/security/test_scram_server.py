"""SCRAM exchanges: the vector of RFC 7677, honest clients, and messages that an attacker changes."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.exchange import Accepted, Challenge, Rejected
from zhumq.security.scram import hash_name, salted_password
from zhumq.security.scram_server import (
    FoundCredential,
    ScramExchange,
    credential_of,
    is_prepared,
    password_matches,
)

SALT = b"salt and more salt"
ITERATIONS = 4_096
# One PBKDF2 for all examples: it is slow by design.
SALTED = {
    mechanism: salted_password(hash_name(mechanism.sasl_name), "secret", SALT, ITERATIONS)
    for mechanism in ScramMechanism
}


def stored(mechanism: ScramMechanism) -> ScramCredential:
    return credential_of(mechanism, SALTED[mechanism], SALT, ITERATIONS)


def exchange_for(
    mechanism: ScramMechanism, *, nonce: str = "server", is_real: bool = True
) -> ScramExchange:
    found = FoundCredential(credential=stored(mechanism), is_real=is_real)
    return ScramExchange(mechanism, lambda _: found, server_nonce=nonce)


class HonestClient:
    """The client's side, written from the RFC and not with the code under test."""

    def __init__(
        self, mechanism: ScramMechanism, *, user: str = "alice", header: str = "n,,"
    ) -> None:
        self.name = hash_name(mechanism.sasl_name)
        self.salted = SALTED[mechanism]
        self.header = header
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self.first_bare = f"n={escaped},r=client"

    @property
    def first(self) -> bytes:
        return (self.header + self.first_bare).encode()

    def final(self, challenge: bytes) -> bytes:
        nonce = challenge.decode().split(",")[0]
        binding = base64.b64encode(self.header.encode()).decode()
        bare = f"c={binding},{nonce}"
        self.signed = f"{self.first_bare},{challenge.decode()},{bare}".encode()
        client_key = hmac.digest(self.salted, b"Client Key", self.name)
        signature = hmac.digest(hashlib.new(self.name, client_key).digest(), self.signed, self.name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def verifier(self) -> bytes:
        server_key = hmac.digest(self.salted, b"Server Key", self.name)
        return b"v=" + base64.b64encode(hmac.digest(server_key, self.signed, self.name))


def challenge_of(exchange: ScramExchange, first: bytes) -> bytes:
    step = exchange.respond(first)
    assert isinstance(step, Challenge), step
    return step.data


def test_the_exchange_of_rfc_7677_is_answered_byte_by_byte() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    mechanism = ScramMechanism.SHA_256
    salted = salted_password(hash_name(mechanism.sasl_name), "pencil", salt, 4096)
    credential = credential_of(mechanism, salted, salt, 4096)
    exchange = ScramExchange(
        mechanism,
        lambda _: FoundCredential(credential=credential, is_real=True),
        server_nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    assert exchange.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        data=b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == Accepted(user="user", data=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", ScramMechanism)
@given(user=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_client_with_the_password_is_the_user_that_it_names(
    mechanism: ScramMechanism, user: str
) -> None:
    exchange = exchange_for(mechanism)
    client = HonestClient(mechanism, user=user)
    step = exchange.respond(client.final(challenge_of(exchange, client.first)))
    assert step == Accepted(user=user, data=client.verifier())


def test_extensions_are_signed_and_otherwise_ignored() -> None:
    exchange = exchange_for(ScramMechanism.SHA_512)
    client = HonestClient(ScramMechanism.SHA_512)
    client.first_bare += ",tokenauth=true,x=y"
    step = exchange.respond(client.final(challenge_of(exchange, client.first)))
    assert step == Accepted(user="alice", data=client.verifier())


def test_the_authorization_id_has_to_be_the_user() -> None:
    for header, expected in (("n,a=alice,", Challenge), ("n,a=root,", Rejected)):
        client = HonestClient(ScramMechanism.SHA_256, header=header)
        assert isinstance(exchange_for(ScramMechanism.SHA_256).respond(client.first), expected)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=,r=nonce",
        b"n,,n=alice,r=",
        b"n,,n=ali=ce,r=nonce",
        b"n,,n=ali\x00ce,r=nonce",
        b"n,,m=mandatory,n=alice,r=nonce",
        b"y,,n=alice,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,,n=alice,r=non ce",
        b"\xff\xfe",
    ],
)
def test_a_malformed_first_message_is_rejected(first: bytes) -> None:
    assert isinstance(exchange_for(ScramMechanism.SHA_256).respond(first), Rejected)


@settings(max_examples=300)
@given(data=st.data())
def test_no_change_of_a_final_message_is_accepted(data: st.DataObject) -> None:
    exchange = exchange_for(ScramMechanism.SHA_256)
    client = HonestClient(ScramMechanism.SHA_256)
    final = bytearray(client.final(challenge_of(exchange, client.first)))
    position = data.draw(st.integers(0, len(final) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda each: each != final[position]))
    final[position] = byte
    step = exchange.respond(bytes(final))
    # The last digit of base64 has bits that mean nothing: such a change leaves the proof as it was.
    if isinstance(step, Accepted):
        parts = [bytes(final).rpartition(b"p=")[2], client.final(b"r=x").rpartition(b"p=")[2]]
        assert position >= len(final) - 2, (position, parts)
    else:
        assert isinstance(step, Rejected)


def test_a_replayed_final_message_is_rejected_because_the_server_has_another_nonce() -> None:
    client = HonestClient(ScramMechanism.SHA_512)
    recorded = exchange_for(ScramMechanism.SHA_512, nonce="one")
    final = client.final(challenge_of(recorded, client.first))
    assert isinstance(recorded.respond(final), Accepted)
    replayed = exchange_for(ScramMechanism.SHA_512, nonce="two")
    challenge_of(replayed, client.first)
    assert isinstance(replayed.respond(final), Rejected)


def test_a_nonce_that_only_ends_like_the_servers_is_rejected() -> None:
    exchange = exchange_for(ScramMechanism.SHA_256)
    client = HonestClient(ScramMechanism.SHA_256)
    challenge = challenge_of(exchange, client.first)
    assert isinstance(exchange.respond(client.final(b"r=x" + challenge[2:])), Rejected)


def test_a_header_that_differs_from_the_first_message_is_rejected() -> None:
    exchange = exchange_for(ScramMechanism.SHA_256)
    client = HonestClient(ScramMechanism.SHA_256)
    challenge = challenge_of(exchange, client.first)
    client.header = "y,,"
    assert isinstance(exchange.respond(client.final(challenge)), Rejected)


def test_a_made_up_credential_is_rejected_even_with_its_proof() -> None:
    exchange = exchange_for(ScramMechanism.SHA_256, is_real=False)
    client = HonestClient(ScramMechanism.SHA_256)
    step = exchange.respond(client.final(challenge_of(exchange, client.first)))
    assert isinstance(step, Rejected)


def test_nothing_follows_the_end_of_an_exchange() -> None:
    exchange = exchange_for(ScramMechanism.SHA_256)
    client = HonestClient(ScramMechanism.SHA_256)
    final = client.final(challenge_of(exchange, client.first))
    assert isinstance(exchange.respond(final), Accepted)
    assert isinstance(exchange.respond(final), Rejected)
    failed = exchange_for(ScramMechanism.SHA_256)
    assert isinstance(failed.respond(b"nonsense"), Rejected)
    assert isinstance(failed.respond(client.first), Rejected)


def test_the_message_of_a_rejection_is_the_same_for_every_reason() -> None:
    reasons = set()
    messages = set()
    client = HonestClient(ScramMechanism.SHA_256)
    for is_real, change in ((True, b"x"), (False, b""), (False, b"x")):
        exchange = exchange_for(ScramMechanism.SHA_256, is_real=is_real)
        step = exchange.respond(client.final(challenge_of(exchange, client.first)) + change)
        assert isinstance(step, Rejected)
        messages.add(step.message)
        reasons.add(step.reason)
    assert len(messages) == 1
    assert len(reasons) == 2


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_password_matches_its_own_credential_only(mechanism: ScramMechanism) -> None:
    assert password_matches(mechanism, stored(mechanism), "secret")
    assert not password_matches(mechanism, stored(mechanism), "Secret")


@pytest.mark.parametrize("text", ["secret", "p%ss w0rd,=\"'", "pässwörd", "密码", "Iא"[:1]])
def test_texts_that_clients_agree_on_are_prepared(text: str) -> None:
    assert is_prepared(text)


@pytest.mark.parametrize(
    "text",
    [
        "soft\u00adhyphen",
        "ª",  # a by NFKC
        "Ⅸ",
        "no\u00a0break",
        "bell\x07",
        "line\n",
        "\ue000",  # private use
        "a\u0627b",  # mixed directions
        "\u0627\u0031",  # ends from left to right
        "\u0221",  # not assigned in Unicode 3.2
    ],
)
def test_texts_that_saslprep_changes_or_prohibits_are_not_prepared(text: str) -> None:
    assert not is_prepared(text)

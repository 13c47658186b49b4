"""The server's side of a SCRAM exchange (RFC 5802, RFC 7677), and the credentials that it checks. Pure."""

import base64
import binascii
import hmac
import re
import stringprep
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.exchange import Accepted, Challenge, Rejected, Step
from zhumq.security.scram import (
    client_key,
    hash_name,
    keyed_hash,
    salted_password,
    server_key,
    stored_key,
    xor,
)

# Kafka's bounds for stored credentials.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
# For passwords that are set here: OWASP's figures are higher, and Kafka's tools could not repeat them.
ITERATIONS_DEFAULT: Final = 8_192
SALT_BYTES: Final = 32

_NAME: Final = "(?:[^\x00=,]|=2C|=3D)+"
_EXTENSIONS: Final = "(?:,[A-Za-z]+=[^\x00,]+)*"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = "[A-Za-z0-9/+]+={0,2}"
# As in Kafka the client asks for no channel binding (n). Extensions are ignored, but they are part of
# what both sides sign.
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCredential:
    """The credential of a user name, or one made up for a name without (`is_real` is false)."""

    credential: ScramCredential
    is_real: bool


FindCredential = Callable[[str], FoundCredential]


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a salted password, which itself would be enough to log in."""
    name = hash_name(mechanism.sasl_name)
    return ScramCredential(
        salt=salt,
        iterations=iterations,
        stored_key=stored_key(name, client_key(name, salted)),
        server_key=server_key(name, salted),
    )


def password_matches(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Takes milliseconds, whether it matches or not."""
    name = hash_name(mechanism.sasl_name)
    salted = salted_password(name, password, credential.salt, credential.iterations)
    given = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(given.stored_key, credential.stored_key)


def is_prepared(text: str) -> bool:
    """Whether SASLprep (RFC 4013) leaves the text as it is.

    Some clients prepare user names and passwords, others, like Kafka's own, do not. With a text that is
    prepared already, all of them log in.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each
        for each in text
        if not stringprep.in_table_b1(each)
    )
    return unicodedata.normalize("NFKC", mapped) == text and not _is_prohibited(text)


class ScramExchange:
    """The server's side for one client: two messages, in order."""

    def __init__(
        self, mechanism: ScramMechanism, find: FindCredential, *, server_nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._hash = hash_name(mechanism.sasl_name)
        self._find = find
        self._server_nonce = server_nonce
        self._pending: _Pending | None = None
        self._is_over = False

    def respond(self, data: bytes) -> Step:
        try:
            message = data.decode()
        except UnicodeDecodeError:
            return self._reject("a message that is not UTF-8")
        if self._is_over:
            return self._reject("a message after the last one")
        if self._pending is None:
            return self._first(message)
        self._is_over = True
        return self._final(message, self._pending)

    def _first(self, message: str) -> Step:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            return self._reject("a malformed first message")
        user = _unescaped(found["user"])
        if found["authorization"] is not None and _unescaped(found["authorization"]) != user:
            return self._reject("an authorization id that is not the user", user)
        held = self._find(user)
        credential = held.credential
        nonce = found["nonce"] + self._server_nonce
        salt = base64.b64encode(credential.salt).decode()
        challenge = f"r={nonce},s={salt},i={credential.iterations}"
        self._pending = _Pending(
            user=user,
            found=held,
            binding=base64.b64encode(found["header"].encode()).decode(),
            nonce=nonce,
            signed=f"{found['bare']},{challenge},",
        )
        return Challenge(data=challenge.encode())

    def _final(self, message: str, pending: "_Pending") -> Step:
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None:
            return self._reject("a malformed final message", pending.user)
        if not hmac.compare_digest(found["nonce"], pending.nonce):
            return self._reject("another nonce than the server's", pending.user)
        if found["binding"] != pending.binding:
            return self._reject("another header than in the first message", pending.user)
        credential = pending.found.credential
        signed = (pending.signed + found["bare"]).encode()
        signature = keyed_hash(self._hash, credential.stored_key, signed)
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            return self._reject("a proof of another length", pending.user)
        proven_key = stored_key(self._hash, xor(proof, signature))
        is_proven = hmac.compare_digest(proven_key, credential.stored_key)
        verifier = keyed_hash(self._hash, credential.server_key, signed)
        if not (is_proven and pending.found.is_real):
            return self._reject("a wrong password, or no such user", pending.user)
        return Accepted(user=pending.user, data=b"v=" + base64.b64encode(verifier))

    def _reject(self, reason: str, user: str = "") -> Rejected:
        self._is_over = True
        name = self._mechanism.sasl_name
        # Kafka's message, which does not tell why.
        return Rejected(
            reason=reason,
            user=user,
            message="Authentication failed during authentication due to invalid credentials with SASL"
            f" mechanism {name}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    user: str
    found: FoundCredential
    binding: str
    nonce: str
    signed: str  # what both sides sign, up to the client's final message


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def _is_prohibited(text: str) -> bool:
    if any(table(each) for each in text for table in _PROHIBITED):
        return True
    # RFC 3454, section 6: text from right to left is not mixed, and begins and ends so.
    if not any(map(stringprep.in_table_d1, text)):
        return False
    is_mixed = any(map(stringprep.in_table_d2, text))
    return is_mixed or not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1]))

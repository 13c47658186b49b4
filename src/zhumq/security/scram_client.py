"""The client's side of a SCRAM exchange, with the check that the server knows the password, too. Pure."""

import base64
import binascii
import hmac
import re
from typing import Final

from zhumq.security.scram import (
    client_key,
    hash_name,
    keyed_hash,
    salted_password,
    server_key,
    stored_key,
    xor,
)

ITERATIONS_MIN: Final = (
    4096  # RFC 7677; fewer would make a password cheap to guess for a false server
)
ITERATIONS_MAX: Final = 1_000_000  # more would only keep the client busy
_GS2_HEADER: Final = "n,,"  # no channel binding, no other user to act as
_ATTRIBUTE: Final = re.compile(r"([A-Za-z])=([^,\0]*)")


class ScramFailed(Exception):
    """The exchange failed: `str` is the reason, which holds no secret."""


class ScramClient:
    """One exchange: `first`, then `final` for the server's first message, then `verify` for its last."""

    def __init__(self, *, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce` is random and without commas."""
        self._hash = hash_name(mechanism)
        self._password = password
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof that the client knows the password. Raises ScramFailed."""
        text = _text(server_first)
        attributes = _attributes(text)
        nonce, salt = attributes.get("r", ""), _decoded(attributes.get("s", ""))
        iterations = attributes.get("i", "")
        # RFC 5802: a nonce that is not ours is a replay; `m` names an extension that this client lacks.
        if not nonce.startswith(self._nonce) or nonce == self._nonce or "m" in attributes:
            raise ScramFailed("the server's nonce does not continue the client's")
        if not (iterations.isascii() and iterations.isdecimal()) or len(iterations) > 9:
            raise ScramFailed("the server names no number of iterations")
        if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise ScramFailed(
                f"the server asks for {iterations} iterations, and {ITERATIONS_MIN} to"
                f" {ITERATIONS_MAX} are safe"
            )
        salted = salted_password(self._hash, self._password, salt, int(iterations))
        without_proof = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        message = f"{self._first_bare},{text},{without_proof}".encode()
        key = client_key(self._hash, salted)
        signature = keyed_hash(self._hash, stored_key(self._hash, key), message)
        self._server_signature = keyed_hash(self._hash, server_key(self._hash, salted), message)
        proof = base64.b64encode(xor(key, signature)).decode()
        return f"{without_proof},p={proof}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password, too. Raises ScramFailed."""
        attributes = _attributes(_text(server_final))
        if "e" in attributes:
            raise ScramFailed(f"the server refused the exchange: {attributes['e'][:80]!r}")
        signature = _decoded(attributes.get("v", ""))
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise ScramFailed("the server does not know the password: is it the right server?")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramFailed("the server's message is not UTF-8") from None


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        match = _ATTRIBUTE.fullmatch(part)
        if match is None or match[1] in found:
            raise ScramFailed("the server's message is not a SCRAM message")
        found[match[1]] = match[2]
    return found


def _decoded(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise ScramFailed("the server's message is not base64") from None
    if not decoded:
        raise ScramFailed("the server's message lacks a field")
    return decoded

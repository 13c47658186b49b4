"""SASL on a connection of the wire client: handshake, exchange, and the lifetime of the session."""

import secrets
from collections.abc import Callable
from typing import Any, Final

from zhumq.client.errors import AuthenticationFailed
from zhumq.client.security import OAUTHBEARER, PLAIN, ClientSecurity
from zhumq.client.tokens import get_token
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from zhumq.security.scram import NONCE_BYTES
from zhumq.security.scram_client import ScramClient, ScramFailed

HANDSHAKE_VERSION: Final = 1  # 0 would have the exchange follow without Kafka's framing
AUTHENTICATE_VERSION: Final = 2
# RFC 7628: fields are separated, and the message is ended, by this byte.
_SEPARATOR: Final = "\x01"

Ask = Callable[[ApiKey, Any, int], Any]


def authenticate(ask: Ask, security: ClientSecurity) -> float | None:
    """Authenticate the connection of `ask`. Returns the lifetime of the session in seconds, if it has one.

    Raises AuthenticationFailed, which never holds the password.
    """
    answer = ask(
        ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=security.mechanism), HANDSHAKE_VERSION
    )
    if answer.error_code != ErrorCode.NONE:
        if not answer.mechanisms:
            raise AuthenticationFailed(
                "the listener is without SASL: set security.protocol=PLAINTEXT or SSL"
            )
        offered = ", ".join(answer.mechanisms)
        raise AuthenticationFailed(
            f"the broker does not offer {security.mechanism}: set sasl.mechanism to one of {offered}"
        )
    if security.mechanism == PLAIN:
        password = security.password.reveal()
        answer = _send(ask, security, f"\0{security.username}\0{password}".encode())
    elif security.mechanism == OAUTHBEARER:
        answer = _bearer(ask, security)
    else:
        answer = _scram(ask, security)
    lifetime_ms = answer.session_lifetime_ms
    return lifetime_ms / 1000 if lifetime_ms > 0 else None


def _send(ask: Ask, security: ClientSecurity, message: bytes) -> Any:
    request = SaslAuthenticateRequest(auth_bytes=message)
    answer = ask(ApiKey.SASL_AUTHENTICATE, request, AUTHENTICATE_VERSION)
    if answer.error_code != ErrorCode.NONE:
        who = f"the user {security.username!r}" if security.username else "the client's token"
        reason = answer.error_message or f"error {answer.error_code}"
        raise AuthenticationFailed(f"the broker refused {who} ({security.mechanism}): {reason}")
    return answer


def _scram(ask: Ask, security: ClientSecurity) -> Any:
    client = ScramClient(
        mechanism=security.mechanism,
        username=security.username,
        password=security.password.reveal(),
        nonce=secrets.token_urlsafe(NONCE_BYTES),
    )
    try:
        first = _send(ask, security, client.first())
        last = _send(ask, security, client.final(bytes(first.auth_bytes)))
        client.verify(bytes(last.auth_bytes))
    except ScramFailed as reason:
        raise AuthenticationFailed(f"{security.mechanism} failed: {reason}") from None
    return last


def _bearer(ask: Ask, security: ClientSecurity) -> Any:
    assert security.tokens is not None, "OAUTHBEARER has a source of tokens"
    token = get_token(security.tokens)
    fields = [f"auth=Bearer {token.text.reveal()}"]
    fields += [f"{name}={value}" for name, value in security.tokens.extensions]
    message = f"n,,{_SEPARATOR}" + "".join(f"{each}{_SEPARATOR}" for each in fields) + _SEPARATOR
    answer = _send(ask, security, message.encode())
    if answer.auth_bytes:
        # RFC 7628: the server gives the reason as JSON, and waits for this byte before it refuses.
        _send(ask, security, _SEPARATOR.encode())
        raise AuthenticationFailed("the broker refused the client's token (OAUTHBEARER)")
    return answer

"""SASL PLAIN (RFC 4616): reads a user and a password from the client's only message."""

from typing import Final

from zhumq.security.exchange import PasswordGiven, Rejected, Step

MECHANISM: Final = "PLAIN"
# Kafka's message: it is the same for a wrong password and for an unknown user.
REFUSED: Final = "Authentication failed: Invalid username or password"
_PARTS: Final = 3  # authorization id, user, password


class PlainExchange:
    """The server's side for one client."""

    def respond(self, data: bytes) -> Step:
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            return _reject("a message that is not UTF-8")
        if len(parts) != _PARTS:
            return _reject(f"a message of {len(parts)} parts instead of {_PARTS}")
        authorization_id, user, password = parts
        if not user or not password:
            return _reject("no user, or no password")
        if authorization_id not in ("", user):
            return _reject("an authorization id that is not the user", user)
        return PasswordGiven(user=user, password=password)


def _reject(reason: str, user: str = "") -> Rejected:
    return Rejected(reason=reason, user=user, message=REFUSED)

"""SASL OAUTHBEARER (RFC 7628): reads a bearer token, and tells the client why it was refused."""

import json
import re
from typing import Final

from zhumq.security.exchange import Challenge, Rejected, Step, TokenGiven

MECHANISM: Final = "OAUTHBEARER"
_END: Final = "\x01"
_NAME: Final = "(?:[^\x00\x01=,]|=2C|=3D)+"
_PAIRS: Final = "(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_REFUSED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    f" {MECHANISM}"
)


class OAuthBearerExchange:
    """The server's side for one client. A refused token takes a second round: the client confirms the error."""

    def __init__(self) -> None:
        self._refused: Rejected | None = None

    def respond(self, data: bytes) -> Step:
        if self._refused is not None:
            if data == _END.encode():
                return self._refused
            return Rejected(reason="a second token", message=_REFUSED)
        found = _CLIENT_FIRST.fullmatch(data.decode(errors="replace"))
        if found is None:
            return Rejected(reason="a malformed message", message=_REFUSED)
        pairs = dict(
            pair.split("=", 1) for pair in found["pairs"].removesuffix(_END).split(_END) if pair
        )
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            return Rejected(reason="a message without a bearer token", message=_REFUSED)
        authorization_id = (found["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
        return TokenGiven(token=bearer["token"], authorization_id=authorization_id)

    def refuse(self, reason: str) -> Challenge:
        """RFC 7628, 3.2.2: the error is a challenge, which the client answers before it is final."""
        error = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
        self._refused = Rejected(reason=reason, message=error)
        return Challenge(data=error.encode())

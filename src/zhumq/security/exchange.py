"""The outcomes of one step of a SASL exchange, whatever its mechanism."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The exchange goes on: the client has to answer these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The client is this user."""

    user: str
    data: bytes = b""  # the last message to the client
    expires_at_ms: int | None = None  # of a token, in wall time


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The client is not who it claims to be."""

    reason: str  # for the log: clients never see it
    user: str = ""  # as whom the client tried, if it got that far
    # For the client. It depends on the mechanism and on what the client sent, never on the users that exist.
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordGiven:
    """The client gave a password, whose check takes too long for a core."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"PasswordGiven(user={self.user!r})"  # no passwords in logs


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGiven:
    """The client gave a token, whose check needs keys that may have to be fetched."""

    token: str
    authorization_id: str  # empty, or the user that the token has to be about

    def __repr__(self) -> str:
        return "TokenGiven()"  # no tokens in logs


Step = Challenge | Accepted | Rejected | PasswordGiven | TokenGiven


class Exchange(Protocol):
    """The server's side of a mechanism, for one authentication of one client."""

    def respond(self, data: bytes) -> Step:
        """The outcome of the client's next message."""

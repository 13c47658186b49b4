"""The SASL authentication of one connection: handshake, exchange, session and re-authentication (KIP-368)."""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Final

from zhumq.security.exchange import Accepted, Challenge, Exchange, Rejected, Step
from zhumq.security.login import lifetime_ms

# KIP-368: a client may re-authenticate once a second.
REAUTHENTICATION_INTERVAL_MS: Final = 1_000


class SaslState(StrEnum):
    """How far the authentication of a connection is."""

    HANDSHAKE = "handshake"  # the client has to choose a mechanism
    EXCHANGE = "exchange"  # the client has to send the next message of its mechanism
    CHECKING = "checking"  # the broker checks a password or a token
    AUTHENTICATED = "authenticated"
    EXPIRED = "expired"  # the session is over: the client may only re-authenticate
    FAILED = "failed"


TRANSITIONS: Final[Mapping[SaslState, frozenset[SaslState]]] = {
    SaslState.HANDSHAKE: frozenset({SaslState.EXCHANGE, SaslState.FAILED}),
    SaslState.EXCHANGE: frozenset(
        {SaslState.EXCHANGE, SaslState.CHECKING, SaslState.AUTHENTICATED, SaslState.FAILED}
    ),
    SaslState.CHECKING: frozenset({SaslState.EXCHANGE, SaslState.AUTHENTICATED, SaslState.FAILED}),
    SaslState.AUTHENTICATED: frozenset({SaslState.EXCHANGE, SaslState.EXPIRED, SaslState.FAILED}),
    SaslState.EXPIRED: frozenset({SaslState.EXCHANGE, SaslState.FAILED}),
    SaslState.FAILED: frozenset(),
}


class Handshake(StrEnum):
    """What became of a handshake."""

    TAKEN = "taken"
    UNKNOWN_MECHANISM = "unknown mechanism"  # the connection is closed
    NOT_NOW = "not now"  # refused, and nothing changes


class SaslSession:
    """The authentication of one connection. `start_exchange` gives the exchange of a mechanism."""

    def __init__(
        self,
        mechanisms: Collection[str],
        start_exchange: Callable[[str], Exchange],
        *,
        reauthentication_ms: int,  # 0: a session ends only with its token
    ) -> None:
        self._mechanisms = mechanisms
        self._start_exchange = start_exchange
        self._reauthentication_ms = reauthentication_ms
        self.state = SaslState.HANDSHAKE
        self._exchange: Exchange | None = None
        self.mechanism = ""  # of the current or last exchange
        self.user: str | None = None  # of the first exchange that succeeded; it never changes
        self._has_lifetime = False
        self._reauthenticated_at_ms: int | None = None

    @property
    def exchange(self) -> Exchange | None:
        return self._exchange

    def handshake(self, mechanism: str, now_ms: int) -> Handshake:
        """The client chose a mechanism, at the beginning or to re-authenticate."""
        if self.user is not None:
            return self._handshake_again(mechanism, now_ms)
        if self.state is not SaslState.HANDSHAKE:
            return Handshake.NOT_NOW
        return self._begin(mechanism, mechanism in self._mechanisms)

    def _handshake_again(self, mechanism: str, now_ms: int) -> Handshake:
        last_ms = self._reauthenticated_at_ms
        if (
            self.state not in (SaslState.AUTHENTICATED, SaslState.EXPIRED)
            or not self._has_lifetime
            or (last_ms is not None and now_ms - last_ms < REAUTHENTICATION_INTERVAL_MS)
        ):
            return Handshake.NOT_NOW
        self._reauthenticated_at_ms = now_ms
        return self._begin(mechanism, mechanism == self.mechanism)

    def _begin(self, mechanism: str, is_allowed: bool) -> Handshake:
        if not is_allowed:
            self._enter(SaslState.FAILED)
            return Handshake.UNKNOWN_MECHANISM
        self.mechanism = mechanism
        self._exchange = self._start_exchange(mechanism)
        self._enter(SaslState.EXCHANGE)
        return Handshake.TAKEN

    def respond(self, data: bytes) -> Step:
        """The outcome of the client's next message. After a password or token: `settle` follows."""
        assert self.state is SaslState.EXCHANGE
        assert self._exchange is not None
        return self.settle(self._exchange.respond(data))

    def settle(self, step: Step) -> Step:
        """Takes the outcome of a message, or of the check that a message needed."""
        match step:
            case Challenge():
                self._enter(SaslState.EXCHANGE)
            case Rejected():
                self._enter(SaslState.FAILED)
            case Accepted() if self.user not in (None, step.user):
                self._enter(SaslState.FAILED)
                return Rejected(
                    reason=f"a re-authentication of {self.user!r}",
                    user=step.user,
                    message="Cannot change principals during re-authentication",
                )
            case Accepted():
                self._enter(SaslState.AUTHENTICATED)
                self.user = step.user
                self._exchange = None
            case _:
                self._enter(SaslState.CHECKING)
        return step

    def start_session(self, accepted: Accepted, now_ms: int) -> int | None:
        """Milliseconds until the client has to re-authenticate. None: never."""
        lasts_ms = lifetime_ms(self._reauthentication_ms, accepted.expires_at_ms, now_ms)
        self._has_lifetime = lasts_ms is not None
        return lasts_ms

    def expire(self) -> None:
        """The session is over. A client in the middle of its re-authentication may complete it."""
        if self.state is SaslState.AUTHENTICATED:
            self._enter(SaslState.EXPIRED)

    def _enter(self, state: SaslState) -> None:
        assert state in TRANSITIONS[self.state], (self.state, state)
        self.state = state

"""Authentication of calls by their `authorization` header: a user with its password, or a token."""

import asyncio
import base64
from collections.abc import Callable
from typing import Final

from zhumq.broker.password_check import PasswordChecker, TooManyChecks
from zhumq.broker.sasl_settings import SCRAM_MECHANISMS, SaslConfig
from zhumq.broker.token_check import TokenChecker, TokenRefused
from zhumq.host.clock import Clock
from zhumq.model.ids import ANONYMOUS, Principal
from zhumq.security import oauthbearer, plain
from zhumq.security.audit import AuditEvent
from zhumq.security.login import Login, NotAuthenticated, lifetime_ms

# Failures whose answers are held back; beyond it a call fails at once.
DELAYED_FAILURES_MAX: Final = 1_024
_PASSWORD_MECHANISMS: Final = frozenset({plain.MECHANISM, *SCRAM_MECHANISMS})
_BASIC: Final = "basic"
_BEARER: Final = "bearer"


class CallAuthentication:
    """Authenticates the calls on one listener, each by itself, and reports every login."""

    def __init__(
        self,
        listener: str,
        config: SaslConfig,
        passwords: PasswordChecker,
        tokens: TokenChecker | None,
        clock: Clock,
        on_login: Callable[[AuditEvent], None],
    ) -> None:
        self._listener = listener
        self._takes_passwords = not _PASSWORD_MECHANISMS.isdisjoint(config.mechanisms)
        self._reauthentication_ms = config.reauthentication_ms
        self._failure_seconds = config.failure_delay_ms / 1000
        self._passwords = passwords
        self._tokens = tokens
        self._clock = clock
        self._on_login = on_login
        self._delayed = 0

    async def log_in(self, header: str, host: str) -> Login:
        """The login of a call from this host. Raises NotAuthenticated, for clients to see."""
        scheme, _, given = header.partition(" ")
        if scheme.lower() == _BASIC and self._takes_passwords:
            return await self._by_password(given.strip(), host)
        if scheme.lower() == _BEARER and self._tokens is not None:
            return await self._by_token(self._tokens, given.strip(), host)
        self._report("", "", host, allowed=False)
        schemes = [_BASIC] * self._takes_passwords + [_BEARER] * (self._tokens is not None)
        raise NotAuthenticated(f"a call needs `authorization` metadata: {' or '.join(schemes)}")

    async def _by_password(self, given: str, host: str) -> Login:
        try:
            # RFC 7617: the first colon ends the user name.
            user, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            user = password = ""
        if not user or not password or "\0" in user:
            raise await self._failed(plain.MECHANISM, "", host)
        try:
            is_right = await self._passwords.matches(user, password, host)
        except TooManyChecks:
            raise NotAuthenticated("too many passwords wait for their check: try again") from None
        if not is_right:
            raise await self._failed(plain.MECHANISM, user, host)
        self._report(plain.MECHANISM, user, host, allowed=True)
        return Login(
            principal=Principal(f"User:{user}"), ends_at_ms=self._ends_at_ms(None), user=user
        )

    async def _by_token(self, tokens: TokenChecker, given: str, host: str) -> Login:
        try:
            accepted = await tokens.check(given)
        except TokenRefused:
            raise await self._failed(oauthbearer.MECHANISM, "", host) from None
        self._report(oauthbearer.MECHANISM, accepted.user, host, allowed=True)
        return Login(
            principal=Principal(f"User:{accepted.user}"),
            ends_at_ms=self._ends_at_ms(accepted.expires_at_ms),
        )

    def _ends_at_ms(self, expires_at_ms: int | None) -> int | None:
        now_ms = self._clock.now_ms()
        lasts_ms = lifetime_ms(self._reauthentication_ms, expires_at_ms, now_ms)
        return None if lasts_ms is None else now_ms + lasts_ms

    async def _failed(self, mechanism: str, user: str, host: str) -> NotAuthenticated:
        """The error of the call after a delay, which slows down guessing."""
        self._report(mechanism, user, host, allowed=False)
        if self._delayed < DELAYED_FAILURES_MAX:
            self._delayed += 1
            try:
                await asyncio.sleep(self._failure_seconds)
            finally:
                self._delayed -= 1
        return NotAuthenticated("authentication failed")

    def _report(self, mechanism: str, user: str, host: str, *, allowed: bool) -> None:
        self._on_login(
            AuditEvent(
                principal=f"User:{user}" if user else ANONYMOUS,
                host=host,
                listener=self._listener,
                action="Authenticate",
                operation="",
                resource=mechanism,
                allowed=allowed,
            )
        )

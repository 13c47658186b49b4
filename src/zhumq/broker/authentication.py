"""Authentication of Kafka clients with SASL: the gate before it, and SaslHandshake and SaslAuthenticate."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from zhumq.broker.call_authentication import CallAuthentication
from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.password_check import PasswordChecker, TooManyChecks
from zhumq.broker.sasl_settings import SCRAM_MECHANISMS, SaslConfig
from zhumq.broker.token_check import TokenChecker, TokenRefused
from zhumq.broker.user_credentials import UserCredentials
from zhumq.host.clock import Clock
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.model.ids import ANONYMOUS, Principal
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from zhumq.security import oauthbearer, plain
from zhumq.security.audit import AuditEvent
from zhumq.security.exchange import (
    Accepted,
    Challenge,
    Exchange,
    PasswordGiven,
    Rejected,
    TokenGiven,
)
from zhumq.security.login import Login
from zhumq.security.oauthbearer import OAuthBearerExchange
from zhumq.security.plain import PlainExchange
from zhumq.security.sasl import Handshake, SaslSession, SaslState
from zhumq.security.scram import NONCE_BYTES
from zhumq.security.scram_server import ScramExchange

logger = logging.getLogger(__name__)

# Failures whose answers are held back; beyond it a connection is closed without an answer.
DELAYED_FAILURES_MAX: Final = 4_096
LOG_INTERVAL_SECONDS: Final = 1.0  # failures must not fill the log

Response = TypeVar("Response", SaslHandshakeResponse, SaslAuthenticateResponse)


def _keys(*keys: ApiKey) -> frozenset[bytes]:
    return frozenset(int(key).to_bytes(2, "big") for key in keys)


# What a client may send in each state, by the first bytes of the frame. Nothing else is even decoded.
_ADMITTED: Final[Mapping[SaslState, frozenset[bytes]]] = {
    SaslState.HANDSHAKE: _keys(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    SaslState.EXCHANGE: _keys(ApiKey.SASL_AUTHENTICATE),
    SaslState.CHECKING: _keys(),
    SaslState.AUTHENTICATED: _keys(),
    SaslState.EXPIRED: _keys(ApiKey.SASL_HANDSHAKE),
    SaslState.FAILED: _keys(),
}


@dataclass(slots=True)
class _Login:
    config: SaslConfig
    session: SaslSession
    expiry: asyncio.TimerHandle | None = None


class Authentication:
    """Authenticates the clients of the listeners with SASL, and closes what else is sent before that."""

    def __init__(
        self,
        configs: Mapping[str, SaslConfig],  # by listener
        credentials: UserCredentials,
        passwords: PasswordChecker,
        clock: Clock,
        on_login: Callable[[AuditEvent], None] = lambda _: None,
    ) -> None:
        self._configs = configs
        self._audit = on_login
        self._credentials = credentials
        self._passwords = passwords
        self._tokens = {
            listener: TokenChecker(config.tokens)
            for listener, config in configs.items()
            if config.tokens is not None
        }
        self._clock = clock
        self._logins: dict[ConnectionInfo, _Login] = {}
        self._delayed = 0
        self._logged_at = float("-inf")
        self._not_logged = 0
        self.succeeded = 0
        self.failed = 0

    def close(self) -> None:
        self._passwords.close()

    def of_calls(self, listener: str) -> Callable[[str, str], Awaitable[Login]] | None:
        """Authenticates the calls of a listener that is not one for Kafka clients. None: without SASL."""
        config = self._configs.get(listener)
        if config is None:
            return None
        tokens = self._tokens.get(listener)
        return CallAuthentication(
            listener, config, self._passwords, tokens, self._clock, self._on_login
        ).log_in

    # The gate.

    def admit(self, frame: bytes, connection: ConnectionInfo) -> None:
        """Raises MalformedFrame, which closes the connection, for all that does not authenticate."""
        login = self._logins.get(connection)
        if login is None:
            login = self._logins[connection] = self._open(connection)
        if frame[:2] not in _ADMITTED[login.session.state]:
            key = int.from_bytes(frame[:2], "big", signed=True)
            raise MalformedFrame(
                f"a request with the API key {key} in the state {login.session.state} of authentication"
            )

    def connection_lost(self, connection: ConnectionInfo) -> None:
        login = self._logins.pop(connection, None)
        if login is not None and login.expiry is not None:
            login.expiry.cancel()

    def _open(self, connection: ConnectionInfo) -> _Login:
        config = self._configs[connection.listener]
        session = SaslSession(
            config.mechanisms, self._exchange, reauthentication_ms=config.reauthentication_ms
        )
        return _Login(config, session)

    def _exchange(self, mechanism: str) -> Exchange:
        if mechanism == plain.MECHANISM:
            return PlainExchange()
        if mechanism == oauthbearer.MECHANISM:
            return OAuthBearerExchange()
        scram = SCRAM_MECHANISMS[mechanism]
        return ScramExchange(
            scram,
            lambda user: self._credentials.of_mechanism(scram, user),
            server_nonce=secrets.token_urlsafe(NONCE_BYTES),
        )

    # The handlers.

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.SASL_HANDSHAKE: self.handshake,
            ApiKey.SASL_AUTHENTICATE: self.authenticate,
        }

    def handshake(
        self, context: RequestContext, request: SaslHandshakeRequest
    ) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
        connection = context.connection
        login = self._logins.get(connection)
        taken = Handshake.NOT_NOW
        if login is not None:
            taken = login.session.handshake(request.mechanism, self._clock.monotonic_ms())
        if login is None or taken is Handshake.NOT_NOW:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        connection.is_authenticated = False  # until a re-authentication has succeeded
        response = SaslHandshakeResponse(mechanisms=list(login.config.mechanisms))
        if taken is Handshake.TAKEN:
            return response
        response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        refused = Rejected(reason="a mechanism that is not enabled", message="")
        return self._fail(connection, login, request.mechanism, response, refused)

    def authenticate(
        self, context: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
        connection = context.connection
        login = self._logins.get(connection)
        if login is None or login.session.state is not SaslState.EXCHANGE:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate without a SaslHandshake before it",
            )
        step = login.session.respond(bytes(request.auth_bytes))
        if isinstance(step, PasswordGiven | TokenGiven):
            return self._check(connection, login, step)
        if isinstance(step, Rejected):
            return self._reject(connection, login, step)
        return self._go_on(connection, login, step)

    async def _check(
        self, connection: ConnectionInfo, login: _Login, given: PasswordGiven | TokenGiven
    ) -> SaslAuthenticateResponse:
        checked: Accepted | Rejected | Challenge
        if isinstance(given, PasswordGiven):
            checked = await self._check_password(connection, given)
        else:
            checked = await self._check_token(connection, login, given)
        step = login.session.settle(checked)
        if isinstance(step, Rejected):
            return await self._reject(connection, login, step)
        assert isinstance(step, Challenge | Accepted)
        return self._go_on(connection, login, step)

    async def _check_password(
        self, connection: ConnectionInfo, given: PasswordGiven
    ) -> Accepted | Rejected:
        try:
            is_right = await self._passwords.matches(
                given.user, given.password, connection.client_host
            )
        except TooManyChecks:
            # No answer: clients give up after a failed authentication, and try a lost connection again.
            raise MalformedFrame("too many passwords wait for their check") from None
        if is_right:
            return Accepted(user=given.user)
        return Rejected(
            reason="a wrong password, or no such user", user=given.user, message=plain.REFUSED
        )

    async def _check_token(
        self, connection: ConnectionInfo, login: _Login, given: TokenGiven
    ) -> Accepted | Challenge:
        exchange = login.session.exchange
        assert isinstance(exchange, OAuthBearerExchange)
        try:
            accepted = await self._tokens[connection.listener].check(given.token)
        except TokenRefused as refused:
            return exchange.refuse(f"a token that is refused: {refused}")
        if given.authorization_id not in ("", accepted.user):
            return exchange.refuse("an authorization id that is not the user of the token")
        return accepted

    def _go_on(
        self, connection: ConnectionInfo, login: _Login, step: Challenge | Accepted
    ) -> SaslAuthenticateResponse:
        response = SaslAuthenticateResponse(auth_bytes=step.data)
        if isinstance(step, Challenge):
            return response
        self._report(connection, login.session.mechanism, step.user, allowed=True)
        lifetime_ms = login.session.start_session(step, self._clock.now_ms())
        if login.expiry is not None:
            login.expiry.cancel()
            login.expiry = None
        if lifetime_ms is not None:
            response.session_lifetime_ms = lifetime_ms
            loop = asyncio.get_running_loop()
            login.expiry = loop.call_later(lifetime_ms / 1000, self._expire, connection, login)
        connection.authenticate(Principal(f"User:{step.user}"))
        return response

    def _expire(self, connection: ConnectionInfo, login: _Login) -> None:
        # From now on each request passes the gate, which lets the client do nothing but re-authenticate.
        login.expiry = None
        login.session.expire()
        connection.is_authenticated = False

    # Failures.

    def _reject(
        self, connection: ConnectionInfo, login: _Login, rejected: Rejected
    ) -> Awaitable[SaslAuthenticateResponse]:
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=rejected.message
        )
        return self._fail(connection, login, login.session.mechanism, response, rejected)

    async def _fail(
        self,
        connection: ConnectionInfo,
        login: _Login,
        mechanism: str,
        response: Response,
        rejected: Rejected,
    ) -> Response:
        """The response after a delay, which slows down guessing. The connection is closed after it."""
        self._report(connection, mechanism, rejected.user, allowed=False)
        self._log_failure(connection, mechanism, rejected)
        if self._delayed >= DELAYED_FAILURES_MAX:
            raise MalformedFrame("too many failed authentications wait for their answers")
        self._delayed += 1
        try:
            await asyncio.sleep(login.config.failure_delay_ms / 1000)
        finally:
            self._delayed -= 1
        connection.closes_after_answer = True
        return response

    def _on_login(self, event: AuditEvent) -> None:
        if event.allowed:
            self.succeeded += 1
        else:
            self.failed += 1
        self._audit(event)

    def _report(
        self, connection: ConnectionInfo, mechanism: str, user: str, *, allowed: bool
    ) -> None:
        self._on_login(
            AuditEvent(
                principal=f"User:{user}" if user else ANONYMOUS,
                host=connection.client_host,
                listener=connection.listener,
                action="Authenticate",
                operation="",
                resource=mechanism,
                allowed=allowed,
            )
        )

    def _log_failure(self, connection: ConnectionInfo, mechanism: str, rejected: Rejected) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged_at < LOG_INTERVAL_SECONDS:
            self._not_logged += 1
            return
        logger.info(
            "authentication of %s:%d on listener %s failed (%.32r, user %.64r): %.200s"
            " (%d more failures since the last line)",
            connection.client_host,
            connection.client_port,
            connection.listener,
            mechanism,
            rejected.user,
            rejected.reason,
            self._not_logged,
        )
        self._logged_at = now
        self._not_logged = 0

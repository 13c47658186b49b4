"""A request whose caller may not be known yet: what logging in and out needs."""

import time
from dataclasses import dataclass, field
from typing import Final

from zhumq.client.security import ClientSecurity
from zhumq.web.brokers import BrokerPool
from zhumq.web.credentials import BrokerSecurity
from zhumq.web.login_sessions import LoginSession, LoginSessions

COOKIE: Final = "zhumq_session"
CSRF_HEADER: Final = "X-CSRF-Token"


@dataclass(slots=True, kw_only=True)
class Visit:
    """One request, and the cookie of its answer."""

    pool: BrokerPool
    security: BrokerSecurity
    sessions: LoginSessions
    is_encrypted: bool
    session_id: str
    session: LoginSession | None
    set_cookie: str | None = field(default=None, init=False)

    def log_in(self, user: str, security: ClientSecurity) -> LoginSession:
        """Begin a session with credentials that the brokers accept. Raises AuthenticationFailed."""
        self.pool.check(security)
        session_id, session = self.sessions.begin(user, security, time.monotonic())
        self.set_cookie = self._cookie(session_id)
        return session

    def log_out(self) -> None:
        self.sessions.end(self.session_id)
        self.set_cookie = f"{self._cookie('')}; Max-Age=0"

    def _cookie(self, value: str) -> str:
        secure = "; Secure" if self.is_encrypted else ""
        return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"

"""Logins of browsers: an id in a cookie, and a token that requests which change something repeat in a header."""

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from zhumq.client.security import ClientSecurity

SESSIONS_MAX: Final = 1_000  # the one that was used longest ago gives way
IDLE_SECONDS_MAX: Final = 30 * 60.0
AGE_SECONDS_MAX: Final = 12 * 3600.0
_ID_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSession:
    """A browser that is logged in. Its credentials are in the memory of this process only."""

    user: str
    security: ClientSecurity
    csrf_token: str
    began_at: float  # monotonic

    def has_token(self, token: str) -> bool:
        return hmac.compare_digest(self.csrf_token.encode(), token.encode())


class LoginSessions:
    """The logins by their ids, of which only digests are kept. Threads may share it."""

    def __init__(self, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        # The one that was used longest ago is the first; each with the time of its last use.
        self._sessions: OrderedDict[bytes, tuple[LoginSession, float]] = OrderedDict()

    def begin(self, user: str, security: ClientSecurity, now: float) -> tuple[str, LoginSession]:
        """Keep a login whose credentials a broker has checked. Returns its id, too."""
        session_id = secrets.token_urlsafe(_ID_BYTES)
        session = LoginSession(
            user=user,
            security=security,
            csrf_token=secrets.token_urlsafe(_ID_BYTES),
            began_at=now,
        )
        with self._lock:
            self._sessions[_digest(session_id)] = (session, now)
            while len(self._sessions) > self._sessions_max:
                self._sessions.popitem(last=False)
        return session_id, session

    def find(self, session_id: str, now: float) -> LoginSession | None:
        """The login of an id, if it has not ended."""
        key = _digest(session_id)
        with self._lock:
            session, used_at = self._sessions.get(key, (None, 0.0))
            if session is None:
                return None
            if now - used_at > IDLE_SECONDS_MAX or now - session.began_at > AGE_SECONDS_MAX:
                del self._sessions[key]
                return None
            self._sessions[key] = (session, now)
            self._sessions.move_to_end(key)
            return session

    def end(self, session_id: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(session_id), None)


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()

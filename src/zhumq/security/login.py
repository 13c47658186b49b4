"""The login of a call: as whom it came, and for how long that holds. Pure."""

from dataclasses import dataclass
from typing import Final

from zhumq.model.ids import Principal

# Whatever the expiry of a token is: some weeks.
LOGIN_MS_MAX: Final = 2**31 - 1


class NotAuthenticated(Exception):
    """A call with a user or a token that is not accepted; the message is for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """As whom a client has authenticated."""

    principal: Principal
    ends_at_ms: int | None = None  # in wall time; None: it has no end by itself
    user: str | None = None  # with credentials of the cluster, whose deletion ends the login, too


def lifetime_ms(reauthentication_ms: int, expires_at_ms: int | None, now_ms: int) -> int | None:
    """How long a login holds: until its token expires, and at most the time of the setting, 0: none. None: for ever."""
    lifetimes = [reauthentication_ms] if reauthentication_ms else []
    if expires_at_ms is not None:
        lifetimes.append(min(max(0, expires_at_ms - now_ms), LOGIN_MS_MAX))
    return min(lifetimes, default=None)

"""Logging in and out with a browser: a session cookie, and the token that requests with it repeat."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from zhumq.client.security import OAUTHBEARER
from zhumq.web.credentials import CREDENTIALS_CHARACTERS_MAX
from zhumq.web.problems import invalid
from zhumq.web.visit import Visit

Secret = Annotated[str, Meta(min_length=1, max_length=CREDENTIALS_CHARACTERS_MAX)]


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user with a password, or a token."""

    user: Annotated[str, Meta(min_length=1, max_length=249)] | None = None
    password: Secret | None = None
    token: Secret | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Who the caller is. `csrf_token` goes into the header X-CSRF-Token of requests that change something."""

    authentication: Literal["none", "password", "token"]  # what the brokers ask for
    user: str | None
    csrf_token: str | None


def show_session(visit: Visit) -> Session:
    """Show how callers authenticate, and as whom this browser is logged in."""
    return _session(visit)


def log_in(visit: Visit, body: Login) -> Session:
    """Log in: the answer sets the session cookie."""
    if not visit.security.needs_login:
        return _session(visit)
    if body.token is not None:
        if body.user is not None or body.password is not None:
            raise invalid("a login has a user and a password, or a token")
        visit.session = visit.log_in("", visit.security.of_token(body.token))
    else:
        security = visit.security.of_user(body.user or "", body.password or "")
        visit.session = visit.log_in(body.user or "", security)
    return _session(visit)


def log_out(visit: Visit) -> None:
    """Log out: the session ends."""
    visit.log_out()


def _session(visit: Visit) -> Session:
    session = visit.session
    return Session(
        authentication=_authentication(visit.security.mechanism),
        user=session.user or None if session is not None else None,
        csrf_token=session.csrf_token if session is not None else None,
    )


def _authentication(mechanism: str) -> Literal["none", "password", "token"]:
    if not mechanism:
        return "none"
    return "token" if mechanism == OAUTHBEARER else "password"

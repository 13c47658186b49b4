"""The states of a push session and their transitions: active, retrying, parked, ended. Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from zhumq.share.subscription import SubscriptionMode


class SessionState(StrEnum):
    """State of a consumer's push session."""

    ACTIVE = "active"  # the consumer answers
    RETRYING = "retrying"  # in the timeout queue: retried with backoff
    PARKED = "parked"  # no retries until the consumer or an operator resumes it
    ENDED = "ended"


TRANSITIONS: Final[dict[SessionState, frozenset[SessionState]]] = {
    SessionState.ACTIVE: frozenset({SessionState.RETRYING, SessionState.ENDED}),
    SessionState.RETRYING: frozenset(
        {SessionState.ACTIVE, SessionState.RETRYING, SessionState.PARKED, SessionState.ENDED}
    ),
    SessionState.PARKED: frozenset({SessionState.ACTIVE, SessionState.ENDED}),
    SessionState.ENDED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPolicy:
    """Retries of a consumer that does not answer."""

    retries_max: int = 5
    backoff_ms: int = 1_000  # before the first retry; doubled for each one after it
    backoff_ms_max: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSession:
    """One consumer's subscription, kept also while the consumer is disconnected."""

    group: str
    # Chosen by the consumer, the same after a reconnect.
    consumer: str
    topic: str
    mode: SubscriptionMode
    partitions: tuple[int, ...] | None = None
    client: str = ""  # client id, for display
    state: SessionState = SessionState.ACTIVE
    state_since_ms: int = 0
    retries: int = 0
    retry_at_ms: int = 0  # when RETRYING
    reason: str = ""  # why it is not ACTIVE


def unanswered(
    session: PushSession, reason: str, policy: SessionPolicy, now_ms: int
) -> PushSession:
    """A delivery was not answered in time: put the session into the timeout queue or, after the last retry, park it."""
    if session.state in (SessionState.PARKED, SessionState.ENDED):
        return session
    if session.state is SessionState.RETRYING and session.retries >= policy.retries_max:
        return _to(session, SessionState.PARKED, now_ms, reason=reason, retry_at_ms=0)
    retries = session.retries + 1 if session.state is SessionState.RETRYING else 1
    backoff_ms = min(policy.backoff_ms << min(retries - 1, 32), policy.backoff_ms_max)
    return _to(
        session,
        SessionState.RETRYING,
        now_ms,
        retries=retries,
        retry_at_ms=now_ms + backoff_ms,
        reason=reason,
    )


def answered(session: PushSession, now_ms: int) -> PushSession:
    """The consumer answered: a retrying session is active again. A parked one must be resumed."""
    if session.state is not SessionState.RETRYING:
        return session
    return _to(session, SessionState.ACTIVE, now_ms, retries=0, retry_at_ms=0, reason="")


def resumed(session: PushSession, now_ms: int) -> PushSession:
    """The consumer or an operator resumed the session: it continues at the same position."""
    if session.state in (SessionState.ACTIVE, SessionState.ENDED):
        return session
    return _to(session, SessionState.ACTIVE, now_ms, retries=0, retry_at_ms=0, reason="")


def ended(session: PushSession, now_ms: int) -> PushSession:
    """The consumer unsubscribed."""
    if session.state is SessionState.ENDED:
        return session
    return _to(session, SessionState.ENDED, now_ms, retry_at_ms=0)


def _to(
    session: PushSession,
    state: SessionState,
    now_ms: int,
    *,
    retries: int | None = None,
    retry_at_ms: int | None = None,
    reason: str | None = None,
) -> PushSession:
    assert state in TRANSITIONS[session.state], f"{session.state} does not become {state}"
    return replace(
        session,
        state=state,
        state_since_ms=now_ms,
        retries=session.retries if retries is None else retries,
        retry_at_ms=session.retry_at_ms if retry_at_ms is None else retry_at_ms,
        reason=session.reason if reason is None else reason,
    )

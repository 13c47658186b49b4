"""State transitions of a push session: into the timeout queue, out of it again, or parked until resumed."""

import pytest

from zhumq.share.push_session import (
    TRANSITIONS,
    PushSession,
    SessionPolicy,
    SessionState,
    answered,
    ended,
    resumed,
    unanswered,
)
from zhumq.share.subscription import SubscriptionMode

POLICY = SessionPolicy(retries_max=3, backoff_ms=100, backoff_ms_max=300)
ACTIVE = PushSession(group="g", consumer="c", topic="t", mode=SubscriptionMode.PSB)


def parked() -> PushSession:
    session = ACTIVE
    for _ in range(POLICY.retries_max + 1):
        session = unanswered(session, "no answer", POLICY, 0)
    return session


def test_each_unanswered_delivery_doubles_the_backoff_and_the_last_one_parks() -> None:
    session = ACTIVE
    waits = []
    for now_ms in (1_000, 2_000, 3_000):
        session = unanswered(session, "no answer", POLICY, now_ms)
        assert session.state is SessionState.RETRYING
        waits.append(session.retry_at_ms - now_ms)
    assert waits == [100, 200, 300], "doubled, up to the maximum"
    session = unanswered(session, "still none", POLICY, 4_000)
    assert (session.state, session.reason) == (SessionState.PARKED, "still none")
    assert session.state_since_ms == 4_000


def test_one_answer_makes_a_retrying_session_active() -> None:
    session = unanswered(unanswered(ACTIVE, "no answer", POLICY, 1), "no answer", POLICY, 2)
    session = answered(session, 3)
    assert (session.state, session.retries, session.reason) == (SessionState.ACTIVE, 0, "")
    assert unanswered(session, "no answer", POLICY, 4).retries == 1


def test_a_parked_session_has_to_resume() -> None:
    session = parked()
    assert session.state is SessionState.PARKED
    assert answered(session, 1) == session
    assert unanswered(session, "x", POLICY, 1) == session
    assert resumed(session, 5).state is SessionState.ACTIVE


def test_an_ended_session_stays_ended() -> None:
    session = ended(parked(), 1)
    assert session.state is SessionState.ENDED
    assert ended(session, 2) == resumed(session, 2) == answered(session, 2) == session
    assert unanswered(session, "x", POLICY, 2) == session


@pytest.mark.parametrize("state", SessionState)
def test_every_state_has_its_transitions(state: SessionState) -> None:
    assert TRANSITIONS[state] <= set(SessionState)

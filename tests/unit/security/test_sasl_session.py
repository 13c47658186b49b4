"""The states of a connection's authentication: what a handshake and a message lead to, and when a session ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.exchange import Accepted, Challenge, PasswordGiven, Rejected, Step
from zhumq.security.login import LOGIN_MS_MAX
from zhumq.security.sasl import (
    REAUTHENTICATION_INTERVAL_MS,
    TRANSITIONS,
    Handshake,
    SaslSession,
    SaslState,
)

NOW_MS = 1_700_000_000_000
LIFETIME_MS = 60_000
REFUSED = Rejected(reason="wrong", message="no")


class ScriptedExchange:
    """An exchange whose steps are given."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps

    def respond(self, data: bytes) -> Step:
        return self._steps.pop(0)


def session_of(*steps: Step, lifetime_ms: int = LIFETIME_MS) -> SaslSession:
    scripted = list(steps)
    return SaslSession(
        ["PLAIN", "SCRAM-SHA-512"],
        lambda _: ScriptedExchange(scripted),
        reauthentication_ms=lifetime_ms,
    )


def logged_in(*later_steps: Step, lifetime_ms: int = LIFETIME_MS) -> SaslSession:
    accepted = Accepted(user="alice")
    session = session_of(accepted, *later_steps, lifetime_ms=lifetime_ms)
    session.handshake("PLAIN", 0)
    assert session.respond(b"") == accepted
    session.start_session(accepted, NOW_MS)
    return session


def test_a_client_chooses_a_mechanism_answers_challenges_and_is_accepted() -> None:
    session = session_of(Challenge(data=b"?"), Accepted(user="alice"))
    assert session.handshake("SCRAM-SHA-512", 0) is Handshake.TAKEN
    assert session.respond(b"a") == Challenge(data=b"?")
    assert session.state is SaslState.EXCHANGE
    assert session.respond(b"b") == Accepted(user="alice")
    assert session.state is SaslState.AUTHENTICATED
    assert session.user == "alice"


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "SCRAM-SHA-1", "ANONYMOUS"])
def test_a_mechanism_that_is_not_enabled_ends_the_authentication(mechanism: str) -> None:
    session = session_of()
    assert session.handshake(mechanism, 0) is Handshake.UNKNOWN_MECHANISM
    assert session.state is SaslState.FAILED


def test_a_second_handshake_before_the_end_of_the_exchange_changes_nothing() -> None:
    session = session_of(Challenge(data=b"?"), Accepted(user="alice"))
    session.handshake("PLAIN", 0)
    assert session.handshake("PLAIN", 0) is Handshake.NOT_NOW
    assert session.respond(b"") == Challenge(data=b"?")


def test_a_check_that_takes_time_settles_the_exchange() -> None:
    given_password = PasswordGiven(user="alice", password="secret")
    session = session_of(given_password)
    session.handshake("PLAIN", 0)
    assert session.respond(b"") == given_password
    assert session.state is SaslState.CHECKING
    assert session.settle(REFUSED) == REFUSED
    assert session.state is SaslState.FAILED


def test_a_rejected_client_has_no_user() -> None:
    session = session_of(REFUSED)
    session.handshake("PLAIN", 0)
    assert session.respond(b"") == REFUSED
    assert session.user is None


def test_a_session_ends_at_the_earlier_of_its_lifetime_and_the_expiry_of_its_token() -> None:
    for reauthentication_ms, expires_in_ms, expected in (
        (0, None, None),
        (LIFETIME_MS, None, LIFETIME_MS),
        (0, 5_000, 5_000),
        (LIFETIME_MS, 5_000, 5_000),
        (LIFETIME_MS, 500_000, LIFETIME_MS),
        (0, -5_000, 0),
        (0, 10**15, LOGIN_MS_MAX),
    ):
        session = session_of(lifetime_ms=reauthentication_ms)
        expires_at_ms = None if expires_in_ms is None else NOW_MS + expires_in_ms
        accepted = Accepted(user="alice", expires_at_ms=expires_at_ms)
        assert session.start_session(accepted, NOW_MS) == expected


def test_a_session_without_an_end_is_not_renewed() -> None:
    session = logged_in(lifetime_ms=0)
    assert session.handshake("PLAIN", NOW_MS) is Handshake.NOT_NOW
    assert session.state is SaslState.AUTHENTICATED


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_client_re_authenticates_before_and_after_its_session_has_ended(is_expired: bool) -> None:
    session = logged_in(Accepted(user="alice"))
    if is_expired:
        session.expire()
        assert session.state is SaslState.EXPIRED
    assert session.handshake("PLAIN", NOW_MS) is Handshake.TAKEN
    assert session.respond(b"") == Accepted(user="alice")
    assert session.state is SaslState.AUTHENTICATED


def test_a_session_that_ends_during_a_re_authentication_lets_it_complete() -> None:
    session = logged_in(Challenge(data=b"?"), Accepted(user="alice"))
    session.handshake("PLAIN", NOW_MS)
    session.respond(b"")
    session.expire()
    assert session.state is SaslState.EXCHANGE
    assert isinstance(session.respond(b""), Accepted)


def test_a_client_cannot_become_another_user() -> None:
    session = logged_in(Accepted(user="root"))
    session.handshake("PLAIN", NOW_MS)
    assert isinstance(session.respond(b""), Rejected)
    assert session.state is SaslState.FAILED
    assert session.user == "alice"


def test_a_client_cannot_change_its_mechanism() -> None:
    session = logged_in()
    assert session.handshake("SCRAM-SHA-512", NOW_MS) is Handshake.UNKNOWN_MECHANISM
    assert session.state is SaslState.FAILED


def test_a_client_re_authenticates_at_most_once_a_second() -> None:
    session = logged_in(Accepted(user="alice"), Accepted(user="alice"))
    session.handshake("PLAIN", NOW_MS)
    session.respond(b"")
    soon_ms = NOW_MS + REAUTHENTICATION_INTERVAL_MS - 1
    assert session.handshake("PLAIN", soon_ms) is Handshake.NOT_NOW
    assert session.handshake("PLAIN", soon_ms + 1) is Handshake.TAKEN


@given(st.lists(st.sampled_from(["handshake", "respond", "reject", "expire"]), max_size=20))
def test_a_user_is_only_set_by_an_accepted_exchange_and_states_follow_the_table(
    actions: list[str],
) -> None:
    session = SaslSession(
        ["PLAIN"],
        lambda _: ScriptedExchange([Challenge(data=b"?"), Accepted(user="alice")]),
        reauthentication_ms=LIFETIME_MS,
    )
    accepted = False
    now_ms = NOW_MS
    for action in actions:
        before = session.state
        now_ms += REAUTHENTICATION_INTERVAL_MS
        if action == "handshake":
            session.handshake("PLAIN", now_ms)
        elif action == "expire":
            session.expire()
        elif before is SaslState.EXCHANGE:
            step = session.respond(b"") if action == "respond" else session.settle(REFUSED)
            if isinstance(step, Accepted):
                accepted = True
                session.start_session(step, now_ms)
        assert session.state is before or session.state in TRANSITIONS[before]
        assert (session.user is not None) == accepted

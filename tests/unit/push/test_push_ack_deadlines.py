"""Ack deadlines of a push consumer: pings, the timeout queue, late checks of the broker."""

from zhumq.push.ack_deadlines import OVERDUE, RETRY_MESSAGES_MAX, SILENT, AckDeadlines
from zhumq.push.settings import PushSettings
from zhumq.share.push_session import PushSession, SessionPolicy, SessionState
from zhumq.share.subscription import SubscriptionMode

SETTINGS = PushSettings(
    ping_interval_ms=100,
    ping_timeout_ms=300,
    session=SessionPolicy(retries_max=2, backoff_ms=1_000, backoff_ms_max=60_000),
)
SESSION = PushSession(group="g", consumer="c", topic="t", mode=SubscriptionMode.PSB)


def ack_deadlines() -> AckDeadlines:
    return AckDeadlines(SESSION, SETTINGS, now_ms=0)


def test_pings_are_due_at_intervals() -> None:
    waiting = ack_deadlines()
    due = [now_ms for now_ms in range(0, 500, 50) if waiting.ping_due(now_ms)]
    assert due == [100, 200, 300, 400]
    assert waiting.pings == 4


def test_a_consumer_that_sends_no_frame_is_silent_and_one_that_does_is_not() -> None:
    waiting = ack_deadlines()
    assert waiting.failure(300, None) is None
    assert waiting.failure(301, None) == SILENT
    waiting.note_contact(now_ms=290)
    assert waiting.failure(500, None) is None
    assert waiting.failure(500, next_deadline_ms=499) == OVERDUE


def test_from_the_timeout_queue_to_parked_and_back() -> None:
    waiting = ack_deadlines()
    states = []
    now_ms = 0
    for _ in range(4):
        waiting.fail(SILENT, now_ms, wall_ms=now_ms)
        states.append((waiting.session.state, waiting.hold_until_ms - now_ms))
        now_ms = waiting.hold_until_ms
    assert states == [
        (SessionState.RETRYING, 1_000),
        (SessionState.RETRYING, 2_000),
        (SessionState.PARKED, 0),
        (SessionState.PARKED, 0),
    ]
    assert waiting.failure(10**9, 0) is None, "a parked session has no deadlines"
    assert waiting.room(100, 0, now_ms) == 0
    assert not waiting.end_retry(is_answer=True, now_ms=now_ms, wall_ms=now_ms)
    assert waiting.is_parked, "only resume ends the parking"
    assert waiting.resume(now_ms, now_ms)
    assert waiting.is_active
    assert not waiting.resume(now_ms, now_ms)


def test_a_retry_sends_few_messages_and_only_when_it_is_due() -> None:
    waiting = ack_deadlines()
    waiting.fail(OVERDUE, now_ms=0, wall_ms=0)
    assert waiting.room(500, held=0, now_ms=999) == 0
    assert waiting.room(500, held=3, now_ms=1_000) == RETRY_MESSAGES_MAX - 3
    assert waiting.failure(999, next_deadline_ms=5) is None, "its retry is not due yet"


def test_a_pong_does_not_make_up_for_unanswered_deliveries() -> None:
    waiting = ack_deadlines()
    waiting.fail(OVERDUE, now_ms=0, wall_ms=0)
    assert not waiting.end_retry(is_answer=False, now_ms=5, wall_ms=5)
    assert waiting.end_retry(is_answer=True, now_ms=6, wall_ms=6)
    assert waiting.is_active
    silent = ack_deadlines()
    silent.fail(SILENT, now_ms=0, wall_ms=0)
    assert silent.end_retry(is_answer=False, now_ms=5, wall_ms=5)


def test_the_next_check_is_when_something_may_be_due() -> None:
    waiting = ack_deadlines()
    assert waiting.next_check_ms(0, None, ack_timeout_ms=10_000) == 100
    assert waiting.next_check_ms(0, 40, ack_timeout_ms=10_000) == 40
    assert waiting.next_check_ms(0, None, ack_timeout_ms=30) == 30


def test_a_broker_that_was_stopped_reads_waiting_frames_before_it_reports_a_failure() -> None:
    waiting = ack_deadlines()
    assert waiting.next_check_ms(0, None, ack_timeout_ms=10_000) == 100
    waiting.note_check(2_000)
    assert waiting.failure(2_000, next_deadline_ms=1_000) is None
    assert waiting.failure(2_299, next_deadline_ms=1_000) is None
    assert waiting.next_check_ms(2_299, 1_000, ack_timeout_ms=10_000) == 2_299, "a ping is due"
    assert waiting.ping_due(2_299)
    assert waiting.next_check_ms(2_299, 1_000, ack_timeout_ms=10_000) == 2_300
    waiting.note_check(2_301)
    assert waiting.failure(2_301, next_deadline_ms=None) == SILENT


def test_a_broker_that_checks_a_little_late_still_reports_a_silent_consumer() -> None:
    waiting = ack_deadlines()
    for now_ms in range(0, 301, 100):
        waiting.note_check(now_ms + 50)
        assert waiting.failure(now_ms + 50, None) == (SILENT if now_ms == 300 else None)
        waiting.ping_due(now_ms + 50)
        waiting.next_check_ms(now_ms + 50, None, ack_timeout_ms=10_000)

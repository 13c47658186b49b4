"""Ack deadlines of a push consumer: pings, overdue answers, the timeout queue. Pure: times in."""

from typing import Final

from zhumq.push.settings import PushSettings
from zhumq.share.push_session import (
    PushSession,
    SessionState,
    answered,
    resumed,
    unanswered,
)

SILENT: Final = "no answer to pings"
OVERDUE: Final = "no answer to deliveries"
# In-flight limit while the session is RETRYING.
RETRY_MESSAGES_MAX: Final = 10


class AckDeadlines:
    """Tracks whether the consumer of one stream answers. Times are monotonic, except `wall_ms`."""

    def __init__(self, session: PushSession, settings: PushSettings, now_ms: int) -> None:
        self.session = session
        self._settings = settings
        self._last_contact_ms = now_ms
        self._pinged_at_ms = now_ms
        self.pings = 0
        self.hold_until_ms = now_ms  # in the timeout queue until then
        self._next_check_ms = now_ms
        self._grace_until_ms = now_ms

    @property
    def is_active(self) -> bool:
        return self.session.state is SessionState.ACTIVE

    @property
    def is_parked(self) -> bool:
        return self.session.state is SessionState.PARKED

    def note_contact(self, now_ms: int) -> None:
        """Record that the consumer sent a frame."""
        self._last_contact_ms = now_ms

    def end_retry(self, *, is_answer: bool, now_ms: int, wall_ms: int) -> bool:
        """Handle a frame from the consumer. True: the session leaves the timeout queue."""
        session = self.session
        if session.state is not SessionState.RETRYING:
            return False
        # A pong does not make up for unanswered deliveries: only an answer does.
        if not is_answer and session.reason == OVERDUE:
            return False
        self.session = answered(session, wall_ms)
        self.hold_until_ms = now_ms
        return True

    def note_check(self, now_ms: int) -> None:
        """Record a check that was scheduled for `next_check_ms`.

        A late check means that the broker itself was stopped or starved. Frames from the consumer may wait unread,
        so no failure is reported until the broker has had time to read them.
        """
        if now_ms - self._next_check_ms > self._settings.ping_timeout_ms // 2:
            self._grace_until_ms = now_ms + self._settings.ping_timeout_ms

    def ping_due(self, now_ms: int) -> bool:
        """Whether it is time to ping. True counts the ping as sent."""
        if now_ms - self._pinged_at_ms < self._settings.ping_interval_ms:
            return False
        self._pinged_at_ms = now_ms
        self.pings += 1
        return True

    def failure(self, now_ms: int, next_deadline_ms: int | None) -> str | None:
        """The reason for which the consumer has failed by now; None: it has not."""
        if self.is_parked or now_ms < max(self.hold_until_ms, self._grace_until_ms):
            return None
        if now_ms - max(self._last_contact_ms, self.hold_until_ms) > self._settings.ping_timeout_ms:
            return SILENT
        if next_deadline_ms is not None and next_deadline_ms <= now_ms:
            return OVERDUE
        return None

    def fail(self, reason: str, now_ms: int, wall_ms: int) -> None:
        """Move the session to the timeout queue or, after its last retry, to parked."""
        # The newest reason decides which frame ends the retry.
        self.session = unanswered(self.session, reason, self._settings.session, wall_ms)
        self.hold_until_ms = now_ms + max(self.session.retry_at_ms - wall_ms, 0)

    def resume(self, now_ms: int, wall_ms: int) -> bool:
        """Resume at the request of the consumer or an operator. True: the session was not active before."""
        self._last_contact_ms = now_ms
        self.hold_until_ms = now_ms
        before, self.session = self.session, resumed(self.session, wall_ms)
        return before is not self.session

    def room(self, room: int, held: int, now_ms: int) -> int:
        """How many messages of the credit left may be sent now."""
        match self.session.state:
            case SessionState.PARKED | SessionState.ENDED:
                return 0
            case SessionState.RETRYING if now_ms < self.hold_until_ms:
                return 0
            case SessionState.RETRYING:
                return min(room, RETRY_MESSAGES_MAX - held)
            case _:
                return room

    def next_check_ms(self, now_ms: int, next_deadline_ms: int | None, ack_timeout_ms: int) -> int:
        """When the stream has to check again."""
        checks = [self._pinged_at_ms + self._settings.ping_interval_ms]
        if next_deadline_ms is not None:
            checks.append(max(next_deadline_ms, self._grace_until_ms))
        if self.hold_until_ms > now_ms:
            checks.append(self.hold_until_ms)
        # Deliveries from now on are not due before this.
        checks.append(now_ms + ack_timeout_ms)
        self._next_check_ms = max(min(checks), now_ms)
        return self._next_check_ms

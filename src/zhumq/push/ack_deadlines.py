"""How long a silent consumer is waited for: pings, overdue answers, the timeout queue. Pure: times in."""

from dataclasses import replace
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
# A consumer that did not answer is tried with little.
RETRY_MESSAGES_MAX: Final = 10


class AckDeadlines:
    """What a stream knows about whether its consumer answers. Times are monotonic, but `wall_ms`."""

    def __init__(self, session: PushSession, settings: PushSettings, now_ms: int) -> None:
        self.session = session
        self._settings = settings
        self._last_contact_ms = now_ms
        self._pinged_at_ms = now_ms
        self.pings = 0
        self.hold_until_ms = now_ms  # in the timeout queue until then
        self._next_look_ms = now_ms
        self._excused_until_ms = now_ms

    @property
    def is_active(self) -> bool:
        return self.session.state is SessionState.ACTIVE

    @property
    def is_parked(self) -> bool:
        return self.session.state is SessionState.PARKED

    def note_contact(self, now_ms: int) -> None:
        """The consumer spoke."""
        self._last_contact_ms = now_ms

    def forgives(self, *, is_answer: bool, now_ms: int, wall_ms: int) -> bool:
        """The consumer spoke. True: that takes it out of the timeout queue."""
        session = self.session
        if session.state is not SessionState.RETRYING:
            return False
        # One that answers pings and no deliveries is alive, which helps nobody.
        if not is_answer and session.reason == OVERDUE:
            return False
        self.session = answered(session, wall_ms)
        self.hold_until_ms = now_ms
        return True

    def looked(self, now_ms: int) -> None:
        """The broker looks, as it had meant to at `next_look_ms`.

        One that comes late was itself stopped or starved. What its consumers said meanwhile has arrived and is
        not read yet: nobody is blamed before there was time for that.
        """
        if now_ms - self._next_look_ms > self._settings.ping_timeout_ms // 2:
            self._excused_until_ms = now_ms + self._settings.ping_timeout_ms

    def ping_due(self, now_ms: int) -> bool:
        """Whether it is time to ping; counted as done if it is."""
        if now_ms - self._pinged_at_ms < self._settings.ping_interval_ms:
            return False
        self._pinged_at_ms = now_ms
        self.pings += 1
        return True

    def failure(self, now_ms: int, next_deadline_ms: int | None) -> str | None:
        """What the consumer has failed to do by now, if anything."""
        if self.is_parked or now_ms < max(self.hold_until_ms, self._excused_until_ms):
            return None
        if now_ms - max(self._last_contact_ms, self.hold_until_ms) > self._settings.ping_timeout_ms:
            return SILENT
        if next_deadline_ms is not None and next_deadline_ms <= now_ms:
            return OVERDUE
        return None

    def failed(self, reason: str, now_ms: int, wall_ms: int) -> None:
        """Into the timeout queue, and from there to the parked."""
        # What it failed first is what it has to make good.
        if self.session.state is SessionState.RETRYING and self.session.reason != reason:
            self.session = replace(self.session, reason=reason)
        self.session = unanswered(self.session, reason, self._settings.session, wall_ms)
        self.hold_until_ms = now_ms + max(self.session.retry_at_ms - wall_ms, 0)

    def resume(self, now_ms: int, wall_ms: int) -> bool:
        """The consumer or an operator said so. True: the session was not active before."""
        self._last_contact_ms = now_ms
        self.hold_until_ms = now_ms
        before, self.session = self.session, resumed(self.session, wall_ms)
        return before is not self.session

    def room(self, room: int, held: int, now_ms: int) -> int:
        """How much of this room may be used now."""
        match self.session.state:
            case SessionState.PARKED | SessionState.ENDED:
                return 0
            case SessionState.RETRYING if now_ms < self.hold_until_ms:
                return 0
            case SessionState.RETRYING:
                return min(room, RETRY_MESSAGES_MAX - held)
            case _:
                return room

    def next_look_ms(self, now_ms: int, next_deadline_ms: int | None, ack_timeout_ms: int) -> int:
        """When something may have to be done next."""
        looks = [self._pinged_at_ms + self._settings.ping_interval_ms]
        if next_deadline_ms is not None:
            looks.append(max(next_deadline_ms, self._excused_until_ms))
        if self.hold_until_ms > now_ms:
            looks.append(self.hold_until_ms)
        # What is delivered from now on is not due before this.
        looks.append(now_ms + ack_timeout_ms)
        self._next_look_ms = max(min(looks), now_ms)
        return self._next_look_ms

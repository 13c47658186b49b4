"""Delayed messages and a wall clock that jumps."""

from delay_support import SETTINGS, TOPIC, create_topic, read_all, wait_for, wait_for_messages

import zhumq
from zhumq.host.clock import SystemClock
from zhumq.testing.broker import broker

HOUR_MS = 3_600_000


class JumpingClock(SystemClock):
    """The machine's clock, and what a test has set it forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def test_a_clock_that_is_set_forward_delivers_what_has_become_due() -> None:
    clock = JumpingClock()
    with broker(settings=SETTINGS, clock=clock) as running, zhumq.Admin(running.bootstrap) as admin:
        create_topic(running.bootstrap)
        with zhumq.Producer(running.bootstrap) as producer:
            producer.send(TOPIC, b"in an hour", delay=3600)
            producer.send(TOPIC, b"in two", delay=7200)
        wait_for(lambda: len(admin.scheduled(TOPIC).messages) == 2, "both are pending")
        clock.ahead_ms = HOUR_MS + 1_000
        assert [each.value for each in wait_for_messages(running.bootstrap, 1)] == [b"in an hour"]
        # Set back: what was delivered stays, and a new delay counts from the clock as it is.
        clock.ahead_ms = 0
        with zhumq.Producer(running.bootstrap) as producer:
            producer.send(TOPIC, b"in a second", delay=1)
        wait_for_messages(running.bootstrap, 2)
        assert [each.value for each in read_all(running.bootstrap)] == [
            b"in an hour",
            b"in a second",
        ]
        assert len(admin.scheduled(TOPIC).messages) == 1

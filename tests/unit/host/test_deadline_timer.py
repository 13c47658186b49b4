"""Deadlines fire once, not early, and not at once after a pause of the whole process."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from zhumq.host.deadline_timer import CATCH_UP_MS, LATE_MS, DeadlineTimer


class ManualLoop:
    """An event loop whose time is moved by the test, or stands still while timers come due."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.next_is_early_by_ms = 0
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []
        self._real = asyncio.new_event_loop()

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        at_ms = self.now_ms + delay * 1000 - self.next_is_early_by_ms
        self.next_is_early_by_ms = 0
        handle = asyncio.TimerHandle(at_ms, callback, (), self._real)
        self._timers.append((at_ms, handle))
        return handle

    def advance(self, milliseconds: int) -> None:
        """Time passes, and each timer fires when it is due."""
        end_ms = self.now_ms + milliseconds
        while due := sorted(
            (each for each in self._timers if each[0] <= end_ms and not each[1].cancelled()),
            key=lambda each: each[0],
        ):
            self._timers.remove(due[0])
            self.now_ms = max(self.now_ms, int(due[0][0]))
            due[0][1]._run()
        self.now_ms = end_ms

    def pause(self, milliseconds: int) -> None:
        """The process stands still: timers that came due meanwhile fire at its end, all at once."""
        self.now_ms += milliseconds
        self.advance(0)

    def close(self) -> None:
        self._real.close()


@pytest.fixture(name="loop")
def manual_loop() -> Any:
    loop = ManualLoop()
    yield loop
    loop.close()


def timer(loop: ManualLoop, fired: list[int], **options: int) -> DeadlineTimer:
    return DeadlineTimer(
        lambda: loop.now_ms,
        fired.append,
        loop=cast("asyncio.AbstractEventLoop", loop),
        **options,
    )


def test_it_fires_once_at_its_deadline(loop: ManualLoop) -> None:
    fired: list[int] = []
    timer(loop, fired).set(10_500)
    loop.advance(499)
    assert fired == []
    loop.advance(1)
    assert fired == [10_500]
    loop.advance(60_000)
    assert fired == [10_500]


def test_an_earlier_deadline_replaces_a_later_one_and_not_the_other_way_round(
    loop: ManualLoop,
) -> None:
    fired: list[int] = []
    one = timer(loop, fired)
    one.set(12_000)
    one.set(11_000)
    one.set(13_000)
    one.set(None)
    loop.advance(60_000)
    assert fired == [11_000]


def test_a_deadline_that_has_passed_fires_in_the_next_turn(loop: ManualLoop) -> None:
    fired: list[int] = []
    timer(loop, fired).set(9_990)
    assert fired == []
    loop.advance(0)
    assert fired == [10_000]


def test_a_timer_of_the_loop_that_is_early_is_set_again(loop: ManualLoop) -> None:
    fired: list[int] = []
    loop.next_is_early_by_ms = 1  # as libuv's are
    timer(loop, fired).set(10_100)
    loop.advance(99)
    assert fired == []
    loop.advance(1)
    assert fired == [10_100]


def test_slack_lets_one_call_serve_neighbouring_deadlines(loop: ManualLoop) -> None:
    fired: list[int] = []
    timer(loop, fired, slack_ms=10).set(10_100)
    loop.advance(109)
    assert fired == []
    loop.advance(1)
    assert fired == [10_110]


def test_after_a_pause_it_waits_for_what_lies_unread(loop: ManualLoop) -> None:
    fired: list[int] = []
    one = timer(loop, fired)
    one.set(10_100)
    loop.pause(LATE_MS + 200)
    assert fired == []
    one.set(10_050)  # A heartbeat is read and the owner sets the timer again: that moves nothing.
    loop.advance(CATCH_UP_MS - 1)
    assert fired == []
    loop.advance(1)
    assert fired == [10_000 + LATE_MS + 200 + CATCH_UP_MS]


def test_it_waits_once_after_each_pause(loop: ManualLoop) -> None:
    fired: list[int] = []
    one = timer(loop, fired)
    for _ in range(2):
        fired.clear()
        one.set(loop.now_ms + 100)
        loop.pause(LATE_MS + 200)
        assert fired == []
        loop.advance(CATCH_UP_MS)
        assert len(fired) == 1


def test_a_small_delay_is_no_pause(loop: ManualLoop) -> None:
    fired: list[int] = []
    timer(loop, fired).set(10_100)
    loop.pause(100 + LATE_MS)
    assert fired == [10_100 + LATE_MS]


def test_a_cancelled_timer_does_not_fire_and_can_be_set_again(loop: ManualLoop) -> None:
    fired: list[int] = []
    one = timer(loop, fired)
    one.set(10_100)
    one.cancel()
    loop.advance(1_000)
    assert fired == []
    one.set(11_200)
    loop.pause(5_000)
    one.cancel()  # while it waits after the pause
    loop.advance(1_000)
    assert fired == []
    one.set(loop.now_ms + 10)
    loop.advance(10)
    assert len(fired) == 1

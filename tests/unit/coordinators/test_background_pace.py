"""Background work takes half of the idle time, and almost nothing of a busy loop."""

import pytest

from zhumq.coordinators.background_pace import (
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
    SHARE_MIN,
    SHARE_OF_IDLE,
    BackgroundPace,
)

TURN_SECONDS = 0.004


class Thread:
    """A thread with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.demand = 50.0
        self.pace = BackgroundPace(lambda: self.now, lambda: self.demand)

    def turn(self, seconds: float = TURN_SECONDS) -> float:
        self.pace.begin()
        self.now += seconds
        self.demand += seconds
        return self.pace.end()

    def pause(self, seconds: float, *, busy: float) -> None:
        self.now += seconds
        self.demand += seconds * busy

    def share_of_background(self, *, busy: float, turns: int = 200) -> float:
        """The part of the time that the turns take while other work takes this part of what is between them."""
        pauses = self.turn()
        began, worked = self.now, 0.0
        for _ in range(turns):
            self.pause(pauses, busy=busy)
            pauses = self.turn()
            worked += TURN_SECONDS
        return worked / (self.now - began)


def test_half_of_an_idle_loop_is_used() -> None:
    assert Thread().share_of_background(busy=0.0) == pytest.approx(SHARE_OF_IDLE, rel=0.02)


def test_a_busy_loop_keeps_nearly_all_of_its_time() -> None:
    assert Thread().share_of_background(busy=1.0) == pytest.approx(SHARE_MIN, rel=0.05)


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8])
def test_the_share_shrinks_with_the_other_work(busy: float) -> None:
    share = Thread().share_of_background(busy=busy)
    assert share == pytest.approx(SHARE_OF_IDLE * (1 - busy), rel=0.05)


def test_it_recovers_at_once_when_the_loop_gets_idle() -> None:
    thread = Thread()
    thread.share_of_background(busy=1.0)
    thread.pause(0.2, busy=0.0)
    assert thread.turn() == pytest.approx(TURN_SECONDS)


def test_pauses_are_bounded() -> None:
    thread = Thread()
    assert thread.turn(0.0) == PAUSE_SECONDS_MIN
    thread.pause(1.0, busy=1.0)
    assert thread.turn(5.0) == PAUSE_SECONDS_MAX


def test_clocks_that_stand_still_are_no_error() -> None:
    thread = Thread()
    for _ in range(3):
        assert thread.turn(0.0) == PAUSE_SECONDS_MIN

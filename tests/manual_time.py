"""Time that only the test moves: a clock, and an event loop whose timers follow it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

START_MS = 1_700_000_000_000
STEP_MS = 100  # timers that start others find their place in between
TURNS_PER_STEP = 5  # what a timer calls soon is done before the next step


class ManualClock:
    """A clock that stands still until the test moves it."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for sockets and threads as usual, and for time only as the clock moves."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        super().__init__()

    def time(self) -> float:
        # Small numbers: an event loop compares times to the nanosecond.
        return (self.clock.ms - START_MS) / 1_000


async def advance(milliseconds: int) -> None:
    """Time passes, and every timer that is due meanwhile fires. Only on a ManualLoop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ManualLoop)
    end_ms = loop.clock.ms + milliseconds
    while loop.clock.ms < end_ms:
        loop.clock.ms = min(loop.clock.ms + STEP_MS, end_ms)
        for _ in range(TURNS_PER_STEP):
            await asyncio.sleep(0)


async def until(fact: Callable[[], object]) -> None:
    """Waits for what threads or other tasks do; no time passes."""
    while not fact():
        await asyncio.sleep(0)


def run_in_manual_time(scenario: Callable[[ManualClock], Coroutine[Any, Any, None]]) -> None:
    """Runs a test in time that it moves by `advance`."""
    clock = ManualClock()
    with asyncio.Runner(loop_factory=lambda: ManualLoop(clock)) as runner:
        runner.run(scenario(clock))

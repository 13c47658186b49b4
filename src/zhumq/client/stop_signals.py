"""SIGTERM and SIGINT as a request to stop: the first one is noted, a second one does what it always did."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

# A program that has handlers of its own keeps them.
_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether a signal has arrived; in another thread than the main one, none does."""
    arrived: list[int] = []

    def note(number: int, _frame: Any) -> None:
        # No lock may be taken in a signal's handler: the main thread may hold it.
        arrived.append(number)
        restore()

    handled = {number for number in _DEFAULTS if _is_default(number)}

    def restore() -> None:
        while handled:
            number = handled.pop()
            signal.signal(number, _DEFAULTS[number])

    for number in tuple(handled):
        signal.signal(number, note)
    try:
        yield lambda: bool(arrived)
    finally:
        restore()


@contextmanager
def stop_signals_of_loop(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None]
) -> Iterator[None]:
    """Calls `stop` in the event loop when a signal arrives. `asyncio.run` handles SIGINT itself: it cancels its task."""
    handled = {number for number in _DEFAULTS if _is_default(number)}

    def restore() -> None:
        while handled:
            loop.remove_signal_handler(handled.pop())

    def note() -> None:
        stop()
        restore()

    for number in handled:
        loop.add_signal_handler(number, note)
    try:
        yield
    finally:
        restore()


def _is_default(number: signal.Signals) -> bool:
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) == _DEFAULTS[number]
    )

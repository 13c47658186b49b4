"""Persists how far a filter has excluded messages: a while later, for many messages together."""

import asyncio
from collections.abc import Callable
from typing import Final

WRITTEN_SECONDS: Final = 5.0


class FilteredProgress:
    """Calls `write` some time after the count has grown. A crash before that makes the group filter again."""

    def __init__(self, count: Callable[[], int], write: Callable[[], object]) -> None:
        self._count = count
        self._write = write
        self._noted = 0
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self) -> bool:
        """Whether the count has grown since the last time."""
        count = self._count()
        if count == self._noted:
            return False
        self._noted = count
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITTEN_SECONDS, self.flush)
        return True

    def flush(self) -> None:
        """Write now if the count has grown."""
        self.cancel()
        if self._noted != self._written:
            self._written = self._noted
            self._write()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

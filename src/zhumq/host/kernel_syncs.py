"""Syncs of files by the kernel's threads, and by none of this process."""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from zhumq.host.kernel_aio import IN_FLIGHT_MAX, KernelAio, system_calls

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.01


class SyncedFile(Protocol):
    """A file of the operating system."""

    def fileno(self) -> int:
        """Its descriptor; negative if it is closed."""


class Aio(Protocol):
    """What `KernelAio` does."""

    @property
    def eventfd(self) -> int:
        """Readable when syncs have ended."""

    def submit(self, first_number: int, descriptors: Sequence[int]) -> int:
        """Begin to sync these files."""

    def ended(self) -> list[tuple[int, int]]:
        """The syncs that have ended."""

    def close(self) -> None:
        """Wait for the syncs in progress."""


# Called with 0 when all files are synced; with the errno of one that cannot be; or with None if the kernel did not
# take one of them, and there was no error.
SyncCallback = Callable[[int | None], None]


@dataclass(slots=True)
class _Group:
    """Files that are synced together."""

    left: int
    done: SyncCallback
    errno: int = 0
    is_refused: bool = False

    def settle(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.done(None if self.is_refused and not self.errno else self.errno)


class KernelSyncs:
    """Submits all syncs of a turn of the event loop at once, and calls back there when they have ended.

    A thread that syncs needs Python's lock before and after each sync, in competition with the event loop:
    that costs both of them more than the sync does.
    """

    def __init__(self, aio: Aio) -> None:
        self._aio = aio
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[SyncedFile, _Group]] = deque()
        self._in_flight: dict[int, _Group] = {}
        self._next_number = 0
        self._submits_soon = False
        self._loop.add_reader(aio.eventfd, self._on_ended)

    @classmethod
    def open(cls) -> "KernelSyncs | None":
        """None where the system does not offer them."""
        calls = system_calls()
        if calls is None:
            return None
        try:
            return cls(KernelAio(calls))
        except OSError as reason:
            logger.info("threads sync the files, not the kernel by itself: %s", reason)
            return None

    def sync(self, files: Sequence[SyncedFile], done: SyncCallback) -> None:
        """Sync these files, and call back."""
        group = _Group(len(files), done)
        for file in files:
            self._waiting.append((file, group))
        self._submit_soon()

    def close(self) -> None:
        """Wait for the syncs in progress. Drops the callbacks."""
        self._waiting.clear()
        self._loop.remove_reader(self._aio.eventfd)
        self._aio.close()

    def _submit_soon(self) -> None:
        if self._waiting and not self._submits_soon:
            self._submits_soon = True
            self._loop.call_soon(self._submit)

    def _submit(self) -> None:
        self._submits_soon = False
        waiting = self._waiting
        count = min(len(waiting), IN_FLIGHT_MAX - len(self._in_flight))
        if not count:
            return  # closed; or the next end makes room
        # The descriptors as they are now: a file that was closed since then is refused.
        descriptors = [waiting[place][0].fileno() for place in range(count)]
        try:
            taken = self._aio.submit(self._next_number, descriptors)
        except OSError as error:
            self._on_refused(error.errno)
            return
        for _ in range(taken):
            self._in_flight[self._next_number] = waiting.popleft()[1]
            self._next_number += 1
        self._submit_soon()

    def _on_refused(self, code: int | None) -> None:
        """The kernel did not take the first of the files that wait."""
        if code != errno.EAGAIN:
            _, group = self._waiting.popleft()
            group.is_refused = True
            self._submit_soon()
            group.settle()
        elif not self._in_flight:  # There is no room, and no end that would make some.
            self._submits_soon = True
            self._loop.call_later(RETRY_SECONDS, self._submit)

    def _on_ended(self) -> None:
        ended = self._aio.ended()
        self._submit_soon()
        for number, code in ended:
            group = self._in_flight.pop(number)
            group.errno = code or group.errno
            try:
                group.settle()
            except Exception:
                # A bug in what waits for one log must not stop the syncs of the others.
                logger.exception("what waited for a sync has failed")

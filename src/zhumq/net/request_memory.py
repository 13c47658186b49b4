"""Memory for requests that arrive or wait, shared by all connections: who reads on, who waits, who is cut off."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

# A frame up to this size is always read on: a small request never waits behind large ones.
TINY_FRAME_BYTES: Final = 16 * 1024
# A larger frame counts as large: all of these together leave a quarter of the memory to the others.
LARGE_FRAME_BYTES: Final = 1024 * 1024
# A connection that holds less than this is neither paused nor cut off for memory.
SMALL_SHARE_BYTES: Final = 64 * 1024
# While others wait for memory, a frame that arrives more slowly than this is cut off.
CONTENDED_BYTES_PER_SECOND_MIN: Final = 256 * 1024
# While others wait for memory, requests the service has not answered for this long are cut off.
CONTENDED_PARKED_MS_MAX: Final = 10_000


class Reader(Protocol):
    """A connection as the shared memory sees it."""

    @property
    def address(self) -> str:
        """The client's host."""

    @property
    def held_bytes(self) -> int:
        """What it holds of the memory: received, reserved, and not answered yet."""

    @property
    def reserved_bytes(self) -> int:
        """What is still to come of a frame that has its reservation."""

    @property
    def is_reading(self) -> bool:
        """Whether the next byte is the client's to send, not ours to ask for."""

    @property
    def quiet_ms(self) -> int:
        """How long nothing was received from the client and nothing answered to it."""

    def memory_granted(self, reserved_bytes: int) -> None:
        """Called once there is room for what it waited for."""

    def cut_off(self, reason: str) -> None:
        """Called when it has to go to make room for others. It forgets itself before it returns."""


@dataclass(slots=True)
class _Progress:
    """How much of a frame was missing when it was last looked at."""

    at_ms: int
    missing_bytes: int


class RequestMemory:
    """Bytes of requests held by all connections, bounded by reservations.

    A frame that is not whole after its first read is read on only once the rest of it is reserved.
    So the bound is not exceeded by frames under way, and half frames cannot wait for each other.
    What was received before its reservation, and requests small enough for one read, can exceed it
    by a quarter: then the largest holders are cut off at once.
    """

    __slots__ = (
        "_holders",
        "_large_bytes",
        "_progress",
        "_waiting_large",
        "_waiting_small",
        "_was_full",
        "bytes_max",
        "bytes_used",
    )

    def __init__(self, bytes_max: int, holders: Callable[[], Iterable[Reader]]) -> None:
        self.bytes_max = bytes_max
        # Received and not answered yet, and reserved for what is still to come.
        self.bytes_used = 0
        self._holders = holders
        self._large_bytes: dict[Reader, int] = {}  # reservations of large frames
        # In order of arrival, with what each needs reserved. 0: it waits for others to need less.
        self._waiting_small: dict[Reader, int] = {}
        self._waiting_large: dict[Reader, int] = {}
        self._progress: dict[Reader, _Progress] = {}  # since others wait
        self._was_full = False  # at the last look, with others waiting

    @property
    def readers_waiting(self) -> int:
        return len(self._waiting_small) + len(self._waiting_large)

    @property
    def is_overdrawn(self) -> bool:
        return self.bytes_used > self.bytes_max + self.bytes_max // 4

    def waits(self, reader: Reader) -> bool:
        """Whether the reader waits for room for the rest of a frame."""
        return bool(self._waiting_small.get(reader) or self._waiting_large.get(reader))

    def reserve(self, reader: Reader, missing_bytes: int, frame_bytes: int) -> bool:
        """Reserve the rest of a frame. False: the reader is called once it is reserved."""
        waiting = self._waiting_large if frame_bytes > LARGE_FRAME_BYTES else self._waiting_small
        if (waiting and frame_bytes > TINY_FRAME_BYTES) or not self._fits(
            missing_bytes, frame_bytes
        ):
            waiting[reader] = missing_bytes
            return False
        self._take(reader, missing_bytes, is_large=waiting is self._waiting_large)
        return True

    def admits(self, reader: Reader) -> bool:
        """Whether a reader between two frames may go on; if not, it is called once it may."""
        if (
            self.bytes_used <= self.bytes_max
            or reader.reserved_bytes
            or reader.held_bytes < SMALL_SHARE_BYTES
        ):
            return True
        self._waiting_small.setdefault(reader, 0)
        return False

    def frame_completed(self, reader: Reader) -> None:
        """The frame is whole; its bytes count until it is answered."""
        if self._large_bytes:
            self._large_bytes.pop(reader, None)
        if self._progress:
            self._progress.pop(reader, None)
        if self._waiting_large:
            self._wake()

    def release(self, frame_bytes: int) -> None:
        """A whole frame was answered."""
        self.bytes_used -= frame_bytes
        if self._waiting_small or self._waiting_large:
            self._wake()

    def forget(self, reader: Reader, *, held_bytes: int) -> None:
        """The reader is gone, and with it everything it held."""
        self.bytes_used -= held_bytes
        self._large_bytes.pop(reader, None)
        self._progress.pop(reader, None)
        self._waiting_small.pop(reader, None)
        self._waiting_large.pop(reader, None)
        self._wake()

    def relieve(self, now_ms: int) -> None:
        """Called again and again: cuts off those for whom others wait longer than is fair."""
        if not self.readers_waiting:
            self._progress.clear()
            self._was_full = False
            return
        unfair = [reader for reader in self._holders() if self._is_unfair(reader, now_ms)]
        for reader in _largest_first(unfair):
            if not self.readers_waiting:
                return
            reader.cut_off("others waited for the memory that its requests held")
        # Beginnings of frames alone can fill the memory, and would then wait for each other.
        is_full = self.bytes_used > self.bytes_max
        if is_full and self._was_full:
            self.relieve_at_once()
        self._was_full = is_full

    def relieve_at_once(self) -> None:
        """Much more is held than allowed: the largest holders go until that is no longer so."""
        for reader in _largest_first(
            [reader for reader in self._holders() if reader.held_bytes >= SMALL_SHARE_BYTES]
        ):
            if self.bytes_used <= self.bytes_max:
                return
            reader.cut_off("requests of all connections held too much memory")

    def _fits(self, missing_bytes: int, frame_bytes: int) -> bool:
        if frame_bytes <= TINY_FRAME_BYTES:
            return True
        if frame_bytes > LARGE_FRAME_BYTES:
            large_bytes = sum(self._large_bytes.values())
            # One large frame is always read, whatever its size: it is the listener that bounds it.
            if not large_bytes:
                return True
            if large_bytes + missing_bytes > self.bytes_max - self.bytes_max // 4:
                return False
        return self.bytes_used + missing_bytes <= self.bytes_max

    def _take(self, reader: Reader, missing_bytes: int, *, is_large: bool) -> None:
        self.bytes_used += missing_bytes
        if is_large:
            self._large_bytes[reader] = missing_bytes

    def _wake(self) -> None:
        for waiting, frame_bytes in (
            (self._waiting_small, LARGE_FRAME_BYTES),
            (self._waiting_large, LARGE_FRAME_BYTES + 1),
        ):
            while waiting:
                reader, missing_bytes = next(iter(waiting.items()))
                if not self._fits(missing_bytes, frame_bytes):
                    break
                del waiting[reader]
                self._take(reader, missing_bytes, is_large=waiting is self._waiting_large)
                reader.memory_granted(missing_bytes)

    def _is_unfair(self, reader: Reader, now_ms: int) -> bool:
        if reader.held_bytes < SMALL_SHARE_BYTES or self.waits(reader):
            return False
        missing_bytes = reader.reserved_bytes
        if not missing_bytes or not reader.is_reading:
            return reader.quiet_ms >= CONTENDED_PARKED_MS_MAX
        before = self._progress.get(reader)
        self._progress[reader] = _Progress(now_ms, missing_bytes)
        if before is None:
            return False
        received = before.missing_bytes - missing_bytes
        return received * 1000 < (now_ms - before.at_ms) * CONTENDED_BYTES_PER_SECOND_MIN


def _largest_first(readers: list[Reader]) -> list[Reader]:
    """The largest holders of the address that holds most come first."""
    by_address: dict[str, int] = {}
    for reader in readers:
        by_address[reader.address] = by_address.get(reader.address, 0) + reader.held_bytes
    return sorted(
        readers, key=lambda each: (by_address[each.address], each.held_bytes), reverse=True
    )

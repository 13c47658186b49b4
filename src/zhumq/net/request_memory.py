"""Request memory shared by all connections: which of them read on, which wait, which are cut off."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self

# A frame up to this size is always read on: a small request never waits behind large ones.
TINY_FRAME_BYTES: Final = 16 * 1024
# Frames above this size are large: together they leave a quarter of the memory to the others.
LARGE_FRAME_BYTES: Final = 1024 * 1024
# Frames of new clients may use half of the memory; beyond that, an eighth of it together, or one
# frame all that is free.
NEW_SHARE: Final = 2
NEW_SHARE_WHEN_FULL: Final = 8
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
        """The memory that it holds: bytes received, reserved, and not answered yet."""

    @property
    def reserved_bytes(self) -> int:
        """The missing bytes of a frame that has its reservation."""

    @property
    def proven_bytes(self) -> int:
        """The largest frame that this client has completed, of those that came in pieces."""

    @property
    def is_reading(self) -> bool:
        """Whether the broker reads, so that the client has to send the next byte."""

    @property
    def quiet_ms(self) -> int:
        """Milliseconds since something was last received from the client or answered to it."""

    def memory_granted(self, reserved_bytes: int) -> None:
        """Called once there is room for what it waited for."""

    def cut_off(self, reason: str) -> None:
        """Closes the connection to free its memory. Calls `forget` before it returns."""


class _Kind(NamedTuple):
    """A kind of frame with a queue of its own; kinds sort by precedence."""

    is_new: bool  # from a client that has completed no frame of at least half the size
    is_large: bool

    @classmethod
    def of(cls, reader: Reader, frame_bytes: int) -> Self:
        return cls(frame_bytes > 2 * reader.proven_bytes, frame_bytes > LARGE_FRAME_BYTES)


_FIRST: Final = _Kind(is_new=False, is_large=False)


@dataclass(slots=True)
class _Progress:
    """How much of a frame was missing at the last check."""

    at_ms: int
    missing_bytes: int


class RequestMemory:
    """Bytes of requests held by all connections, bounded by reservations.

    A frame that is incomplete after its first read is read on only once the rest of it is reserved.
    So incomplete frames do not exceed the bound and cannot wait for each other. Bytes received
    before their reservation, and requests that fit into one read, can exceed the bound: by a
    quarter of it, and the largest holders are cut off at once.

    Any client can start frames. So a client is proven for a frame only if it has completed one of
    at least half the size. Proven clients go first, and new clients leave memory to them.
    """

    __slots__ = (
        "_holders",
        "_large_bytes",
        "_new_bytes",
        "_progress",
        "_waiting",
        "_waiting_kinds",
        "_was_full",
        "bytes_max",
        "bytes_used",
    )

    def __init__(self, bytes_max: int, holders: Callable[[], Iterable[Reader]]) -> None:
        self.bytes_max = bytes_max
        # Bytes received and not answered yet, and bytes reserved for the rest of frames.
        self.bytes_used = 0
        self._holders = holders
        self._large_bytes: dict[Reader, int] = {}  # reservations of large frames
        self._new_bytes: dict[Reader, int] = {}  # reservations of frames of new clients
        # In order of arrival, with the bytes each needs. 0: it waits for usage within the bound.
        self._waiting: dict[_Kind, dict[Reader, int]] = {
            _Kind(is_new, is_large): {} for is_new in (False, True) for is_large in (False, True)
        }
        self._waiting_kinds: dict[Reader, _Kind] = {}
        self._progress: dict[Reader, _Progress] = {}  # while others wait
        self._was_full = False  # at the last check, while others waited

    @property
    def readers_waiting(self) -> int:
        return len(self._waiting_kinds)

    @property
    def is_overdrawn(self) -> bool:
        return self.bytes_used > self.bytes_max + self.bytes_max // 4

    def waits(self, reader: Reader) -> bool:
        """Whether the reader waits for room for the rest of a frame."""
        kind = self._waiting_kinds.get(reader)
        return kind is not None and self._waiting[kind][reader] > 0

    def reserve(self, reader: Reader, missing_bytes: int, frame_bytes: int) -> bool:
        """Reserves the rest of a frame. False: `memory_granted` is called once it is reserved."""
        if frame_bytes <= TINY_FRAME_BYTES:
            self.bytes_used += missing_bytes
            return True
        kind = _Kind.of(reader, frame_bytes)
        if self._waiting[kind] or not self._fits(missing_bytes, kind):
            self._wait(reader, missing_bytes, kind)
            return False
        self._take(reader, missing_bytes, kind)
        return True

    def admits(self, reader: Reader) -> bool:
        """Whether a reader between two frames may go on; if not, `memory_granted` follows."""
        if (
            self.bytes_used <= self.bytes_max
            or reader.reserved_bytes
            or reader.held_bytes < SMALL_SHARE_BYTES
        ):
            return True
        if reader not in self._waiting_kinds:
            self._wait(reader, 0, _FIRST)
        return False

    def frame_completed(self, reader: Reader) -> None:
        """Ends the reservation of a complete frame; its bytes count until it is answered."""
        if self._progress:
            self._progress.pop(reader, None)
        if self._large_bytes or self._new_bytes:
            self._large_bytes.pop(reader, None)
            self._new_bytes.pop(reader, None)
            self._wake()

    def release(self, frame_bytes: int) -> None:
        """Frees the bytes of an answered frame."""
        self.bytes_used -= frame_bytes
        if self._waiting_kinds:
            self._wake()

    def forget(self, reader: Reader, *, held_bytes: int) -> None:
        """Frees everything that a closed connection held."""
        self.bytes_used -= held_bytes
        self._large_bytes.pop(reader, None)
        self._new_bytes.pop(reader, None)
        self._progress.pop(reader, None)
        kind = self._waiting_kinds.pop(reader, None)
        if kind is not None:
            del self._waiting[kind][reader]
        self._wake()

    def relieve(self, now_ms: int) -> None:
        """Called every tick: cuts off slow holders while others wait for memory."""
        if not self.readers_waiting:
            self._progress.clear()
            self._was_full = False
            return
        unfair = [reader for reader in self._holders() if self._is_unfair(reader, now_ms)]
        for reader in _largest_first(unfair):
            if not self.readers_waiting:
                return
            reader.cut_off("others waited for the memory that its requests held")
        # Incomplete frames alone can fill the memory, and would then wait for each other.
        is_full = self.bytes_used > self.bytes_max
        if is_full and self._was_full:
            self.relieve_at_once()
        self._was_full = is_full

    def relieve_at_once(self) -> None:
        """Cuts off the largest holders until usage is within the bound."""
        for reader in _largest_first(
            [reader for reader in self._holders() if reader.held_bytes >= SMALL_SHARE_BYTES]
        ):
            if self.bytes_used <= self.bytes_max:
                return
            reader.cut_off("requests of all connections held too much memory")

    def relieve_proven(self) -> None:
        """Called soon after a proven client starts to wait: cuts off new ones until none waits.

        Large frames wait for each other in any case, so no client is cut off for those.
        """
        waiting = self._waiting[_FIRST]
        if not waiting:
            return
        for reader in _largest_first(
            [
                reader
                for reader in self._holders()
                if not reader.proven_bytes and reader.held_bytes >= SMALL_SHARE_BYTES
            ]
        ):
            reader.cut_off("clients that had sent requests before waited for the memory it held")
            if not waiting:
                return

    def _fits(self, missing_bytes: int, kind: _Kind) -> bool:
        if kind.is_large:
            large_bytes = sum(self._large_bytes.values())
            # One large frame is always read: the listener bounds its size.
            if not large_bytes:
                return True
            if large_bytes + missing_bytes > self.bytes_max - self.bytes_max // 4:
                return False
        needed_bytes = self.bytes_used + missing_bytes
        if kind.is_new and needed_bytes > self.bytes_max // NEW_SHARE:
            new_bytes = sum(self._new_bytes.values())
            if new_bytes and new_bytes + missing_bytes > self.bytes_max // NEW_SHARE_WHEN_FULL:
                return False
        return needed_bytes <= self.bytes_max

    def _take(self, reader: Reader, missing_bytes: int, kind: _Kind) -> None:
        self.bytes_used += missing_bytes
        if kind.is_large:
            self._large_bytes[reader] = missing_bytes
        if kind.is_new:
            self._new_bytes[reader] = missing_bytes

    def _wait(self, reader: Reader, missing_bytes: int, kind: _Kind) -> None:
        known = self._waiting_kinds.get(reader, kind)
        if known != kind:
            del self._waiting[known][reader]
        self._waiting[kind][reader] = missing_bytes
        self._waiting_kinds[reader] = kind

    def _wake(self) -> None:
        for kind, waiting in self._waiting.items():
            while waiting:
                reader, missing_bytes = next(iter(waiting.items()))
                if not self._fits(missing_bytes, kind):
                    break
                del waiting[reader], self._waiting_kinds[reader]
                self._take(reader, missing_bytes, kind)
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

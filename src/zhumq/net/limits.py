"""How much one client, and all of them together, may ask of this process."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

# What an event loop reads from a socket at once (uvloop 250 KiB, asyncio 256 KiB).
READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a listener. Every buffer and every wait in this room ends at one of them."""

    # Kafka's socket.request.max.bytes: a larger frame closes its connection.
    frame_bytes_max: int = 100 * 1024 * 1024
    # Requests of one connection that the service has not answered yet.
    requests_in_flight_max: int = 64
    # Request bytes of one connection; a single frame larger than this is still served, alone.
    request_bytes_max: int = 32 * 1024 * 1024
    # Request bytes of all connections. Overshoot: one frame, and one read for each connection.
    request_bytes_total_max: int = 256 * 1024 * 1024
    # Answer bytes a slow reader may leave behind before its next request is looked at.
    answer_bytes_max: int = 1024 * 1024
    connections_max: int = 20_000
    connections_per_address_max: int = 16_384
    # Kafka's connections.max.idle.ms.
    idle_ms: int = 600_000
    # From accepting a connection to its first whole frame.
    first_frame_ms: int = 30_000
    # Without one more byte of a frame that has begun.
    half_frame_ms: int = 30_000
    # From deciding to close to cutting off a peer that does not read its last answers.
    close_ms: int = 5_000


@dataclass(slots=True)
class Counters:
    """What a listener has seen. Plain integers: written by the listener, read by anybody."""

    connections_accepted: int = 0
    connections_refused: int = 0
    connections_open: int = 0
    connections_malformed: int = 0
    connections_failed: int = 0
    connections_expired: int = 0
    requests_received: int = 0
    requests_in_flight: int = 0
    bytes_received: int = 0
    bytes_answered: int = 0
    bytes_sent_by_sendfile: int = 0
    # Answers built, but not handed to the kernel yet. File regions count, though only on disk.
    answer_bytes_queued: int = 0
    reading_paused: int = 0


class Reader(Protocol):
    """A connection as the shared memory sees it."""

    @property
    def is_inside_frame(self) -> bool:
        """Whether part of a frame was received and the rest was not."""

    def continue_reading(self) -> None:
        """Called once there is room again for what the peer sends."""


class RequestMemory:
    """Request bytes held by all connections, and who waits until there are fewer of them.

    Half frames can fill the memory and could then wait for each other for ever. So one of the
    waiting connections may always finish its frame, unless whole frames, which the service will
    answer, are what the memory is full of.
    """

    __slots__ = ("_favoured", "_waiting", "bytes_max", "bytes_used", "bytes_whole")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        # Invariant: 0 <= bytes_whole <= bytes_used. Whole frames, waiting for their answers.
        self.bytes_whole = 0
        self._waiting: dict[Reader, None] = {}  # in order of arrival
        self._favoured: Reader | None = None

    @property
    def readers_waiting(self) -> int:
        return len(self._waiting)

    def admits(self, reader: Reader) -> bool:
        """Whether the reader may go on; if not, it is called once it may."""
        if self.bytes_used <= self.bytes_max:
            self._waiting.pop(reader, None)
            return True
        if reader is self._favoured or self._favour(reader):
            return True
        self._waiting[reader] = None
        return False

    def frame_completed(self, reader: Reader, frame_bytes: int) -> None:
        self.bytes_whole += frame_bytes
        if reader is self._favoured:
            self._favoured = None
            self._favour_next()

    def release(self, frame_bytes: int) -> None:
        """A whole frame was answered."""
        self.bytes_used -= frame_bytes
        self.bytes_whole -= frame_bytes
        if self._waiting:
            self._wake()

    def forget(self, reader: Reader, *, half_bytes: int) -> None:
        """The reader is gone, and with it the frame it was inside of."""
        self.bytes_used -= half_bytes
        self._waiting.pop(reader, None)
        if reader is self._favoured:
            self._favoured = None
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        # Each woken connection may read READ_BYTES at once, so no more are woken than fit.
        room = self.bytes_max - self.bytes_used
        while self._waiting and room >= 0:
            reader = next(iter(self._waiting))
            del self._waiting[reader]
            room -= READ_BYTES
            reader.continue_reading()
        self._favour_next()

    def _favour_next(self) -> None:
        if self.bytes_used <= self.bytes_max or self._favoured is not None:
            return
        for reader in self._waiting:
            if self._favour(reader):
                reader.continue_reading()
                return

    def _favour(self, reader: Reader) -> bool:
        if (
            self._favoured is not None
            or not reader.is_inside_frame
            or self.bytes_whole > self.bytes_max // 2
        ):
            return False
        self._favoured = reader
        self._waiting.pop(reader, None)
        return True


class Admission:
    """Who may connect: so many in all, so many from one address."""

    __slots__ = ("_by_address", "_limits", "connections")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_address: Counter[str] = Counter()
        self.connections = 0

    def enter(self, address: str) -> bool:
        if (
            self.connections >= self._limits.connections_max
            or self._by_address[address] >= self._limits.connections_per_address_max
        ):
            return False
        self.connections += 1
        self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        self.connections -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

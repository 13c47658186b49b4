"""How much one client, and all of them together, may ask of this process."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a listener. Every buffer and every wait in this room ends at one of them."""

    # Kafka's socket.request.max.bytes: a larger frame closes its connection.
    frame_bytes_max: int = 100 * 1024 * 1024
    # Requests of one connection that the service has not answered yet.
    requests_in_flight_max: int = 64
    # Request bytes of one connection; a single frame larger than this is still served, alone.
    request_bytes_max: int = 32 * 1024 * 1024
    # Request bytes of all connections: see RequestMemory for who waits and who is cut off.
    request_bytes_total_max: int = 160 * 1024 * 1024
    # Answer bytes a slow reader may leave behind before its next request is looked at.
    answer_bytes_max: int = 1024 * 1024
    # Answers in memory that clients do not read, of all connections: beyond it the longest unread go.
    unread_bytes_total_max: int = 64 * 1024 * 1024
    connections_max: int = 20_000
    connections_per_address_max: int = 16_384
    # Kafka's connections.max.idle.ms.
    idle_ms: int = 600_000
    # From accepting a connection to its first whole frame.
    first_frame_ms: int = 30_000
    # Without one more byte of a frame that has begun.
    half_frame_ms: int = 30_000
    # A frame has half_frame_ms and the time its size takes at this rate, from its first byte on.
    frame_bytes_per_second_min: int = 32 * 1024
    # Without room in the request memory for a frame that has begun.
    memory_wait_ms: int = 30_000
    # From deciding to close to cutting off a peer that does not read its last answers.
    close_ms: int = 5_000

    @property
    def shortest_wait_ms(self) -> int:
        return min(self.idle_ms, self.first_frame_ms, self.half_frame_ms, self.memory_wait_ms)


@dataclass(slots=True)
class Counters:
    """What a listener has seen. Plain integers: written by the listener, read by anybody."""

    connections_accepted: int = 0
    connections_refused: int = 0
    connections_open: int = 0
    connections_malformed: int = 0
    connections_failed: int = 0
    connections_expired: int = 0
    connections_cut_off: int = 0  # to make room in memory for others
    requests_received: int = 0
    requests_in_flight: int = 0
    bytes_received: int = 0
    bytes_answered: int = 0
    bytes_sent_by_sendfile: int = 0
    # Answers built, but not handed to the kernel yet. File regions count, though only on disk.
    answer_bytes_queued: int = 0
    reading_paused: int = 0


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

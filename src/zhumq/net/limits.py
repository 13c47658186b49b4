"""Limits of a listener for one client and for all of them, its counters, and the admission of clients."""

from collections import Counter
from dataclasses import dataclass

from zhumq.net.handshakes import HANDSHAKE_MS_MAX, HANDSHAKES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a listener: every buffer and every wait has one."""

    # Kafka's socket.request.max.bytes: a larger frame closes its connection.
    frame_bytes_max: int = 100 * 1024 * 1024
    # The same before the client has authenticated, and how long it may take to.
    unauthenticated_frame_bytes_max: int = 64 * 1024
    authentication_ms: int = 30_000
    # Requests of one connection that the service has not answered yet.
    requests_in_flight_max: int = 64
    # Request bytes of one connection; a single frame larger than this is still served, alone.
    request_bytes_max: int = 32 * 1024 * 1024
    # Request bytes of all connections: RequestMemory decides which wait and which are cut off.
    request_bytes_total_max: int = 160 * 1024 * 1024
    # Unsent answer bytes of one connection above which its next request is not served.
    answer_bytes_max: int = 1024 * 1024
    # Unread answers in memory, of all connections: beyond it the longest unread are cut off.
    unread_bytes_total_max: int = 64 * 1024 * 1024
    connections_max: int = 20_000
    connections_per_address_max: int = 16_384
    # Kafka's connections.max.idle.ms.
    idle_ms: int = 600_000
    # TLS handshakes in progress, and how long one may take.
    handshakes_max: int = HANDSHAKES_MAX
    handshake_ms: int = HANDSHAKE_MS_MAX
    # From accepting a connection to its first complete frame.
    first_frame_ms: int = 30_000
    # Without one more byte of an incomplete frame.
    half_frame_ms: int = 30_000
    # A frame has half_frame_ms plus the time its size takes at this rate, from its first byte on.
    frame_bytes_per_second_min: int = 32 * 1024
    # Without room in the request memory for an incomplete frame.
    memory_wait_ms: int = 30_000
    # From closing to the abort of a connection whose peer does not read its last answers.
    close_ms: int = 5_000

    @property
    def shortest_wait_ms(self) -> int:
        return min(
            self.idle_ms,
            self.first_frame_ms,
            self.half_frame_ms,
            self.memory_wait_ms,
            self.authentication_ms,
        )


@dataclass(slots=True)
class Counters:
    """Counters of a listener: plain integers, written by the listener, read at a scrape."""

    connections_refused: int = 0
    connections_open: int = 0
    connections_malformed: int = 0
    connections_failed: int = 0
    handshakes_failed: int = 0  # of TLS
    connections_expired: int = 0
    connections_cut_off: int = 0  # to make room in memory for others
    requests_received: int = 0
    requests_in_flight: int = 0
    bytes_received: int = 0
    bytes_answered: int = 0
    bytes_sent_by_sendfile: int = 0
    # Answers that are not written to the socket yet. File regions count, though only on disk.
    answer_bytes_queued: int = 0
    reading_paused: int = 0


class Admission:
    """Admits connections up to a total, and up to a number from one address."""

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

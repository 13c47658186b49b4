"""What the clients of a chaos run have in common: a third-party library, in a hurry."""

import sys
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError

# Short waits, so that a client is back soon after a fault; none of them bounds how long it tries.
HURRIED: Final[dict[str, str | int | float]] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "topic.metadata.refresh.interval.ms": 5_000,
    # Longer than any answer takes, shorter than a broker is paused.
    "socket.timeout.ms": 4_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "log_level": 0,
}


class Troubles:
    """The errors that clients met, by their names. Meeting one is no finding, a fatal one is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.fatal: list[str] = []

    def met(self, error: KafkaError, who: str) -> None:
        with self._lock:
            self.counts[error.name()] += 1
            if error.fatal():
                self.fatal.append(f"{who}: {error.name()} ({error.str()})")


class Progress:
    """When the latest send to a partition, or commit of a group, began that was acknowledged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest_ms: dict[str, int] = {}

    def acknowledged(self, place: str, began_ms: int) -> None:
        with self._lock:
            self._latest_ms[place] = max(began_ms, self._latest_ms.get(place, -1))

    def has_passed(self, places: Iterable[str], time_ms: int) -> bool:
        """Whether at each of these places something begun after that time was acknowledged."""
        with self._lock:
            return all(self._latest_ms.get(place, -1) > time_ms for place in places)


def hanging_at(thread: threading.Thread, seconds_max: float) -> str | None:
    """The line at which a thread still is after so long; None if it has ended."""
    thread.join(seconds_max)
    frame = sys._current_frames().get(thread.ident or 0)
    if not thread.is_alive() or frame is None:
        return None
    return f"{frame.f_code.co_qualname}, line {frame.f_lineno}"


def partition_name(topic: str, partition: int) -> str:
    """How the history calls a partition: as its folder is called."""
    return f"{topic}-{partition}"

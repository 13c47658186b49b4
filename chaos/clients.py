"""Shared by the clients of a chaos run: librdkafka settings, error counts, progress."""

import sys
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError

# Short waits: a client is back soon after a fault. None of them limits how long it retries.
FAST_RETRIES: Final[dict[str, str | int | float]] = {
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


class ClientErrors:
    """Counts the errors of clients by name. Only a fatal error is a finding."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.fatal: list[str] = []

    def count(self, error: KafkaError) -> None:
        """Count an error that is no finding, fatal or not."""
        with self._lock:
            self.counts[error.name()] += 1

    def add(self, error: KafkaError, client: str) -> None:
        self.count(error)
        with self._lock:
            if error.fatal():
                self.fatal.append(f"{client}: {error.name()} ({error.str()})")


class Progress:
    """The start time of the latest acknowledged send to each partition and commit of each group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest_ms: dict[str, int] = {}

    def acknowledged(self, place: str, began_ms: int) -> None:
        with self._lock:
            self._latest_ms[place] = max(began_ms, self._latest_ms.get(place, -1))

    def has_passed(self, places: Iterable[str], time_ms: int) -> bool:
        """Whether each of these places acknowledged an operation that began after that time."""
        with self._lock:
            return all(self._latest_ms.get(place, -1) > time_ms for place in places)


def hanging_at(thread: threading.Thread, seconds_max: float) -> str | None:
    """The line that a thread still executes after `seconds_max`; None if it has ended."""
    thread.join(seconds_max)
    frame = sys._current_frames().get(thread.ident or 0)
    if not thread.is_alive() or frame is None:
        return None
    return f"{frame.f_code.co_qualname}, line {frame.f_lineno}"


def partition_name(topic: str, partition: int) -> str:
    """The name of a partition in the history: that of its folder."""
    return f"{topic}-{partition}"

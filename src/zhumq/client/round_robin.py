"""Chooses the partitions of messages without a key in turn."""

import time
from collections.abc import Callable
from typing import Final

# How long the number of a topic's partitions is used before it is asked for again.
COUNT_SECONDS: Final = 60.0


class RoundRobin:
    """The next partition of each topic. The partitions of a topic get equally many messages, one by one."""

    def __init__(
        self, partitions_of: Callable[[str], int], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._partitions_of = partitions_of
        self._now = now
        self._counts: dict[str, tuple[int, float]] = {}
        self._next: dict[str, int] = {}

    def partition(self, topic: str) -> int | None:
        """The next partition; None while the number of partitions is not known."""
        count, until = self._counts.get(topic, (0, 0.0))
        if not count or self._now() >= until:
            count = self._partitions_of(topic)
            self._counts[topic] = (count, self._now() + COUNT_SECONDS)
        if not count:
            return None
        chosen = self._next.get(topic, 0) % count
        self._next[topic] = chosen + 1
        return chosen

"""Due messages of partitions that cannot be written to now: one queue for each, in the order of their due times."""

import heapq
from collections.abc import Callable, Collection, Iterator
from typing import Final

from zhumq.delays.due_index import DueIndex, Entry
from zhumq.model.ids import TopicPartition

# In memory are twice as many entries of a partition, the others in runs: fewer when many partitions wait.
HELD_ENTRIES_MAX: Final = 1_024
HELD_ENTRIES_MIN: Final = 16
_ALWAYS_MS: Final = 1 << 62  # later than any due time


class HeldMessages:
    """Keeps them apart from what is pending, so that an attempt looks at a few of one partition and not at all that waits."""

    def __init__(self, new_index: Callable[[int], DueIndex]) -> None:
        """`new_index` makes an empty index, with so many entries in a run."""
        self._new_index = new_index
        self._queues: dict[TopicPartition, DueIndex] = {}

    @property
    def count(self) -> int:
        return sum(each.count for each in self._queues.values())

    @property
    def in_memory(self) -> int:
        return sum(each.in_memory for each in self._queues.values())

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those with messages that wait."""
        return frozenset(self._queues)

    def next_due_ms(self) -> int | None:
        return min(
            (due for each in self._queues.values() if (due := each.next_due_ms()) is not None),
            default=None,
        )

    def add(self, partition: TopicPartition, entry: Entry) -> None:
        queue = self._queues.get(partition)
        if queue is None:
            entries = max(HELD_ENTRIES_MAX // (len(self._queues) + 1), HELD_ENTRIES_MIN)
            queue = self._queues[partition] = self._new_index(entries)
        queue.add(entry)

    def take(
        self, avoided: Collection[TopicPartition], limit: int
    ) -> list[tuple[TopicPartition, Entry]]:
        """Take out the first messages of partitions that are tried again, about as many of each. Raises BrokerError."""
        ready = [each for each in self._queues if each not in avoided]
        taken: list[tuple[TopicPartition, Entry]] = []
        for place, partition in enumerate(ready):
            share = max((limit - len(taken)) // (len(ready) - place), 1)
            if len(taken) + share > limit:
                break
            queue = self._queues.pop(partition)
            try:
                # They were due when they came here, whatever the clock shows now.
                taken += ((partition, each) for each in queue.take(_ALWAYS_MS, share))
            finally:
                if queue.count:
                    self._queues[partition] = queue  # behind the others, which have their turn
                else:
                    queue.close()
        return taken

    def scan(self, due_ms: int, serial: int) -> Iterator[Entry]:
        """The entries from this one on, of all partitions in the order of their due times. They must not change meanwhile."""
        return heapq.merge(*(each.scan(due_ms, serial) for each in self._queues.values()))

    def close(self) -> None:
        for each in self._queues.values():
            each.close()
        self._queues.clear()

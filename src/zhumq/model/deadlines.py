"""Deadlines by key in one heap; setting one again is cheap."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """The next deadline of each of many keys."""

    def __init__(self) -> None:
        self._due_ms: dict[Key, int] = {}
        # Invariant: every key of _due_ms has its _queued_ms entry in the heap, at or before its due time.
        # A heartbeat only changes _due_ms, so a member takes one heap entry however many heartbeats it sends.
        self._queued_ms: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: Key) -> bool:
        return key in self._due_ms

    def set(self, key: Key, due_ms: int) -> None:
        """Set the deadline of `key`, replacing an earlier one."""
        self._due_ms[key] = due_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or queued_ms > due_ms:
            self._push(key, due_ms)

    def cancel(self, key: Key) -> None:
        """Remove `key`; its heap entry is dropped when it reaches the top."""
        self._due_ms.pop(key, None)

    @property
    def next_deadline_ms(self) -> int | None:
        if not self._heap:
            return None
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the key with the earliest deadline that is due; None if there is none."""
        self._settle_top()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._queued_ms[key]
        del self._due_ms[key]
        return key

    def _push(self, key: Key, due_ms: int) -> None:
        self._queued_ms[key] = due_ms
        # The counter keeps equal times in the order they were set, and keys out of comparisons.
        self._pushed += 1
        heapq.heappush(self._heap, (due_ms, self._pushed, key))

    def _settle_top(self) -> None:
        """Drop or move outdated entries until the top one is current."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            due_ms = self._due_ms.get(key)
            if self._queued_ms.get(key) == at_ms and due_ms == at_ms:
                return
            heapq.heappop(self._heap)
            if self._queued_ms.get(key) == at_ms:
                del self._queued_ms[key]
                if due_ms is not None:
                    self._push(key, due_ms)

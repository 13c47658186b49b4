"""The calls of a caller that have no reply yet: bounded, each with its deadline. Pure."""

from typing import Final, Generic, TypeVar

from zhumq.client.errors import TooManyCalls
from zhumq.model.deadlines import Deadlines

T = TypeVar("T")
PENDING_MAX: Final = 1_000


class PendingCalls(Generic[T]):
    """What waits for the reply to each call. A call ends once: by its reply, or at its deadline."""

    def __init__(self, pending_max: int = PENDING_MAX) -> None:
        if pending_max < 1:
            raise ValueError(f"pending_max={pending_max} is below 1")
        self._pending_max = pending_max
        self._waiting: dict[bytes, T] = {}
        self._deadlines: Deadlines[bytes] = Deadlines()

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, call_id: bytes, waiting: T, due_ms: int) -> None:
        """Add a call. Raises TooManyCalls."""
        if len(self._waiting) >= self._pending_max:
            raise TooManyCalls(
                f"{len(self._waiting)} calls have no reply yet: wait for some, or raise pending_max"
            )
        self._waiting[call_id] = waiting
        self._deadlines.set(call_id, due_ms)

    def end(self, call_id: bytes) -> T | None:
        """End a call; None: it ended before, or is not of this caller."""
        self._deadlines.cancel(call_id)
        return self._waiting.pop(call_id, None)

    def end_due(self, now_ms: int) -> list[T]:
        """End the calls whose deadline is over."""
        ended = []
        while (call_id := self._deadlines.pop_due(now_ms)) is not None:
            ended.append(self._waiting.pop(call_id))
        return ended

    def end_all(self) -> list[T]:
        """End every call."""
        ended = list(self._waiting.values())
        self._waiting.clear()
        self._deadlines = Deadlines()
        return ended

    @property
    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_deadline_ms

"""The contiguous prefix of processed offsets: only this is ever committed. Pure."""

from heapq import heappop, heappush


class Prefix:
    """Offsets of one partition, begun and done in any order."""

    def __init__(self) -> None:
        self._begun: list[int] = []
        self._done: set[int] = set()
        self._abandoned: set[int] = set()

    @property
    def unfinished(self) -> int:
        """Offsets begun that are not done, or follow one that is not."""
        return len(self._begun)

    @property
    def is_idle(self) -> bool:
        """Whether every offset begun is done or abandoned."""
        return len(self._begun) == len(self._done) + len(self._abandoned)

    def abandon(self, offset: int) -> None:
        """This offset will not be done: the prefix ends before it."""
        self._abandoned.add(offset)

    def begin(self, offset: int) -> None:
        heappush(self._begun, offset)

    def done(self, offset: int) -> int | None:
        """Mark an offset as done. Returns the next offset to commit if it changed: everything below it is done."""
        self._done.add(offset)
        next_offset = None
        while self._begun and self._begun[0] in self._done:
            first = heappop(self._begun)
            self._done.discard(first)
            next_offset = first + 1
        return next_offset

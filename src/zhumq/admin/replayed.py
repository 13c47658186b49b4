"""Which dead letters of a partition were replayed, in the form of an offset commit. Pure."""

import itertools
from collections.abc import Iterable
from typing import Final, Self

METADATA_CHARACTERS_MAX: Final = (
    4_000  # of an offset commit; Kafka's offset.metadata.max.bytes is 4,096
)

OFFSETS_MAX: Final = 1_000_000  # above a position; more count as not replayed


class Replayed:
    """All offsets below a position and some above it, committed as `7` and `9-11,15`."""

    def __init__(self, position: int = 0, above: Iterable[int] = ()) -> None:
        self.position = position
        self._above = {offset for offset in above if offset >= position}

    @classmethod
    def read(cls, position: int, metadata: str) -> Self:
        """Read a commit. Metadata that is no range of offsets comes from another program and is skipped."""
        above: list[int] = []
        for part in metadata.split(",") if metadata else ():
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                run = range(int(first), int(last or first) + 1)
                above += run[: OFFSETS_MAX - len(above)]
        return cls(max(position, 0), above)

    def __contains__(self, offset: int) -> bool:
        return offset < self.position or offset in self._above

    def add(self, offset: int) -> None:
        """Add a replayed offset."""
        self._above.add(offset)
        while self.position in self._above:
            self._above.remove(self.position)
            self.position += 1

    def advance(self, position: int) -> None:
        """Raise the position: everything below it was replayed, or is no dead letter."""
        self.position = max(self.position, position)
        self._above = {offset for offset in self._above if offset >= self.position}

    def count(self, low: int, high: int) -> int:
        """How many offsets from `low` to below `high` were replayed."""
        below = min(max(self.position - low, 0), high - low)
        return below + sum(1 for offset in self._above if low <= offset < high)

    @property
    def metadata(self) -> str:
        """The offsets above the position; if they do not fit, the last ones are left out."""
        text = ""
        for first, last in _runs(sorted(self._above)):
            part = f"{first}-{last}" if last > first else str(first)
            longer = f"{text},{part}" if text else part
            if len(longer) > METADATA_CHARACTERS_MAX:
                break
            text = longer
        return text


def _runs(offsets: list[int]) -> Iterable[tuple[int, int]]:
    for _, group in itertools.groupby(enumerate(offsets), key=lambda pair: pair[1] - pair[0]):
        run = [offset for _, offset in group]
        yield run[0], run[-1]

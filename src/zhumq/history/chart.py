"""Charts from samples: a grid of times, and for each of its steps the figures, or a gap."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from zhumq.history.fields import Sample, Subject, Values, combine_values
from zhumq.history.ring import COARSE, FINE, Ring
from zhumq.model.errors import InvalidRequest

POINTS_MAX: Final = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The steps of a chart. Each has the samples from its time on, up to the next one's."""

    start_ms: int
    step_ms: int
    count: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.step_ms * self.count

    @property
    def ring(self) -> Ring:
        """The ring whose samples it takes."""
        return FINE if self.step_ms % COARSE.step_ms else COARSE

    @classmethod
    def checked(cls, start_ms: int, step_ms: int, count: int) -> "Grid":
        """The grid that a client asks for. Raises InvalidRequest."""
        if not 0 < step_ms <= COARSE.span_ms or step_ms % FINE.step_ms:
            raise InvalidRequest(
                f"a step of {step_ms} ms is not a multiple of {FINE.step_ms} up to a day"
            )
        if not 1 <= count <= POINTS_MAX:
            raise InvalidRequest(f"a chart has 1 to {POINTS_MAX} points, not {count}")
        if start_ms < 0 or start_ms % step_ms:
            raise InvalidRequest(f"{start_ms} ms does not begin a step of {step_ms} ms")
        return cls(start_ms=start_ms, step_ms=step_ms, count=count)

    def slots(self, now_ms: int) -> list[int]:
        """The slots of its ring that can have samples for it, in the order of time."""
        ring = self.ring
        first_ms = max(self.start_ms, now_ms - ring.span_ms + 1)
        last_ms = min(self.end_ms - 1, now_ms)
        if first_ms > last_ms:
            return []
        count = min(last_ms // ring.step_ms - first_ms // ring.step_ms + 1, ring.slots)
        first = ring.slot_of(first_ms)
        return [(first + number) % ring.slots for number in range(count)]


class Chart:
    """Collects the samples of one subject, step by step of a grid."""

    def __init__(self, grid: Grid, subject: Subject, name: str) -> None:
        self._grid = grid
        self._subject = subject
        self._name = name
        self._found: list[list[Values | None]] = [[] for _ in range(grid.count)]

    def add(self, samples: Iterable[Sample]) -> None:
        """Take samples in the order of time; those outside of the grid are ignored."""
        grid = self._grid
        for sample in samples:
            place = (sample.time_ms - grid.start_ms) // grid.step_ms
            if 0 <= place < grid.count:
                self._found[place].append(sample.of(self._subject, self._name))

    def points(self) -> list[Values | None]:
        """The figures of each step. None, a gap: no sample has the subject."""
        return [
            combine_values(found, self._subject)
            if any(values is not None for values in found)
            else None
            for found in self._found
        ]

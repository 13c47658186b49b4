"""When a table that rows are enriched from is read again, and which version a micro-batch has. Pure."""

from dataclasses import dataclass, field
from typing import Final

RETRY_SECONDS_MIN: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0


@dataclass(slots=True, kw_only=True)
class Freshness:
    """How old a table may be. All times are seconds of one clock that only goes forward."""

    refresh_seconds: float
    _read_at: float | None = None  # when the last reading that went well began
    _failures: int = 0  # since then
    _due_at: float = 0.0  # after a failure

    def is_due(self, now: float) -> bool:
        """Whether a micro-batch that begins now needs the table to be read first."""
        if self._read_at is None:
            return True
        return now - self._read_at >= self.refresh_seconds and now >= self._due_at

    def note_read(self, began_at: float) -> None:
        self._read_at = began_at
        self._failures, self._due_at = 0, 0.0

    def note_failure(self, now: float) -> float:
        """Returns how long the table is left alone, so that a database that is away stops no stream for long."""
        wait = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2.0**self._failures)
        self._failures += 1
        self._due_at = now + wait
        return wait


@dataclass(slots=True)
class Versions:
    """Which version of a table each query reads, so that none is removed under a micro-batch."""

    newest: int | None = None
    _kept: set[int] = field(default_factory=set)
    _chosen: dict[str, tuple[str, int]] = field(default_factory=dict)  # query: batch, version

    @property
    def following(self) -> int:
        """The version that is made next."""
        return 0 if self.newest is None else self.newest + 1

    def add(self) -> None:
        """The following version is made, and is the newest from now on."""
        self.newest = self.following
        self._kept.add(self.newest)

    def of(self, query: str, batch: str) -> int | None:
        """The version of a micro-batch that has chosen; it stays the same for all of it."""
        known = self._chosen.get(query)
        return known[1] if known is not None and known[0] == batch else None

    def choose(self, query: str, batch: str) -> int:
        """Give the newest version to a micro-batch; the one before of this query has ended."""
        assert self.newest is not None, "a table is read before it is chosen"
        self._chosen[query] = (batch, self.newest)
        return self.newest

    def take_unused(self) -> list[int]:
        """The versions that no micro-batch reads and that none will choose."""
        used = {version for _, version in self._chosen.values()} | {self.newest}
        unused = sorted(self._kept - used)
        self._kept -= set(unused)
        return unused

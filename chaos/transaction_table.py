"""The transactions of a history: what each wrote and consumed, what it asked for, and how it ended."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from chaos.history import Action, Entry, Operation, Phase

COMMIT: Final = "commit"
ABORT: Final = "abort"


class Outcome(StrEnum):
    """How a transaction ended, as far as its process knows."""

    COMMITTED = "committed"
    ABORTED = (
        "aborted"  # certainly: an abort was confirmed, or its process never asked for a commit
    )
    UNKNOWN = "unknown"  # a commit was asked for, and not answered


@dataclass(slots=True, kw_only=True)
class TransactionSeen:
    """One transaction. Places are positions in the history."""

    number: int
    process: int
    transactional_id: str
    writes: tuple[Entry, ...]
    began_at: int
    consumed: list[Entry] = field(default_factory=list)
    commit_asked_at: int | None = None
    ended_at: int | None = None
    confirmed: str = ""  # commit or abort

    @property
    def outcome(self) -> Outcome:
        if self.confirmed == COMMIT:
            return Outcome.COMMITTED
        if self.confirmed == ABORT or self.commit_asked_at is None:
            return Outcome.ABORTED
        return Outcome.UNKNOWN

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.transactional_id}"


class TransactionTable:
    """Collects the transactions. It is a rule that reports nothing, and has to see each operation first."""

    def __init__(self) -> None:
        self.position = 0  # of the operation that was seen last
        self._all: list[TransactionSeen] = []
        self._open: dict[int, TransactionSeen] = {}  # of each process
        self._writers: dict[int, TransactionSeen] = {}  # of each value
        # Who took over each transactional id, and when.
        self.owners: dict[str, list[tuple[int, int]]] = {}

    def __iter__(self) -> Iterator[TransactionSeen]:
        return iter(self._all)

    def writer_of(self, value: int) -> TransactionSeen | None:
        return self._writers.get(value)

    def count(self, outcome: Outcome) -> int:
        return sum(each.outcome is outcome for each in self._all)

    def see(self, operation: Operation) -> None:
        self.position += 1
        match operation.action:
            case Action.INIT if operation.phase is Phase.OK:
                owners = self.owners.setdefault(operation.group, [])
                owners.append((self.position, operation.process))
            case Action.BEGIN:
                self._begin(operation)
            case Action.CONSUMED:
                self._open[operation.process].consumed += operation.entries
            case Action.END:
                self._end(operation)
            case _:
                pass

    def finish(self) -> None:
        """It reports nothing."""

    def _begin(self, operation: Operation) -> None:
        seen = TransactionSeen(
            number=len(self._all) + 1,
            process=operation.process,
            transactional_id=operation.group,
            writes=operation.entries,
            began_at=self.position,
        )
        self._all.append(seen)
        self._open[operation.process] = seen
        for entry in operation.entries:
            assert entry.value is not None, "a write without a value"
            self._writers[entry.value] = seen

    def _end(self, operation: Operation) -> None:
        seen = self._open[operation.process]
        if operation.phase is Phase.INVOKE:
            if operation.note == COMMIT and seen.commit_asked_at is None:
                seen.commit_asked_at = self.position
        elif operation.phase is Phase.OK:
            seen.confirmed = operation.note
            seen.ended_at = self.position

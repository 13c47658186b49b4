"""The persisted state of a share partition: the start offset and the runs of offsets above it."""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """State of a record in a share group; the numbers are KIP-932's where it has them."""

    AVAILABLE = 0
    ACQUIRED = 1  # never persisted: available after a crash
    ACKNOWLEDGED = 2
    ARCHIVED = 4  # a dead letter was written, or there is nothing at this offset
    # zhumq's own: the dead letter is decided but not written yet. Never delivered again.
    ARCHIVING = 5
    # The dead letter is being written, in one batch with those of all offsets in this state, under the next
    # sequence numbers. After a crash the same dead letters are written again under the same numbers.
    DEAD_LETTERING = 6


DONE_STATES = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
ARCHIVING_STATES = frozenset({RecordState.ARCHIVING, RecordState.DEAD_LETTERING})


class StateRun(NamedTuple):
    """Adjacent offsets with equal state."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    reason: str = ""  # of ARCHIVING and DEAD_LETTERING


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionUpdate:
    """Changes of a share partition to persist. Empty: nothing that must survive a crash."""

    start_offset: int
    runs: tuple[StateRun, ...] = ()
    # Total of dead letters written. It is the sequence number of the next one, so that none is written twice.
    dead_letters_written: int = 0

    def __bool__(self) -> bool:
        return bool(self.runs)

    def merged_with(self, later: "SharePartitionUpdate") -> "SharePartitionUpdate":
        """This update and a later one as one update."""
        start_offset = max(self.start_offset, later.start_offset)
        return SharePartitionUpdate(
            start_offset=start_offset,
            runs=_merge_runs(self.runs, later.runs, start_offset),
            dead_letters_written=max(self.dead_letters_written, later.dead_letters_written),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionState:
    """A share partition as it is persisted: everything below the start offset is done."""

    start_offset: int
    # Ascending, without overlap. Offsets in between are available and have delivery count 0.
    runs: tuple[StateRun, ...] = field(default=())
    # The producer id of the dead letters. With `dead_letters_written` as the sequence number, the log of the
    # dead-letter topic drops a dead letter that is written again after a crash.
    dead_letter_producer_id: int = 0
    dead_letters_written: int = 0

    @property
    def done_count(self) -> int:
        """Number of done offsets above the start offset."""
        return sum(
            run.last_offset - run.first_offset + 1 for run in self.runs if run.state in DONE_STATES
        )

    def truncated_at(self, log_end_offset: int) -> "SharePartitionState":
        """The state without offsets that the log does not have (any more)."""
        if self.start_offset <= log_end_offset and (
            not self.runs or self.runs[-1].last_offset < log_end_offset
        ):
            return self
        return replace(
            self,
            start_offset=min(self.start_offset, log_end_offset),
            runs=tuple(
                run._replace(last_offset=min(run.last_offset, log_end_offset - 1))
                for run in self.runs
                if run.first_offset < log_end_offset
            ),
        )

    def updated(self, update: SharePartitionUpdate) -> "SharePartitionState":
        """The state after an update. Never fails, whatever the update contains."""
        start_offset = max(self.start_offset, update.start_offset)
        return replace(
            self,
            start_offset=start_offset,
            runs=_merge_runs(self.runs, update.runs, start_offset),
            dead_letters_written=max(self.dead_letters_written, update.dead_letters_written),
        )


def _merge_runs(
    old: tuple[StateRun, ...], new: Iterable[StateRun], start_offset: int
) -> tuple[StateRun, ...]:
    """Old runs with new ones laid over them, cut at the start offset, equal neighbours joined."""
    newest = sorted(
        each for each in new if each.last_offset >= max(start_offset, each.first_offset)
    )
    result = old
    if newest:
        # Only the runs that new ones touch are built again: a share partition can have very many runs.
        low = newest[0].first_offset - 1
        high = max(each.last_offset for each in newest) + 1
        begin = bisect.bisect_left(old, low, key=_last_of)
        end = bisect.bisect_right(old, high, key=_first_of)
        touched = _cut_around(old[begin:end], newest)
        result = (*old[:begin], *joined_runs(sorted([*touched, *newest])), *old[end:])
    done = bisect.bisect_left(result, start_offset, key=_last_of)
    if done:
        result = result[done:]
    if result and result[0].first_offset < start_offset:
        result = (result[0]._replace(first_offset=start_offset), *result[1:])
    return result


def _cut_around(old: Iterable[StateRun], newest: list[StateRun]) -> Iterable[StateRun]:
    """The parts of old runs that no new run covers."""
    index = 0
    for run in old:
        first = run.first_offset
        while index < len(newest) and newest[index].last_offset < first:
            index += 1
        for over in newest[index:]:
            if over.first_offset > run.last_offset:
                break
            if over.first_offset > first:
                yield run._replace(first_offset=first, last_offset=over.first_offset - 1)
            first = max(first, over.last_offset + 1)
        if first <= run.last_offset:
            yield run._replace(first_offset=first)


def _first_of(run: StateRun) -> int:
    return run.first_offset


def _last_of(run: StateRun) -> int:
    return run.last_offset


def joined_runs(runs: Iterable[StateRun]) -> list[StateRun]:
    """Ascending runs with equal neighbours joined."""
    joined: list[StateRun] = []
    for run in runs:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.last_offset + 1 == run.first_offset
            and last.state == run.state
            and last.delivery_count == run.delivery_count
            and last.reason == run.reason
        ):
            joined[-1] = last._replace(last_offset=run.last_offset)
        else:
            joined.append(run)
    return joined

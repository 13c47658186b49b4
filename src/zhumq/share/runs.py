"""Runs of adjacent offsets with equal state: split where states begin to differ, joined where they are equal."""

import bisect
from collections.abc import Iterator

from zhumq.share.partition_state import DONE_STATES, RecordState


class Run:
    """Adjacent offsets with equal state, delivery count, member, deadline and reason."""

    __slots__ = ("count", "due_ms", "first", "last", "member", "reason", "state")

    def __init__(self, first: int, last: int, state: RecordState, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = ""  # the member that acquired it, when ACQUIRED
        # ACQUIRED: when the lock expires. AVAILABLE: when the backoff ends.
        self.due_ms = 0
        self.reason = ""  # of the last failure

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def tail_from(self, offset: int) -> "Run":
        """Cut the run in two and return the second part."""
        tail = Run(offset, self.last, self.state, self.count)
        tail.member, tail.due_ms, tail.reason = self.member, self.due_ms, self.reason
        self.last = offset - 1
        return tail

    def has_same_state(self, other: "Run") -> bool:
        if self.state is not other.state:
            return False
        return self.state in DONE_STATES or (
            self.count == other.count
            and self.member == other.member
            and self.due_ms == other.due_ms
            and self.reason == other.reason
        )


def _first_of(run: Run) -> int:
    return run.first


class Runs:
    """The offsets of a share partition from its start offset on, in runs."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        # Invariant: the runs cover start_offset to end_offset without hole or overlap.
        self._runs: list[Run] = []
        # Invariant: equal to the sums of the sizes of the runs in each state.
        self._sizes = dict.fromkeys(RecordState, 0)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: int) -> Run:
        return self._runs[index]

    @property
    def end_offset(self) -> int:
        return self._runs[-1].last + 1 if self._runs else self.start_offset

    def size_of(self, state: RecordState) -> int:
        """Number of offsets in this state."""
        return self._sizes[state]

    def append(self, first: int, last: int, state: RecordState, count: int) -> Run:
        assert first == self.end_offset, "a share partition has no holes"
        assert last >= first
        run = Run(first, last, state, count)
        self._runs.append(run)
        self._sizes[state] += run.size
        return run

    def set_state(self, run: Run, state: RecordState) -> None:
        size = run.size
        self._sizes[run.state] -= size
        self._sizes[state] += size
        run.state = state
        if state is not RecordState.ACQUIRED:
            run.member = ""

    def index_of(self, offset: int) -> int:
        """Index of the run that contains this offset, or of the next one."""
        index = bisect.bisect_right(self._runs, offset, key=_first_of) - 1
        return index if index >= 0 and self._runs[index].last >= offset else index + 1

    def cut_at(self, offset: int) -> int:
        """Split a run so that one begins at this offset, and return its index. Offsets outside split nothing."""
        index = self.index_of(offset)
        if index < len(self._runs) and self._runs[index].first < offset:
            index += 1
            self._runs.insert(index, self._runs[index - 1].tail_from(offset))
        return index

    def between(self, first: int, last: int) -> list[Run]:
        """The runs of exactly these offsets, split off longer ones."""
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        if first > last:
            return []
        begin = self.cut_at(first)
        end = self.cut_at(last + 1)
        return self._runs[begin:end]

    def drop_done(self) -> None:
        """Move the start offset over done runs."""
        runs = self._runs
        count = 0
        while count < len(runs) and runs[count].state in DONE_STATES:
            self._sizes[runs[count].state] -= runs[count].size
            self.start_offset = runs[count].last + 1
            count += 1
        if count:
            del runs[:count]

    def join(self, first: int, last: int) -> None:
        """Join the runs of these offsets with each other and their neighbours where their states are equal.

        The caller must not use a run afterwards: it may be part of another one.
        """
        runs = self._runs
        begin = max(self.index_of(first) - 1, 0)
        end = min(self.index_of(last) + 2, len(runs))
        if end - begin < 2:
            return
        joined: list[Run] = []
        for run in runs[begin:end]:
            if joined and joined[-1].has_same_state(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        if len(joined) < end - begin:
            runs[begin:end] = joined

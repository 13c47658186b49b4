"""The pending messages of a shard by due time: the next ones in memory, the others in sorted runs on disk."""

import heapq
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from zhumq.model.errors import BrokerError

# | due time i64 | serial i64 | offset i64 | end of its value, among the values of the run i64 |
ENTRY: Final = struct.Struct(">qqqq")
# In memory are twice as many entries as a new run has. The more there are on disk the longer it is, up to a limit: the number of
# runs grows with the logarithm first, and then by one for so many entries.
RUN_ENTRIES_MIN: Final = 2_048
RUN_ENTRIES_MAX: Final = 8_192
RUNS_GOAL: Final = 1_024
TAKE_STEPS_MAX: Final = 10_000  # entries that one call takes or drops
BLOCK_ENTRIES: Final = 32  # of a run, in memory
BLOCKS_ENTRIES_MAX: Final = 8_192  # of all runs: with more runs, a block is smaller
VALUE_BYTES_MAX: Final = 512  # A larger one is read from the log when it is due.
REMOVED: Final = -1  # in place of the offset


class Entry(NamedTuple):
    """A pending message, or that one is pending no more."""

    due_ms: int
    serial: int  # of the shard
    offset: int  # of the record that holds it, in the log of the shard; or REMOVED
    value: bytes = b""  # of that record; empty if it is large, or in what a scan finds


class Run(Protocol):
    """Sorted entries on disk, and their values in the same order."""

    def __len__(self) -> int: ...

    def read(self, first: int, count: int) -> bytes:
        """So many entries, from this one on. Raises BrokerError."""

    def read_values(self, start: int, end: int) -> bytes:
        """Raises BrokerError."""

    def delete(self) -> None: ...


class RunStore(Protocol):
    """Where runs are kept. They are derived from the shard's log: nothing is lost with them."""

    def write(self, entries: bytes, values: bytes) -> Run | None:
        """A new run; None if it cannot be written now."""


class _Cursor:
    """A run, and how much of it is taken. Messages come in the order of their due times, their records are in the order in
    which they were staged: without the values in the run, each would be a read somewhere else in the log."""

    __slots__ = ("_block", "_place", "_values", "_values_start", "run", "taken")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.taken = 0
        self._block: list[
            tuple[int, int, int, int]
        ] = []  # the next entries, and where their values end
        self._place = 0
        self._values_start = 0
        self._values: bytes | None = None  # of the block, once one of them is taken

    @property
    def in_memory(self) -> int:
        return len(self._block)

    def head(self, block_entries: int) -> Entry | None:
        """The next entry, without its value. So many are read at once."""
        if not self._block:
            self._block = self._read(self.taken, block_entries)
        return Entry(*self._block[self._place][:3]) if self._block else None

    def pop(self, block_entries: int) -> Entry:
        """Take the next entry, with its value. If the run cannot be read nothing has changed."""
        if not self._block:
            self._block = self._read(self.taken, block_entries)
        block, place, start = self._block, self._place, self._values_start
        due_ms, serial, offset, end = block[place]
        if self._values is None:
            self._values = self.run.read_values(start, block[-1][3])
        value = self._values[(block[place - 1][3] if place else start) - start : end - start]
        if place + 1 < len(block):
            self._place += 1
        else:
            self._block, self._place = self._read(self.taken + 1, block_entries), 0
            self._values_start, self._values = end, None
        self.taken += 1
        return Entry(due_ms, serial, offset, value)

    def _read(self, first: int, count: int) -> list[tuple[int, int, int, int]]:
        if first >= len(self.run):
            return []  # A read could fail when its last entry is taken already, and that would be lost.
        return list(ENTRY.iter_unpack(self.run.read(first, count)))


class DueIndex:
    """A log-structured merge of entries. An entry that is removed stays until its removal meets it at the front."""

    def __init__(
        self,
        store: RunStore,
        *,
        run_entries_min: int = RUN_ENTRIES_MIN,
        run_entries_max: int = RUN_ENTRIES_MAX,
    ) -> None:
        self._store = store
        self._run_entries_min = run_entries_min
        self._run_entries_max = run_entries_max
        self._memory: list[Entry] = []  # a heap
        self._fronts: list[tuple[Entry, int]] = []  # a heap: the first entry of each run
        self._cursors: dict[int, _Cursor] = {}
        self._next_run = 0
        self._spill_at = 2 * run_entries_min
        self.count = 0

    def another(self, run_entries_min: int) -> "DueIndex":
        """An empty index, whose runs are in the same store."""
        return DueIndex(
            self._store,
            run_entries_min=run_entries_min,
            run_entries_max=max(run_entries_min, self._run_entries_max),
        )

    @property
    def in_memory(self) -> int:
        return len(self._memory) + sum(each.in_memory for each in self._cursors.values())

    def add(self, entry: Entry) -> None:
        self.count += 1
        self._push(entry)

    def remove(self, due_ms: int, serial: int) -> None:
        """An entry that was added, or is added later, is pending no more."""
        self.count -= 1
        self._push(Entry(due_ms, serial, REMOVED))

    def next_due_ms(self) -> int | None:
        """When the first entry is due, or an earlier time."""
        first = self._peek()
        return None if first is None else first.due_ms

    def take(self, now_ms: int, limit: int) -> list[Entry]:
        """Take out entries that are due, the first ones first. There may be more, even if there are fewer than the limit:
        after a restart it takes several calls to get past those that ended."""
        taken: list[Entry] = []
        try:
            for _ in range(TAKE_STEPS_MAX):
                first = self._peek()
                if len(taken) == limit or first is None or first.due_ms > now_ms:
                    break
                first = self._pop()
                if first.offset == REMOVED:
                    self._drop_removed(first)
                else:
                    taken.append(first)
                    self.count -= 1
        except BrokerError:
            if not taken:
                raise
        return taken

    def scan(self, due_ms: int, serial: int) -> Iterator[Entry]:
        """The entries from this one on. The index must not change meanwhile."""
        start = Entry(due_ms, serial, REMOVED)
        sorted_memory = sorted(self._memory)
        parts: list[Iterator[Entry]] = [iter(sorted_memory[bisect_left(sorted_memory, start) :])]
        parts += [_scan_run(each, start) for each in self._cursors.values()]
        removed: Entry | None = None
        for entry in heapq.merge(*parts):
            if entry.offset == REMOVED:
                removed = entry
            elif removed is None or entry[:2] != removed[:2]:
                yield entry

    def close(self) -> None:
        """Delete the runs."""
        for each in self._cursors.values():
            each.run.delete()
        self._cursors.clear()
        self._fronts.clear()
        self._memory.clear()
        self.count = 0

    # The merge

    def _drop_removed(self, removal: Entry) -> None:
        """Drop what a removal is about, which compaction may have deleted already."""
        self.count += 1
        following = self._peek()
        while following is not None and following[:2] == removal[:2]:
            try:
                self._pop()
            except BrokerError:  # The removal waits for it, or the message would be delivered.
                self.remove(removal.due_ms, removal.serial)
                raise
            self.count += 1 if following.offset == REMOVED else -1
            following = self._peek()

    def _peek(self) -> Entry | None:
        if not self._fronts:
            return self._memory[0] if self._memory else None
        front = self._fronts[0][0]
        return min(self._memory[0], front) if self._memory else front

    def _pop(self) -> Entry:
        if not self._fronts or (self._memory and self._memory[0] < self._fronts[0][0]):
            return heapq.heappop(self._memory)
        number = self._fronts[0][1]
        cursor = self._cursors[number]
        block_entries = min(max(BLOCKS_ENTRIES_MAX // len(self._cursors), 1), BLOCK_ENTRIES)
        taken = cursor.pop(block_entries)
        following = cursor.head(block_entries)
        if following is None:
            heapq.heappop(self._fronts)
            del self._cursors[number]
            cursor.run.delete()
        else:
            heapq.heapreplace(self._fronts, (following, number))
        return taken

    # Runs

    def _push(self, entry: Entry) -> None:
        heapq.heappush(self._memory, entry)
        if len(self._memory) >= self._spill_at:
            self._spill()

    def _spill(self) -> None:
        """Write the later half of the entries in memory as a run."""
        self._memory = _without_pairs(sorted(self._memory))  # A sorted list is a heap.
        if len(self._memory) < self._run_entries_min:
            return
        half = len(self._memory) // 2
        later = self._memory[half:]
        ends = accumulate(len(each.value) for each in later)
        run = self._store.write(
            b"".join(ENTRY.pack(*each[:3], end) for each, end in zip(later, ends, strict=True)),
            b"".join(each.value for each in later),
        )
        if run is None:
            # They stay in memory: this is tried again after as many more.
            self._spill_at += self._run_entries_min
            return
        del self._memory[half:]
        self._cursors[self._next_run] = _Cursor(run)
        heapq.heappush(self._fronts, (later[0], self._next_run))
        self._next_run += 1
        on_disk = sum(len(each.run) - each.taken for each in self._cursors.values())
        longer = min(on_disk // RUNS_GOAL, self._run_entries_max)
        self._spill_at = 2 * max(self._run_entries_min, longer)


def _without_pairs(entries: list[Entry]) -> list[Entry]:
    """Sorted entries without those that were added and removed."""
    kept: list[Entry] = []
    for entry in entries:
        if kept and kept[-1].offset == REMOVED and kept[-1][:2] == entry[:2]:
            kept.pop()
        else:
            kept.append(entry)
    return kept


def _entries_in(data: bytes) -> list[Entry]:
    return [Entry(*each[:3]) for each in ENTRY.iter_unpack(data)]


def _scan_run(cursor: _Cursor, start: Entry) -> Iterator[Entry]:
    run = cursor.run
    low, high = cursor.taken, len(run)
    while low < high:
        middle = (low + high) // 2
        if _entries_in(run.read(middle, 1))[0] < start:
            low = middle + 1
        else:
            high = middle
    while low < len(run):
        block: Sequence[Entry] = _entries_in(run.read(low, BLOCK_ENTRIES))
        yield from block
        low += len(block)

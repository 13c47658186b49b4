"""A log in memory with a flushed and an unflushed part, for simulations of the consensus cores."""

from typing import NamedTuple

from zhumq.storage.leader_epochs import LeaderEpochs


class Entry(NamedTuple):
    """One record. Producer -1 is a send without sequence."""

    epoch: int
    producer: int
    sequence: int


class SimulatedLog:
    """One partition's log on a broker's disk and in its page cache. Implements LogView."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.flushed_offset = 0
        # A bit flipped at this offset: nothing from here on can be read.
        self.damaged_from: int | None = None
        self._entries: list[Entry] = []
        self._epochs = LeaderEpochs()
        # The (sequence, offset) pairs of each producer, without gaps.
        self._written: dict[int, list[tuple[int, int]]] = {}
        # What a truncation removed from the disk; a crash before the next flush brings it back.
        self._cut_tail: list[Entry] | None = None
        # The lowest truncation since the last flush began: the flush does not cover later appends there.
        self._cut_since_flush: int | None = None

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self._entries)

    def epoch_of(self, offset: int) -> int:
        return self._epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def entry(self, offset: int) -> Entry:
        return self._entries[offset - self.log_start_offset]

    def read(self, offset: int, up_to_offset: int) -> tuple[Entry, ...]:
        """The entries of a range up to the damage, if there is any."""
        if self.damaged_from is not None:
            up_to_offset = min(up_to_offset, self.damaged_from)
        start = self.log_start_offset
        return tuple(self._entries[max(offset - start, 0) : max(up_to_offset - start, 0)])

    def holds(self, offset: int, entry: Entry) -> bool:
        """Whether exactly this entry is on the disk; entries deleted by retention count as held."""
        if offset < self.log_start_offset:
            return True
        return offset < self.flushed_offset and self.entry(offset) == entry

    def written_at(self, producer: int, sequence: int) -> int | None:
        written = self._written.get(producer)
        if not written or not written[0][0] <= sequence <= written[-1][0]:
            return None
        return written[sequence - written[0][0]][1]

    def next_sequence(self, producer: int) -> int:
        written = self._written.get(producer)
        return written[-1][0] + 1 if written else 0

    def append(self, entry: Entry) -> None:
        offset = self.log_end_offset
        if entry.epoch > self._epochs.latest_epoch:
            self._epochs.assign(entry.epoch, offset)
        self._entries.append(entry)
        if entry.producer >= 0:
            self._written.setdefault(entry.producer, []).append((entry.sequence, offset))

    def begin_flush(self) -> int:
        self._cut_since_flush = None
        return self.log_end_offset

    def flush(self, end_offset: int) -> None:
        """Complete a flush: appends and truncations from before it began are on the disk."""
        if self._cut_since_flush is None:
            self._cut_tail = None
        else:
            end_offset = min(end_offset, self._cut_since_flush)
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        if offset < self.flushed_offset and self._cut_tail is None:
            # Only flushed entries can come back: those from before the first of several truncations.
            self._cut_tail = list(self.read_all(0, self.flushed_offset))
        lowest = self._cut_since_flush
        self._cut_since_flush = offset if lowest is None else min(lowest, offset)
        self._drop_from(offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        if self.damaged_from is not None and self.damaged_from >= offset:
            self.damaged_from = None
            # A crash does not repair a log that was truncated because of damage.
            self._cut_tail = None

    def start_over_at(self, offset: int) -> None:
        self._drop_from(self.log_start_offset)
        self._written.clear()
        self.log_start_offset = offset
        self.flushed_offset = offset
        self._cut_since_flush = offset
        self.damaged_from = None
        self._cut_tail = None

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.start_over_at(0)

    def delete_before(self, offset: int) -> None:
        """Retention: drop the oldest entries."""
        if offset <= self.log_start_offset or self.damaged_from is not None:
            return
        if self._cut_tail is not None:
            return
        del self._entries[: offset - self.log_start_offset]
        self.log_start_offset = offset
        self._epochs.truncate_start(offset)

    def crash(self, keep: int, *, undo_cut: bool = False) -> None:
        """Lose unflushed entries from `keep` on (recovery truncates a torn record); or undo a truncation
        that was not flushed."""
        if undo_cut and self._cut_tail is not None:
            tail = self._cut_tail
            self._drop_from(self.log_start_offset)
            for entry in tail:
                self.append(entry)
        else:
            self._drop_from(max(keep, self.flushed_offset))
        self._cut_tail = None
        # Everything that recovery reads is on the disk.
        self.flushed_offset = self.log_end_offset

    def read_all(self, offset: int, up_to_offset: int) -> tuple[Entry, ...]:
        start = self.log_start_offset
        return tuple(self._entries[max(offset - start, 0) : max(up_to_offset - start, 0)])

    def _drop_from(self, offset: int) -> None:
        keep = max(offset - self.log_start_offset, 0)
        for entry in reversed(self._entries[keep:]):
            if entry.producer >= 0:
                self._written[entry.producer].pop()
        del self._entries[keep:]
        self._epochs.truncate_end(max(offset, self.log_start_offset))

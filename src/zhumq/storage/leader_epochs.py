"""The start offset of each leader epoch: replicas find by it where their logs diverge."""

from bisect import bisect_right
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    """The first offset written in an epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of a log, oldest first."""

    __slots__ = ("_entries", "latest_epoch")

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        # Invariant: epochs and start offsets grow strictly.
        self._entries: list[EpochStart] = []
        self.latest_epoch = UNDEFINED_EPOCH
        for entry in entries or ():
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch that begins at this offset. True if it was not known.

        Drops entries with the same or a later start offset: that part of the log was overwritten.
        """
        if epoch <= self.latest_epoch or epoch < 0:
            return False
        while self._entries and self._entries[-1].start_offset >= start_offset:
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))
        self.latest_epoch = epoch
        return True

    def epoch_of(self, offset: int) -> int:
        """The epoch in which this offset was written."""
        place = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[place - 1].epoch if place else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """The largest known epoch not above this one, and the offset where it ends.

        KIP-101, KIP-279: a follower truncates to that offset; -1 means unknown.
        """
        if epoch == self.latest_epoch and epoch != UNDEFINED_EPOCH:
            return EpochStart(epoch, log_end_offset)
        place = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if epoch == UNDEFINED_EPOCH or place == len(self._entries):
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if place == 0:
            # All known epochs are later: the requested one ended where the first of them begins.
            return EpochStart(epoch, self._entries[0].start_offset)
        return EpochStart(self._entries[place - 1].epoch, self._entries[place].start_offset)

    def truncate_end(self, end_offset: int) -> bool:
        """Remove epochs that begin at or after this offset. True if there were any."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        return len(self._entries) != before

    def truncate_start(self, start_offset: int) -> bool:
        """Remove what lies before this offset; the epoch of this offset now begins there."""
        place = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if place == 0 or self._entries[place - 1].start_offset == start_offset == 0:
            return False
        first = EpochStart(self._entries[place - 1].epoch, start_offset)
        if place == 1 and self._entries[0] == first:
            return False
        self._entries[:place] = [first]
        return True

    def clear(self) -> None:
        """Remove all epochs."""
        self._entries.clear()
        self.latest_epoch = UNDEFINED_EPOCH

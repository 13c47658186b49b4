"""A simple model of a share partition, with one entry for every offset; the real one is compared with it."""

from dataclasses import dataclass, field
from random import Random

from zhumq.share.acknowledgement import AckKind
from zhumq.share.partition_state import DONE_STATES, RecordState
from zhumq.share.share_partition import Span


@dataclass
class Entry:
    """State of one offset."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    due_ms: int = 0


@dataclass
class ModelSharePartition:
    """The delivery rules, offset by offset, without regard to speed."""

    max_deliveries: int
    in_flight_max: int
    lock_ms: int
    backoff_ms: int
    is_ordered: bool
    start: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def in_flight(self) -> int:
        return sum(entry.state is not RecordState.ARCHIVED for entry in self.entries.values())

    def held(self, member: str | None = None) -> list[int]:
        return [
            offset
            for offset, entry in sorted(self.entries.items())
            if entry.state is RecordState.ACQUIRED and member in (None, entry.member)
        ]

    def next_fetch_offset(self, now_ms: int, from_offset: int) -> int | None:
        waiting = [
            (offset, entry.due_ms)
            for offset, entry in sorted(self.entries.items())
            if entry.state is RecordState.AVAILABLE
        ]
        if self.is_ordered and waiting:
            offset, due_ms = waiting[0]
            return offset if due_ms <= now_ms and offset >= from_offset else None
        for offset, due_ms in waiting:
            if due_ms <= now_ms and offset >= from_offset:
                return offset
        if from_offset > self.end or self.in_flight >= self.in_flight_max:
            return None
        return self.end

    def acquire(
        self, member: str, spans: list[Span], from_offset: int, records_max: int, now_ms: int
    ) -> list[int]:
        with_records = {
            offset
            for span in spans
            if span.has_records
            for offset in range(span.first_offset, span.last_offset + 1)
        }
        last = spans[-1].last_offset
        taken: list[int] = []
        for offset in range(from_offset, last + 1):
            entry = self.entries.get(offset)
            is_free = entry is not None and entry.state is RecordState.AVAILABLE
            if is_free and offset not in with_records:
                self.entries[offset].state = RecordState.ARCHIVED
        for offset in range(max(from_offset, self.start), last + 1):
            if len(taken) >= records_max:
                break
            entry = self.entries.get(offset)
            if entry is None:
                if self.is_ordered and self._has(RecordState.AVAILABLE):
                    break
                self._drop_done()
                assert offset == self.end
                if offset not in with_records:
                    self.entries[offset] = Entry(RecordState.ARCHIVED)
                    continue
                if self.in_flight >= self.in_flight_max:
                    break
                self.entries[offset] = Entry(RecordState.ACQUIRED, 0)
                taken.append(offset)
            elif entry.state is RecordState.AVAILABLE:
                if entry.due_ms <= now_ms:
                    entry.state = RecordState.ACQUIRED
                    taken.append(offset)
                elif self.is_ordered:
                    break
        for offset in taken:
            entry = self.entries[offset]
            entry.count += 1
            entry.member, entry.due_ms = member, now_ms + self.lock_ms
        self._drop_done()
        return taken

    def acknowledge(self, member: str, offsets: range, kind: AckKind, now_ms: int) -> bool:
        entries = [self.entries.get(offset) for offset in offsets]
        if not entries or any(
            entry is None or entry.state is not RecordState.ACQUIRED or entry.member != member
            for entry in entries
        ):
            return False
        for offset in offsets:
            entry = self.entries[offset]
            match kind:
                case AckKind.ACCEPT:
                    entry.state = RecordState.ACKNOWLEDGED
                case AckKind.GAP:
                    entry.state = RecordState.ARCHIVED
                case AckKind.REJECT:
                    entry.state = RecordState.ARCHIVING
                case AckKind.RENEW:
                    entry.due_ms = now_ms + self.lock_ms
                case AckKind.RELEASE:
                    self._release(entry, now_ms)
        if kind is AckKind.RELEASE:
            self._release_after(offsets[-1])
        self._drop_done()
        return True

    def expire(self, now_ms: int) -> None:
        expired = [each for each in self.held() if self.entries[each].due_ms <= now_ms]
        for offset in expired[:1] if self.is_ordered else expired:
            self._release(self.entries[offset], now_ms)
        if expired:
            self._release_after(expired[0])

    def release_member(self, member: str, now_ms: int, *, counts: bool) -> None:
        for offset in self.held(member):
            entry = self.entries[offset]
            if counts:
                self._release(entry, now_ms, at_once=True)
            else:
                entry.state, entry.count, entry.due_ms = RecordState.AVAILABLE, entry.count - 1, 0

    def restart(self, draw: Random) -> None:
        """A crash after which every decision is durable: only the acquisition locks are lost."""
        del draw
        for entry in self.entries.values():
            entry.due_ms = 0
            if entry.state is RecordState.ACQUIRED:
                entry.state = RecordState.AVAILABLE

    def _release(self, entry: Entry, now_ms: int, *, at_once: bool = False) -> None:
        if entry.count >= self.max_deliveries:
            entry.state = RecordState.ARCHIVING
            return
        entry.state = RecordState.AVAILABLE
        wait_ms = 0 if at_once or not self.backoff_ms else self.backoff_ms << (entry.count - 1)
        entry.due_ms = now_ms + wait_ms if wait_ms else 0

    def _release_after(self, offset: int) -> None:
        if self.is_ordered:
            for later in self.held():
                if later > offset:
                    entry = self.entries[later]
                    entry.state, entry.count, entry.due_ms = (
                        RecordState.AVAILABLE,
                        entry.count - 1,
                        0,
                    )

    def _has(self, state: RecordState) -> bool:
        return any(entry.state is state for entry in self.entries.values())

    def _drop_done(self) -> None:
        while self.start in self.entries and self.entries[self.start].state in DONE_STATES:
            del self.entries[self.start]
            self.start += 1

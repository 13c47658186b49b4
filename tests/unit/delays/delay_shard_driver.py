"""A shard of delayed messages with a log in memory, for tests that call it by hand and crash it."""

import uuid

from zhumq.delays.due_index import ENTRY, DueIndex, Entry
from zhumq.delays.persisted import MessageKey, Position, Source
from zhumq.delays.requests import (
    Cancel,
    DelayRequest,
    DelayResponse,
    Due,
    Ended,
    MarkMoved,
    Scan,
    Scanned,
    Stage,
    Staged,
    TakeDue,
)
from zhumq.delays.shard import DelayShard
from zhumq.model.errors import StorageFailed
from zhumq.model.state_machine import Outcome, Producer, ReplyToken, StateRecord
from zhumq.protocol.messages.delays import DelayedRecord

SOURCE = Source(uuid.UUID(int=7), 0)
START_MS = 1_700_000_000_000


class MemoryRun:
    """A `Run` in memory."""

    def __init__(self, entries: bytes, values: bytes) -> None:
        self._entries = entries
        self._values = values
        self.is_deleted = False
        self.readable = 1 << 30  # so many reads, then it fails

    def __len__(self) -> int:
        return len(self._entries) // ENTRY.size

    def read(self, first: int, count: int) -> bytes:
        self._check()
        return self._entries[first * ENTRY.size : (first + count) * ENTRY.size]

    def read_values(self, start: int, end: int) -> bytes:
        self._check()
        return self._values[start:end]

    def _check(self) -> None:
        assert not self.is_deleted
        self.readable -= 1
        if self.readable < 0:
            raise StorageFailed("the run cannot be read")

    def delete(self) -> None:
        self.is_deleted = True


class MemoryRuns:
    """A `RunStore` in memory, which can be full."""

    def __init__(self) -> None:
        self.runs: list[MemoryRun] = []
        self.is_full = False

    def write(self, entries: bytes, values: bytes) -> MemoryRun | None:
        if self.is_full:
            return None
        self.runs.append(MemoryRun(entries, values))
        return self.runs[-1]

    @property
    def left(self) -> int:
        return sum(not each.is_deleted for each in self.runs)


# A record, or a producer's record in a transaction, or the end of a transaction.
Logged = tuple[int | None, StateRecord | bool]


class DrivenDelayShard:
    """Does what the runtime does, without waiting for a disk."""

    def __init__(self, *, run_entries_min: int = 4) -> None:
        self._run_entries_min = run_entries_min
        self.log: list[Logged] = []
        self.now_ms = START_MS
        self._next_token = 0
        self.shard = self._new_shard()

    def _new_shard(self) -> DelayShard:
        self.runs = MemoryRuns()
        return DelayShard(DueIndex(self.runs, run_entries_min=self._run_entries_min))

    def ask(self, request: DelayRequest) -> DelayResponse:
        token = ReplyToken(self._next_token)
        self._next_token += 1
        outcome: Outcome[DelayResponse] = self.shard.handle(request, token, self.now_ms)
        for record in outcome.records:
            producer = outcome.producer
            self._write(None if producer is None else producer.producer_id, record)
        ((answered, response),) = ((each.token, each.response) for each in outcome.replies)
        assert answered == token
        return response

    def _write(self, producer_id: int | None, entry: StateRecord | bool) -> None:
        self.log.append((producer_id, entry))
        self._replay(producer_id, entry, len(self.log) - 1)

    def _replay(self, producer_id: int | None, entry: StateRecord | bool, offset: int) -> None:
        if isinstance(entry, bool):
            assert producer_id is not None
            self.shard.end_transaction(producer_id, self.now_ms, is_commit=entry)
            return
        placed = StateRecord(key=entry.key, value=entry.value, offset=offset)
        if producer_id is None:
            self.shard.replay(placed, self.now_ms)
        else:
            self.shard.replay_pending(producer_id, placed, self.now_ms)

    def crash(self) -> None:
        """A new shard on the same log."""
        self.shard.unloaded()
        self.shard = self._new_shard()
        for offset, (producer_id, entry) in enumerate(self.log):
            self._replay(producer_id, entry, offset)

    def compact(self) -> None:
        """Drop the records that later ones of the same key replace, unless those are of an aborted or open transaction.
        Offsets stay."""
        latest: dict[bytes, int] = {}
        undecided: dict[int, dict[bytes, int]] = {}
        for offset, (producer_id, entry) in enumerate(self.log):
            if isinstance(entry, bool):
                written = undecided.pop(producer_id or 0, {})
                latest.update(written if entry else {})
            elif producer_id is None:
                latest[entry.key] = offset
            else:
                undecided.setdefault(producer_id, {})[entry.key] = offset
        for offset, (producer_id, entry) in enumerate(self.log):
            if isinstance(entry, StateRecord) and latest.get(entry.key, -1) > offset:
                self.log[offset] = producer_id, StateRecord(key=b"", value=None)

    # Requests

    def stage(self, begins: Position | None, until: Position, *delays_ms: int) -> Position:
        records = tuple(
            DelayedRecord(due_ms=START_MS + delay_ms, offset=number, value=b"v", headers=[])
            for number, delay_ms in enumerate(delays_ms)
        )
        answer = self.ask(
            Stage(source=SOURCE, topic="orders", begins=begins, until=until, records=records)
        )
        assert isinstance(answer, Staged)
        return answer.position

    def fill(self, *delays_ms: int) -> None:
        """Stage messages behind those that there are."""
        begins = self.stage(None, Position(0))
        until = Position(begins.offset + len(delays_ms))
        assert self.stage(begins, until, *delays_ms) == until

    def take(self, at_ms: int) -> list[int]:
        """The delays of the messages that are handed out."""
        return [each.due_ms - START_MS for each in self.take_entries(at_ms)]

    def take_entries(self, at_ms: int) -> tuple[Entry, ...]:
        self.now_ms = START_MS + at_ms
        answer = self.ask(TakeDue(now_ms=self.now_ms))
        assert isinstance(answer, Due)
        return answer.entries

    def mark(self, entries: tuple[Entry, ...], producer_id: int = 1) -> Ended:
        keys = tuple(MessageKey(each.due_ms, each.serial) for each in entries)
        answer = self.ask(MarkMoved(keys=keys, producer=Producer(producer_id, 0)))
        assert isinstance(answer, Ended)
        return answer

    def end(self, *, is_commit: bool, producer_id: int = 1) -> None:
        self._write(producer_id, is_commit)

    def pending(self) -> list[int]:
        """The delays of all messages in the index."""
        answer = self.ask(Scan(after=MessageKey(-1, -1), limit=1_000_000))
        assert isinstance(answer, Scanned)
        return [each.due_ms - START_MS for each in answer.entries]

    def cancel(self, *entries: Entry) -> int:
        keys = tuple(MessageKey(each.due_ms, each.serial) for each in entries)
        answer = self.ask(Cancel(keys=keys, now_ms=self.now_ms))
        assert isinstance(answer, Ended)
        return len(answer.keys)

    def entries(self) -> tuple[Entry, ...]:
        answer = self.ask(Scan(after=MessageKey(-1, -1), limit=1_000_000))
        assert isinstance(answer, Scanned)
        return answer.entries

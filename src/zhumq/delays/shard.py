"""One shard: the pending messages of one partition of `__delayed_messages`. Requests in, records and replies out."""

import heapq
from itertools import islice
from typing import Final, assert_never

from zhumq.delays.due_index import VALUE_BYTES_MAX, DueIndex, Entry
from zhumq.delays.held import HeldMessages
from zhumq.delays.persisted import (
    MessageKey,
    Position,
    Source,
    decode_key,
    decode_position,
    ended_record,
    intake_record,
    message_record,
)
from zhumq.delays.requests import (
    NOWHERE,
    Cancel,
    DelayRequest,
    DelayResponse,
    Drop,
    Due,
    Ended,
    MarkMoved,
    Scan,
    Scanned,
    Stage,
    Staged,
    TakeDue,
)
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord

TAKEN_MAX: Final = 1_000  # messages in one answer to TakeDue
RESUMED_MAX: Final = TAKEN_MAX // 2  # of those that waited for a partition: others have to get on


class DelayShard:
    """The delayed messages of the partitions that map to one shard.

    Its hard state is the record of each message until it ends, and up to where each partition is staged. It knows of a message
    when it is due, and where its record is; the index keeps most of that on disk. The broker that leads the shard takes the
    messages that are due, and marks them in the transaction that writes them into their topics: until the marker comes they
    are neither pending nor ended.
    """

    def __init__(self, index: DueIndex) -> None:
        self.index = index
        self._positions: dict[Source, Position] = {}
        self._next_serial = 0
        self._held = HeldMessages(index.another)
        # Taken out of the index, and not ended; and for what those of them had waited that had.
        self._taken: dict[int, Entry] = {}
        self._resumed: dict[int, TopicPartition] = {}
        # Marks of open transactions, by producer.
        self._marks: dict[int, list[MessageKey]] = {}
        self._marked: set[int] = set()
        self._horizon_ms = -1  # Messages that were due up to here were taken.

    @property
    def pending(self) -> int:
        """How many messages are not ended. Too few after a restart, until those are passed that ended before."""
        return max(self.index.count + self._held.count + len(self._taken), 0)

    @property
    def in_memory(self) -> int:
        """How many entries are not on disk."""
        return self.index.in_memory + self._held.in_memory

    @property
    def next_due_ms(self) -> int | None:
        """When the first message that is not taken was or is due, or an earlier time."""
        times = (self.index.next_due_ms(), self._held.next_due_ms())
        return min((each for each in times if each is not None), default=None)

    # The StateMachine interface

    @property
    def next_deadline_ms(self) -> int | None:
        """None: due times are wall clock times, and the broker that moves messages watches that clock."""
        return None

    def loaded(self, _now_ms: int) -> Outcome[DelayResponse]:
        return Outcome()

    def expire(self, _now_ms: int) -> Outcome[DelayResponse]:
        return Outcome()

    def unloaded(self) -> None:
        """The shard is not used any more."""
        self.index.close()
        self._held.close()

    def handle(
        self, request: DelayRequest, token: ReplyToken, _now_ms: int
    ) -> Outcome[DelayResponse]:
        match request:
            case Stage():
                return self._stage(request, token)
            case TakeDue():
                return _answer(token, self._take_due(request))
            case MarkMoved():
                return self._mark_moved(request, token)
            case Drop():
                return self._drop(request, token)
            case Cancel():
                return self._cancel(request, token)
            case Scan():
                return _answer(token, self._scan(request))
            case _:
                assert_never(request)

    def replay(self, record: StateRecord, _now_ms: int) -> None:
        key = decode_key(record.key)
        match key:
            case None:
                return
            case Source():
                position = None if record.value is None else decode_position(record.value)
                if position is not None:
                    self._positions[key] = position
            case MessageKey():
                self._next_serial = max(self._next_serial, key.serial + 1)
                if record.value is not None:
                    value = record.value if len(record.value) <= VALUE_BYTES_MAX else b""
                    self.index.add(Entry(key.due_ms, key.serial, record.offset, value))
                else:
                    self._end(key)
            case _:
                assert_never(key)

    def replay_pending(self, producer_id: int, record: StateRecord, _now_ms: int) -> None:
        key = decode_key(record.key)
        if isinstance(key, MessageKey):
            self._marks.setdefault(producer_id, []).append(key)
            self._marked.add(key.serial)

    def end_transaction(self, producer_id: int, _now_ms: int, *, is_commit: bool) -> None:
        for key in self._marks.pop(producer_id, ()):
            self._marked.discard(key.serial)
            if is_commit:
                self._end(key)
        # Of an aborted one: they are still taken, and the next TakeDue puts them back.

    def _end(self, key: MessageKey) -> None:
        self._resumed.pop(key.serial, None)
        if self._taken.pop(key.serial, None) is None:
            self.index.remove(key.due_ms, key.serial)

    # Staging

    def _stage(self, request: Stage, token: ReplyToken) -> Outcome[DelayResponse]:
        known = self._positions.get(request.source)
        if request.begins is None and known is not None:
            return _answer(token, Staged(position=known))
        if request.begins is not None and request.begins != known:
            # Another leader, or an earlier request whose answer was lost, came first.
            return _answer(token, Staged(position=known or NOWHERE))
        records = [
            message_record(serial, request.topic, request.source, request.now_ms, each)
            for serial, each in enumerate(request.records, self._next_serial)
        ]
        # Behind the messages: a log that is cut off in between stages them again, under the same serials.
        records.append(intake_record(request.source, request.until))
        return _answer(token, Staged(position=request.until), *records)

    # Moving

    def _take_due(self, request: TakeDue) -> Due:
        if self._marks and not request.marks_count:
            return Due(is_marked=True)
        self._put_back(request)
        resumed = self._held.take(request.avoided, RESUMED_MAX)
        self._taken.update((entry.serial, entry) for _, entry in resumed)
        self._resumed.update((entry.serial, partition) for partition, entry in resumed)
        taken = self.index.take(request.now_ms, TAKEN_MAX - len(resumed))
        self._taken.update((each.serial, each) for each in taken)
        if taken:
            self._horizon_ms = max(self._horizon_ms, taken[-1].due_ms)
        return Due(
            entries=tuple(taken),
            resumed=tuple(resumed),
            held=self._held.partitions,
            next_due_ms=self.index.next_due_ms(),
        )

    def _put_back(self, request: TakeDue) -> None:
        """Each to where it keeps its place in the order of its partition."""
        for serial, entry in list(self._taken.items()):
            if serial in self._marked:
                continue
            del self._taken[serial]
            waited_for = self._resumed.pop(serial, None)
            again_ms = request.put_off.get(serial)
            if again_ms is not None:
                # Without its value: the message has the due time of its record, not this one.
                self.index.add(Entry(again_ms, serial, entry.offset))
                continue
            waits_for = request.held.get(serial, waited_for)
            if waits_for is not None:
                self._held.add(waits_for, entry)
            else:
                self.index.add(entry)

    def _mark_moved(self, request: MarkMoved, token: ReplyToken) -> Outcome[DelayResponse]:
        if not all(self._is_taken(key) for key in request.keys):
            return _answer(token, Ended(code=ErrorCode.INVALID_REQUEST))
        return Outcome(
            records=tuple(ended_record(key) for key in request.keys),
            replies=(Reply(token, Ended(keys=request.keys)),),
            producer=request.producer,
        )

    def _drop(self, request: Drop, token: ReplyToken) -> Outcome[DelayResponse]:
        if not self._is_taken(request.key):
            return _answer(token, Ended(code=ErrorCode.INVALID_REQUEST))
        return _answer(token, Ended(keys=(request.key,)), ended_record(request.key))

    def _is_taken(self, key: MessageKey) -> bool:
        """Whether the message was handed out, and is in no transaction that may be committed."""
        return key.serial in self._taken and key.serial not in self._marked

    # Lists

    def _scan(self, request: Scan) -> Scanned:
        start = request.after.due_ms, request.after.serial + 1
        both = heapq.merge(self.index.scan(*start), self._held.scan(*start))
        found = tuple(islice(both, request.limit + 1))
        return Scanned(
            entries=found[: request.limit],
            has_more=len(found) > request.limit,
            pending=self.pending,
        )

    def _cancel(self, request: Cancel, token: ReplyToken) -> Outcome[DelayResponse]:
        """Only what is not due yet. The caller has just scanned them, and sends one request at a time."""
        begun_ms = max(self._horizon_ms, request.now_ms)
        keys = tuple(key for key in request.keys if key.due_ms > begun_ms)
        return _answer(token, Ended(keys=keys), *(ended_record(key) for key in keys))


def _answer(
    token: ReplyToken, response: DelayResponse, *records: StateRecord
) -> Outcome[DelayResponse]:
    return Outcome(records=records, replies=(Reply(token, response),))

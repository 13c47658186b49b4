"""Moves delayed messages that are due into their topics, for the shards that this broker leads."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.broker_transactions import BrokerTransactions
from zhumq.coordinators.delay_service import DelayRuntime, DelayService, read_message
from zhumq.coordinators.mover import mover_of, size_of
from zhumq.coordinators.shard_loops import ShardLoops
from zhumq.coordinators.shard_moves import MOVED_BYTES_MAX, ShardMoves, Taken, first_bytes
from zhumq.coordinators.staged_reader import StagedReader
from zhumq.delays.due_index import Entry
from zhumq.delays.headers import delivered_headers
from zhumq.delays.persisted import MessageKey, decode_message
from zhumq.delays.requests import Drop, Due, Ended, MarkMoved, TakeDue
from zhumq.host.clock import Clock
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import DELAYED_MESSAGES_TOPIC, ZERO_UUID, TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.records.batch import Record, RecordHeader
from zhumq.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

# The wall clock may be set forward while nothing is due: it is looked at this often.
CLOCK_SECONDS_MAX: Final = 0.5
REFUSED_MS: Final = 30_000  # until a message that its topic refuses is tried again
LATE_MS: Final = 1_000
NOWHERE: Final = TopicPartition("", -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueMessage:
    """A delayed message on its way."""

    key: MessageKey
    target: TopicPartition
    topic_id: uuid.UUID
    offset: int  # in the answer to its producer


class DelayMover:
    """One loop for each shard that this broker leads."""

    def __init__(
        self,
        runtime: DelayRuntime,
        service: DelayService,
        transactions: BrokerTransactions,
        store: MetadataStore,
        replicas: ReplicaManager,
        clock: Clock,
        *,
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._service = service
        self._transactions = transactions
        self._store = store
        self._clock = clock
        self._timeout_ms = timeout_ms
        self.delivered_total = 0
        self.late_total = 0  # by more than LATE_MS
        self.lateness_ms_total = 0
        self.dropped_total = 0
        self._loops = ShardLoops(
            replicas, DELAYED_MESSAGES_TOPIC, self._run, name="delayed-message-moves"
        )

    async def close(self) -> None:
        await self._loops.close()

    async def _run(self, index: int, _leader_epoch: int) -> None:
        staged = StagedDelays(self._runtime, self._service, self._clock, index, self._on_dropped)
        staging = TopicPartition(DELAYED_MESSAGES_TOPIC, index)
        mover = mover_of(staging, self._transactions, self._timeout_ms)
        await ShardMoves(staged, mover, self._exists, self._on_moved).run()

    def _exists(self, message: DueMessage) -> bool:
        topic = self._store.image.topics.get(message.target.topic)
        return (
            topic is not None
            and topic.topic_id == message.topic_id
            and message.target.partition < len(topic.partitions)
        )

    def _on_moved(self, messages: Sequence[DueMessage]) -> None:
        now_ms = self._clock.now_ms()
        self.delivered_total += len(messages)
        for message in messages:
            late_ms = max(now_ms - message.key.due_ms, 0)
            self.lateness_ms_total += late_ms
            self.late_total += late_ms > LATE_MS

    def _on_dropped(self) -> None:
        self.dropped_total += 1


class StagedDelays:
    """The `StagedMessages` of one shard."""

    def __init__(
        self,
        runtime: DelayRuntime,
        service: DelayService,
        clock: Clock,
        index: int,
        on_dropped: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._service = service
        self._clock = clock
        self._index = index
        self._on_dropped = on_dropped
        # Of the messages that were taken last: when those are tried again that were refused, and for what others wait.
        self._put_off: dict[int, int] = {}
        self._held: dict[int, TopicPartition] = {}
        self._has_asked = False
        self.name = f"delayed messages of shard {index}"

    async def take(
        self, avoided: Mapping[TopicPartition, float], seconds: float | None
    ) -> Taken[DueMessage] | None:
        woken = self._service.woken(self._index)
        woken.clear()
        request = TakeDue(
            now_ms=self._clock.now_ms(),
            put_off=self._put_off,
            held=self._held,
            avoided=frozenset(avoided),
            # The first answer says whether an earlier leader has left some, which are ended then. Later ones are of
            # the last transaction from here, which is not asked for more until it is known to be committed.
            marks_count=self._has_asked,
        )
        self._put_off, self._held = {}, {}
        due = await self._runtime.submit(self._index, request)
        assert isinstance(due, Due)
        self._has_asked |= due.code is ErrorCode.NONE
        if due.entries or due.resumed or due.is_marked or due.code is not ErrorCode.NONE:
            return Taken(self._records_of(due, avoided), due.code, due.is_marked)
        wait = CLOCK_SECONDS_MAX if seconds is None else min(seconds, CLOCK_SECONDS_MAX)
        if due.next_due_ms is not None:
            wait = min(wait, max(due.next_due_ms - self._clock.now_ms(), 1) / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await woken.wait()
        return None

    def _records_of(
        self, due: Due, avoided: Mapping[TopicPartition, float]
    ) -> list[tuple[DueMessage, Record | None]]:
        """What one transaction takes, in the order of the due times. Those that may not overtake others are held."""
        resumed = first_bytes(
            self._read([entry for _, entry in due.resumed]),
            MOVED_BYTES_MAX // 2 if due.entries else MOVED_BYTES_MAX,
        )
        waiting = due.held.union(avoided)
        if len(resumed) < len(due.resumed):  # The rest of them goes first.
            waiting = waiting.union(partition for partition, _ in due.resumed)
        found: list[tuple[DueMessage, Record | None]] = []
        for message, record in self._read(due.entries):
            if message.target in waiting:
                self._held[message.key.serial] = message.target
            else:
                found.append((message, record))
        left = MOVED_BYTES_MAX - sum(size_of(each) for _, each in resumed if each is not None)
        moved = [*resumed, *first_bytes(found, left)] if found else resumed
        return sorted(moved, key=lambda each: each[0].key)

    def _read(self, entries: Sequence[Entry]) -> list[tuple[DueMessage, Record | None]]:
        """The messages in the order of their due times."""
        if not entries:
            return []
        reader = self._service.reader(self._index)
        now_ms = self._clock.now_ms()
        # In the order of the log, for those whose records have to be read there.
        by_offset = sorted(entries, key=lambda each: each.offset)
        found = [_message(reader, entry, now_ms) for entry in by_offset]
        return sorted(found, key=lambda each: each[0].key)

    async def mark_moved(
        self,
        messages: Sequence[DueMessage],
        producer: Producer,
        verify: Callable[[], Awaitable[ErrorCode]],
    ) -> ErrorCode:
        request = MarkMoved(keys=tuple(each.key for each in messages), producer=producer)
        answer = await self._runtime.submit_in_transaction(self._index, request, producer, verify)
        assert isinstance(answer, Ended)
        return answer.code

    async def mark_failed(self, message: DueMessage, reason: str, *, is_refused: bool) -> None:
        """One that is refused is tried again: a setting of the topic may change. One without a topic is dropped."""
        logger.warning(
            "the delayed message with offset %d of %s is not delivered: %s",
            message.offset,
            message.target,
            reason,
        )
        if is_refused:
            self._put_off[message.key.serial] = self._clock.now_ms() + REFUSED_MS
        else:
            self._on_dropped()
            await self._runtime.submit(self._index, Drop(key=message.key))


def _message(reader: StagedReader, entry: Entry, now_ms: int) -> tuple[DueMessage, Record | None]:
    """A message, and the record that consumers will see; None if the log does not have it. Raises BrokerError."""
    key = MessageKey(entry.due_ms, entry.serial)
    value = decode_message(entry.value) if entry.value else None
    if value is None:
        found = read_message(reader, entry.offset)
        if found is None:
            return DueMessage(key=key, target=NOWHERE, topic_id=ZERO_UUID, offset=-1), None
        key, value = found
    message = DueMessage(
        key=key,
        target=TopicPartition(value.topic, value.partition),
        topic_id=value.topic_id,
        offset=value.offset,
    )
    headers = (RecordHeader(each.key, each.value) for each in value.headers)
    # The message gets the time at which it appears: retention and lookups by time count from then on.
    return message, Record(
        timestamp=now_ms,
        key=value.key,
        value=value.value,
        headers=delivered_headers(headers, key.due_ms),
    )

"""Delayed messages as brokers see them: stages them in their shards, lists and cancels them there."""

import asyncio
from collections import defaultdict
from typing import Final

from zhumq.coordinators.group_service import partition_for
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.coordinators.staged_reader import StagedMissing, StagedReader
from zhumq.delays.due_index import Entry
from zhumq.delays.persisted import MessageKey, Position, Source, decode_key, decode_message
from zhumq.delays.requests import (
    Cancel,
    DelayRequest,
    DelayResponse,
    Ended,
    Scan,
    Scanned,
    Stage,
    Staged,
)
from zhumq.host.clock import Clock
from zhumq.model.errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    ErrorCode,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from zhumq.model.ids import DELAYED_MESSAGES_TOPIC, TopicPartition
from zhumq.protocol.messages.delays import (
    DelayedValue,
    ScheduledMessage,
    ScheduleRequest,
    ScheduleResponse,
    StageDelayedRequest,
    StageDelayedResponse,
)
from zhumq.replication.replica_manager import ReplicaManager

# The records of a shard are read back in any order: a small batch is read for each of them.
STAGED_BATCH_BYTES_MAX: Final = 16 << 10
LISTED_MAX: Final = 1_000  # messages in one answer
SCANNED_MAX: Final = 2_000  # messages of a shard that one request looks at
NOT_SET: Final = -1
CANCEL: Final = 1
ACTIONS: Final = (0, CANCEL)

DelayRuntime = CoordinatorRuntime[DelayRequest, DelayResponse]


class DelayService:
    """The way to the shards of this broker."""

    def __init__(
        self,
        runtime: DelayRuntime,
        topic: InternalTopic,
        replicas: ReplicaManager,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._topic = topic
        self._replicas = replicas
        self._clock = clock
        # Set when a shard has got messages that may be due before those that it knew.
        self._woken: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        # A cancellation looks at messages, and then ends them: one at a time.
        self._cancelling: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def shard_of(self, source: Source) -> TopicPartition:
        """The shard of a partition with delayed messages."""
        name = f"{source.topic_id}-{source.partition}"
        return TopicPartition(
            DELAYED_MESSAGES_TOPIC, partition_for(name, self._topic.partition_count)
        )

    def woken(self, index: int) -> asyncio.Event:
        return self._woken[index]

    def reader(self, index: int) -> StagedReader:
        """Reads the messages of a shard back. Raises BrokerError."""
        partition = self._replicas.partition(DELAYED_MESSAGES_TOPIC, index)
        return StagedReader(partition, read_bytes_max=STAGED_BATCH_BYTES_MAX)

    async def stage(self, index: int, request: StageDelayedRequest) -> StageDelayedResponse:
        begins = Position(request.from_offset, request.from_skipped)
        answer = await self._runtime.submit(
            index,
            Stage(
                source=Source(request.topic_id, request.partition),
                topic=request.topic,
                begins=None if begins.offset == NOT_SET else begins,
                until=Position(request.next_offset, request.next_skipped),
                records=tuple(request.records),
                now_ms=self._clock.now_ms(),
            ),
        )
        assert isinstance(answer, Staged)
        if request.records:
            self._woken[index].set()
        return StageDelayedResponse(
            error_code=answer.code,
            next_offset=answer.position.offset,
            skipped=answer.position.skipped,
        )

    async def answer(
        self, index: int, source: Source, request: ScheduleRequest
    ) -> ScheduleResponse:
        """List or cancel. Raises BrokerError."""
        if request.action not in ACTIONS or not 1 <= request.limit <= LISTED_MAX:
            raise InvalidRequest(f"an action is 0 or 1, and a limit 1 to {LISTED_MAX}")
        if request.action != CANCEL:
            found, last = await self._find(index, source, request)
        else:
            async with self._cancelling[index]:
                found, last = await self._find(index, source, request)
                ended = await self._cancel(index, [key for key, _ in found])
                found = [each for each in found if each[0] in ended]
        return ScheduleResponse(
            messages=[
                ScheduledMessage(
                    offset=value.offset,
                    due_ms=key.due_ms,
                    staged_ms=value.staged_ms,
                    size_bytes=len(value.key or b"") + len(value.value or b""),
                )
                for key, value in found
            ],
            after_ms=last.due_ms if last is not None else NOT_SET,
            after_serial=last.serial if last is not None else NOT_SET,
        )

    async def _find(
        self, index: int, source: Source, request: ScheduleRequest
    ) -> tuple[list[tuple[MessageKey, DelayedValue]], Entry | None]:
        """The next messages that match, and where to continue if there may be more."""
        after = MessageKey(request.after_ms, request.after_serial)
        if after.due_ms < request.from_ms:
            after = MessageKey(request.from_ms, NOT_SET)
        scanned = await self._runtime.submit(index, Scan(after=after, limit=SCANNED_MAX))
        assert isinstance(scanned, Scanned)
        _check(scanned.code)
        reader = self.reader(index)
        found: list[tuple[MessageKey, DelayedValue]] = []
        last = None
        for last in scanned.entries:
            if NOT_SET != request.to_ms <= last.due_ms:
                return found, None
            message = read_message(reader, last.offset)
            if message is not None and _matches(message[1], source, request.offset):
                found.append(message)
                if len(found) == request.limit:
                    return found, last
        return found, last if scanned.has_more else None

    async def _cancel(self, index: int, keys: list[MessageKey]) -> frozenset[MessageKey]:
        if not keys:
            return frozenset()
        request = Cancel(keys=tuple(keys), now_ms=self._clock.now_ms())
        answer = await self._runtime.submit(index, request)
        assert isinstance(answer, Ended)
        _check(answer.code)
        return frozenset(answer.keys)


def read_message(reader: StagedReader, offset: int) -> tuple[MessageKey, DelayedValue] | None:
    """The message whose record is at this offset; None if it is gone, or cannot be read. Raises BrokerError if the log
    cannot be read now."""
    try:
        record = reader.read(offset)
    except (StagedMissing, CorruptMessage, OffsetOutOfRange):
        return None
    key = decode_key(record.key or b"")
    value = decode_message(record.value or b"")
    return (key, value) if isinstance(key, MessageKey) and value is not None else None


def _matches(value: DelayedValue, source: Source, offset: int) -> bool:
    return (value.topic_id, value.partition) == source and offset in (NOT_SET, value.offset)


def _check(code: ErrorCode) -> None:
    if code is ErrorCode.NOT_COORDINATOR:
        raise NotLeaderOrFollower("another broker has these delayed messages: ask again")
    if code is not ErrorCode.NONE:
        raise CoordinatorLoadInProgress("delayed messages are being loaded: ask again")

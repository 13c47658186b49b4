"""Moves the committed half messages of this broker's shards into their topics."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.broker_transactions import BrokerTransactions
from zhumq.coordinators.half_message_bodies import BodyMissing, BodyReader
from zhumq.coordinators.half_message_service import LOAD_SECONDS, HalfRuntime
from zhumq.coordinators.mover import MoveFailed, Mover, is_refused, size_of
from zhumq.half_messages.message import Body, HalfMessage
from zhumq.half_messages.requests import Answer, AwaitCommitted, MarkFailed, MarkSent, Messages
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, CorruptMessage, ErrorCode, OffsetOutOfRange
from zhumq.model.ids import HALF_MESSAGES_TOPIC, TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.records.batch import Record, RecordHeader
from zhumq.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

MOVED_BYTES_MAX: Final = 4 << 20  # in one transaction, unless one message is larger
# A partition that could not be written to is left alone for this time, then twice as long, and so on: an attempt holds up
# the messages for other partitions.
AVOID_SECONDS: Final = 0.5
AVOID_SECONDS_MAX: Final = 15.0
# A partition that is not in the metadata image for so long was deleted. Before that the image may be old.
MISSING_SECONDS_MAX: Final = 3.0


class HalfMessageMover:
    """One loop for each shard that this broker leads."""

    def __init__(
        self,
        runtime: HalfRuntime,
        transactions: BrokerTransactions,
        store: MetadataStore,
        replicas: ReplicaManager,
        clock: Clock,
        *,
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._transactions = transactions
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._loops: dict[int, asyncio.Task[None]] = {}
        self.moved_total = 0
        replicas.watch_leadership(self._on_leadership_changed)

    async def close(self) -> None:
        loops = list(self._loops.values())
        self._loops.clear()
        for each in loops:
            each.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    def _on_leadership_changed(
        self, partition: TopicPartition, leads: bool, _leader_epoch: int
    ) -> None:
        if partition.topic != HALF_MESSAGES_TOPIC:
            return
        index = partition.partition
        running = self._loops.pop(index, None)
        if running is not None:
            running.cancel()
        if leads:
            moves = _ShardMoves(self, index)
            self._loops[index] = asyncio.get_running_loop().create_task(
                moves.run(), name=f"half-message-moves-{index}"
            )

    def mover_of(self, index: int) -> Mover:
        staging = TopicPartition(HALF_MESSAGES_TOPIC, index)
        return Mover(
            self._transactions,
            transactional_id=str(staging),
            staging=staging,
            timeout_ms=self._timeout_ms,
        )

    def exists(self, target: TopicPartition) -> bool:
        return self._store.image.partition(target) is not None

    async def committed(
        self, index: int, avoided: frozenset[TopicPartition], seconds: float | None
    ) -> Messages | None:
        """The next messages to move; None after so many seconds without one."""
        answer = self._runtime.submit(index, AwaitCommitted(avoided=avoided))
        await asyncio.wait((answer,), timeout=seconds)
        if not answer.done():
            answer.cancel()
            return None
        response = answer.result()
        assert isinstance(response, Messages)
        return response

    def records_of(
        self, index: int, messages: Sequence[HalfMessage]
    ) -> list[tuple[HalfMessage, Record | None]]:
        """The messages with their records, as many as one transaction takes; None where the log has no record."""
        reader = BodyReader(self._replicas.partition(HALF_MESSAGES_TOPIC, index))
        now_ms = self._clock.now_ms()
        found: list[tuple[HalfMessage, Record | None]] = []
        size = 0
        for message in messages:
            record = None
            with contextlib.suppress(BodyMissing, CorruptMessage, OffsetOutOfRange):
                record = _record(reader.read(message.offset), now_ms)
                size += size_of(record)
            if found and size > MOVED_BYTES_MAX:
                break
            found.append((message, record))
        return found

    async def mark_sent(
        self,
        index: int,
        ids: Sequence[str],
        producer: Producer,
        verify: Callable[[], Awaitable[ErrorCode]],
    ) -> ErrorCode:
        request = MarkSent(ids=tuple(ids), producer=producer)
        answer = await self._runtime.submit_in_transaction(index, request, producer, verify)
        assert isinstance(answer, Answer)
        return answer.code if answer.problem is None else ErrorCode.INVALID_REQUEST

    async def mark_failed(self, index: int, message: HalfMessage, reason: str) -> None:
        logger.warning("half message %s is not in %s: %s", message.id, message.target, reason)
        await self._runtime.submit(index, MarkFailed(id=message.id, reason=reason))


class _ShardMoves:
    """The moves of one shard, one transaction at a time."""

    def __init__(self, moves: HalfMessageMover, index: int) -> None:
        self._moves = moves
        self._index = index
        self._mover = moves.mover_of(index)
        # Until when a partition is left alone, for how long the next time, and since when it has not been there.
        self._avoided: dict[TopicPartition, float] = {}
        self._delays: dict[TopicPartition, float] = {}
        self._missing_since: dict[TopicPartition, float] = {}

    async def run(self) -> None:
        while True:
            try:
                await self._run_once()
            except BrokerError as reason:  # The log cannot be read now.
                logger.warning("half messages of shard %d wait: %s", self._index, reason)
                await asyncio.sleep(AVOID_SECONDS)
            except Exception:
                logger.exception("half messages of shard %d are not moved", self._index)
                await asyncio.sleep(AVOID_SECONDS)

    async def _run_once(self) -> None:
        now = asyncio.get_running_loop().time()
        self._avoided = {each: until for each, until in self._avoided.items() if until > now}
        seconds = min(self._avoided.values()) - now if self._avoided else None
        response = await self._moves.committed(self._index, frozenset(self._avoided), seconds)
        if response is None:
            return
        if response.code is not ErrorCode.NONE:  # The shard is being loaded.
            await asyncio.sleep(LOAD_SECONDS)
        if response.is_marked:
            # Ends what an earlier leader has begun, so that its messages are moved or handed out again.
            await self._mover.begin()
        if response.messages:
            await self._move(response.messages)

    async def _move(self, messages: Sequence[HalfMessage]) -> None:
        by_target: dict[TopicPartition, list[tuple[HalfMessage, Record]]] = {}
        for message, record in self._moves.records_of(self._index, messages):
            if record is None:
                await self._fail(message, "its record in the log is gone, or cannot be read")
            elif await self._is_there(message):
                by_target.setdefault(message.target, []).append((message, record))
        if not by_target:
            return
        failed = await self._try(by_target)
        if failed is None:
            return
        if not failed.errors:
            logger.warning("half messages of shard %d wait: %s", self._index, failed)
            await asyncio.sleep(AVOID_SECONDS)
        for target, error in failed.errors.items():
            if is_refused(error):
                await self._move_each(target, by_target[target])
            else:
                self._avoid(target, error)

    async def _move_each(
        self, target: TopicPartition, messages: Sequence[tuple[HalfMessage, Record]]
    ) -> None:
        """The partition refuses one of them: only that one fails."""
        for message, record in messages:
            failed = await self._try({target: [(message, record)]})
            error = None if failed is None else failed.errors.get(target)
            if error is not None and is_refused(error):
                await self._fail(message, f"{target} refuses it: {error}")
            elif failed is not None:
                self._avoid(target, failed)
                return

    async def _try(
        self, by_target: dict[TopicPartition, list[tuple[HalfMessage, Record]]]
    ) -> MoveFailed | None:
        ids = [message.id for each in by_target.values() for message, _ in each]
        records = {
            target: [record for _, record in messages] for target, messages in by_target.items()
        }
        try:
            await self._mover.move(
                records,
                lambda producer, verify: self._moves.mark_sent(self._index, ids, producer, verify),
            )
        except MoveFailed as failed:
            return failed
        self._moves.moved_total += len(ids)
        for target in records:
            self._delays.pop(target, None)
        return None

    async def _is_there(self, message: HalfMessage) -> bool:
        target = message.target
        if self._moves.exists(target):
            self._missing_since.pop(target, None)
            return True
        now = asyncio.get_running_loop().time()
        if now - self._missing_since.setdefault(target, now) < MISSING_SECONDS_MAX:
            self._avoided[target] = now + AVOID_SECONDS
        else:
            await self._fail(message, f"there is no partition {target} any more")
        return False

    def _avoid(self, target: TopicPartition, reason: Exception) -> None:
        logger.info("half messages for %s wait: %s", target, reason)
        delay = self._delays.get(target, AVOID_SECONDS)
        self._delays[target] = min(delay * 2, AVOID_SECONDS_MAX)
        self._avoided[target] = asyncio.get_running_loop().time() + delay

    async def _fail(self, message: HalfMessage, reason: str) -> None:
        await self._moves.mark_failed(self._index, message, reason)


def _record(body: Body, now_ms: int) -> Record:
    """The message gets the time at which it appears: retention and lookups by time count from then on."""
    return Record(
        timestamp=now_ms,
        key=body.key,
        value=body.value,
        headers=tuple(RecordHeader(key, value) for key, value in body.headers),
    )

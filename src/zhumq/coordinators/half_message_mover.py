"""Moves the committed half messages of this broker's shards into their topics."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.broker_transactions import BrokerTransactions
from zhumq.coordinators.half_message_service import HalfRuntime, read_body
from zhumq.coordinators.mover import Mover, mover_of
from zhumq.coordinators.shard_loops import ShardLoops
from zhumq.coordinators.shard_moves import ShardMoves, Taken, first_bytes
from zhumq.coordinators.staged_reader import StagedMissing, StagedReader
from zhumq.half_messages.message import Body, HalfMessage
from zhumq.half_messages.requests import Answer, AwaitCommitted, MarkFailed, MarkSent, Messages
from zhumq.host.clock import Clock
from zhumq.model.errors import CorruptMessage, ErrorCode, OffsetOutOfRange
from zhumq.model.ids import HALF_MESSAGES_TOPIC, TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.records.batch import Record, RecordHeader
from zhumq.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


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
        self.moved_total = 0
        self._loops = ShardLoops(
            replicas, HALF_MESSAGES_TOPIC, self._run, name="half-message-moves"
        )

    async def close(self) -> None:
        await self._loops.close()

    async def _run(self, index: int, _leader_epoch: int) -> None:
        staged = StagedHalfMessages(self._runtime, self._replicas, self._clock, index)
        await ShardMoves(staged, self._mover_of(index), self._exists, self._on_moved).run()

    def _mover_of(self, index: int) -> Mover:
        staging = TopicPartition(HALF_MESSAGES_TOPIC, index)
        return mover_of(staging, self._transactions, self._timeout_ms)

    def _exists(self, message: HalfMessage) -> bool:
        return self._store.image.partition(message.target) is not None

    def _on_moved(self, messages: Sequence[HalfMessage]) -> None:
        self.moved_total += len(messages)


class StagedHalfMessages:
    """The `StagedMessages` of one shard."""

    def __init__(
        self, runtime: HalfRuntime, replicas: ReplicaManager, clock: Clock, index: int
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._clock = clock
        self._index = index
        self.name = f"half messages of shard {index}"

    async def take(
        self, avoided: Mapping[TopicPartition, float], seconds: float | None
    ) -> Taken[HalfMessage] | None:
        answer = self._runtime.submit(self._index, AwaitCommitted(avoided=frozenset(avoided)))
        await asyncio.wait((answer,), timeout=seconds)
        if not answer.done():
            answer.cancel()
            return None
        response = answer.result()
        assert isinstance(response, Messages)
        messages = self._records_of(response.messages) if response.messages else ()
        return Taken(messages, response.code, response.is_marked)

    def _records_of(
        self, messages: Sequence[HalfMessage]
    ) -> list[tuple[HalfMessage, Record | None]]:
        reader = StagedReader(self._replicas.partition(HALF_MESSAGES_TOPIC, self._index))
        now_ms = self._clock.now_ms()

        def record_of(message: HalfMessage) -> Record | None:
            try:
                return _record(read_body(reader, message.offset), now_ms)
            except (StagedMissing, CorruptMessage, OffsetOutOfRange):
                return None

        return first_bytes((each, record_of(each)) for each in messages)

    async def mark_moved(
        self,
        messages: Sequence[HalfMessage],
        producer: Producer,
        verify: Callable[[], Awaitable[ErrorCode]],
    ) -> ErrorCode:
        request = MarkSent(ids=tuple(each.id for each in messages), producer=producer)
        answer = await self._runtime.submit_in_transaction(self._index, request, producer, verify)
        assert isinstance(answer, Answer)
        return answer.code if answer.problem is None else ErrorCode.INVALID_REQUEST

    async def mark_failed(self, message: HalfMessage, reason: str, *, is_refused: bool) -> None:
        """Both kinds are kept until an operator decides."""
        del is_refused
        logger.warning("half message %s is not in %s: %s", message.id, message.target, reason)
        await self._runtime.submit(self._index, MarkFailed(id=message.id, reason=reason))


def _record(body: Body, now_ms: int) -> Record:
    """The message gets the time at which it appears: retention and lookups by time count from then on."""
    return Record(
        timestamp=now_ms,
        key=body.key,
        value=body.value,
        headers=tuple(RecordHeader(key, value) for key, value in body.headers),
    )

"""The way to the shards of delivery state: asks again while they are on the move, and keeps writes in order."""

import asyncio
import uuid
from typing import Final, Protocol, TypeVar

from zhumq.coordinators.group_service import partition_for
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.model.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
)
from zhumq.protocol.messages.delivery_state import (
    ReadSharePartitionRequest,
    ReadSharePartitionResponse,
    WriteSharePartitionRequest,
    WriteSharePartitionResponse,
)
from zhumq.share.partition_state import SharePartitionState, SharePartitionUpdate
from zhumq.share.persisted import SharePartitionKey, read_runs, written_runs
from zhumq.share.requests import DeliveryRequest, DeliveryResponse

RETRY_SECONDS_FIRST: Final = 0.02
RETRY_SECONDS_MAX: Final = 0.5
ASK_SECONDS_MAX: Final = 15.0  # a failover of the shard's leader takes less

# The shard is on its way from one broker to another, or being read: it is worth asking again.
_ON_THE_MOVE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

Answer = TypeVar("Answer")


class FencedStateEpoch(BrokerError):
    """Somebody else decided where the window starts: read it again."""

    code = ErrorCode.FENCED_STATE_EPOCH


class StateRouter(Protocol):
    """How a request gets to the leader of one partition of the state topic, wherever that is."""

    async def ensure(self) -> None:
        """Done when the topic exists. Raises BrokerError."""

    async def ask(self, index: int, request: DeliveryRequest) -> DeliveryResponse:
        """One attempt. Where the shard is elsewhere or not there yet, the answer's error says so."""

    def led(self) -> list[int]:
        """The partitions whose shards are here."""


class LocalStateRouter:
    """All shards are on this broker, or nowhere."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[DeliveryRequest, DeliveryResponse],
        topic: InternalTopic,
    ) -> None:
        self._runtime = runtime
        self._topic = topic

    async def ensure(self) -> None:
        await self._topic.ensure()

    async def ask(self, index: int, request: DeliveryRequest) -> DeliveryResponse:
        return await self._runtime.submit(index, request)

    def led(self) -> list[int]:
        return self._runtime.led


class DeliveryStateClient:
    """Asks the shard that a group (or a topic, for claims) falls into."""

    def __init__(self, router: StateRouter, partition_count: int) -> None:
        self._router = router
        self.partition_count = partition_count

    async def ask(self, routed_by: str, request: DeliveryRequest, expected: type[Answer]) -> Answer:
        """The shard's answer. Raises BrokerError where it refuses or cannot be reached in time."""
        await self._router.ensure()
        return await self._ask(partition_for(routed_by, self.partition_count), request, expected)

    async def ask_all(self, request: DeliveryRequest, expected: type[Answer]) -> list[Answer]:
        """The answers of all shards, wherever they are. Raises BrokerError if one gives none."""
        indexes = range(self.partition_count)
        return list(
            await asyncio.gather(*(self._ask(index, request, expected) for index in indexes))
        )

    async def ask_local(self, request: DeliveryRequest, expected: type[Answer]) -> list[Answer]:
        """The answers of all shards that are here."""
        return list(
            await asyncio.gather(
                *(self._ask(index, request, expected) for index in self._router.led())
            )
        )

    async def _ask(self, index: int, request: DeliveryRequest, expected: type[Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + ASK_SECONDS_MAX
        delay = RETRY_SECONDS_FIRST
        while True:
            response = await self._router.ask(index, request)
            code = response.error_code
            if code == ErrorCode.NONE:
                assert isinstance(response, expected)
                return response
            if code not in _ON_THE_MOVE or loop.time() + delay > give_up_at:
                raise _error(code, response.error_message)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS_MAX)


class PersistedSharePartitionStore:
    """One window's state in its shard, under the epochs of whoever opened it."""

    def __init__(
        self, client: DeliveryStateClient, key: SharePartitionKey, *, leader_epoch: int
    ) -> None:
        self._client = client
        self._key = key
        self._leader_epoch = leader_epoch
        self._state_epoch = 0
        self._write_number = 0

    async def read(self) -> SharePartitionState | None:
        """The state, or None where nothing is known. Earlier leaders of the partition are fenced."""
        key = self._key
        request = ReadSharePartitionRequest(
            group_id=key.group_id,
            topic_id=key.topic_id,
            partition=key.partition,
            leader_epoch=self._leader_epoch,
        )
        answer = await self._client.ask(key.group_id, request, ReadSharePartitionResponse)
        if not answer.is_known:
            return None
        self._state_epoch, self._write_number = answer.state_epoch, answer.write_number
        return SharePartitionState(
            start_offset=answer.start_offset,
            runs=read_runs(answer.runs),
            dead_letter_producer_id=answer.dead_letter_producer_id,
            dead_letters_written=answer.dead_letters_written,
        )

    async def reset(self, state: SharePartitionState) -> None:
        """Begin anew, with exactly this."""
        key = self._key
        request = WriteSharePartitionRequest(
            group_id=key.group_id,
            topic_id=key.topic_id,
            partition=key.partition,
            leader_epoch=self._leader_epoch,
            start_offset=state.start_offset,
            dead_letter_producer_id=state.dead_letter_producer_id,
            dead_letters_written=state.dead_letters_written,
            runs=written_runs(state.runs),
            resets=True,
        )
        answer = await self._client.ask(key.group_id, request, WriteSharePartitionResponse)
        self._state_epoch, self._write_number = answer.state_epoch, answer.write_number

    async def write(self, update: SharePartitionUpdate) -> None:
        """Durable when this returns. One at a time: a write that is tried again must not come after
        a later one."""
        key = self._key
        self._write_number += 1
        request = WriteSharePartitionRequest(
            group_id=key.group_id,
            topic_id=key.topic_id,
            partition=key.partition,
            leader_epoch=self._leader_epoch,
            state_epoch=self._state_epoch,
            write_number=self._write_number,
            start_offset=update.start_offset,
            dead_letters_written=update.dead_letters_written,
            runs=written_runs(update.runs),
        )
        await self._client.ask(key.group_id, request, WriteSharePartitionResponse)


class TransientSharePartitionStore:
    """For a window that nothing is kept of."""

    async def write(self, update: SharePartitionUpdate) -> None:
        """Nothing to do."""


class SharePartitionStore(Protocol):
    """Where an open window's updates go."""

    async def write(self, update: SharePartitionUpdate) -> None:
        """Durable when this returns. Raises BrokerError."""


def share_partition_key(group: str, topic_id: uuid.UUID, partition: int) -> SharePartitionKey:
    return SharePartitionKey(group, topic_id, partition)


def _error(code: int, message: str | None) -> BrokerError:
    why = message or f"the delivery state is out of reach: {ErrorCode(code).name}"
    match code:
        case ErrorCode.FENCED_STATE_EPOCH:
            return FencedStateEpoch(why)
        case ErrorCode.FENCED_LEADER_EPOCH:
            return FencedLeaderEpoch(why)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return NotLeaderOrFollower(why)
        case _:
            return CoordinatorNotAvailable(why)

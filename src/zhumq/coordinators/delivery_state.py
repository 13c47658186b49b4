"""The client of the delivery-state shards: retries while a shard moves or loads, and keeps writes in order."""

import asyncio
from typing import Final, Protocol, TypeVar

from zhumq.coordinators.delivery_routes import DeliveryStateRoute
from zhumq.coordinators.group_service import partition_for
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.router import LeaderRouter
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.model.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    LeaderNotAvailable,
    NotLeaderOrFollower,
)
from zhumq.model.ids import SHARE_GROUP_STATE_TOPIC, TopicPartition
from zhumq.protocol.messages.delivery_state import (
    ReadSharePartitionRequest,
    ReadSharePartitionResponse,
    WriteSharePartitionRequest,
    WriteSharePartitionResponse,
)
from zhumq.share.partition_state import SharePartitionState, SharePartitionUpdate
from zhumq.share.persisted import SharePartitionKey, read_runs, written_runs
from zhumq.share.requests import DeliveryRequest, DeliveryResponse, refusal

RETRY_SECONDS_FIRST: Final = 0.02
RETRY_SECONDS_MAX: Final = 0.5
ASK_SECONDS_MAX: Final = 15.0  # a failover of the shard's leader takes less

# The shard moves to another broker or is being loaded: retry.
_RETRIABLE = frozenset(
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
    """The share partition was reset, deleted or opened again: read its state again."""

    code = ErrorCode.FENCED_STATE_EPOCH


class DeliveryStateClient:
    """Sends requests to the shard that a group (or a topic, for claims) maps to."""

    def __init__(
        self,
        router: LeaderRouter,
        runtime: CoordinatorRuntime[DeliveryRequest, DeliveryResponse],
        topic: InternalTopic,
    ) -> None:
        self._router = router
        self._runtime = runtime
        self._topic = topic
        self._route = DeliveryStateRoute(runtime)
        router.add(self._route)

    async def ask(self, routed_by: str, request: DeliveryRequest, expected: type[Answer]) -> Answer:
        """The shard's response. Raises BrokerError if it refuses or cannot be reached in time."""
        await self._topic.ensure()
        index = partition_for(routed_by, self._topic.partition_count)
        return await self._ask(index, request, expected)

    async def ask_all(self, request: DeliveryRequest, expected: type[Answer]) -> list[Answer]:
        """The responses of all shards, on any broker. Raises BrokerError if one does not respond."""
        indexes = range(self._topic.partition_count)
        return list(
            await asyncio.gather(*(self._ask(index, request, expected) for index in indexes))
        )

    async def ask_local(self, request: DeliveryRequest, expected: type[Answer]) -> list[Answer]:
        """The responses of the shards that this broker leads."""
        return list(
            await asyncio.gather(
                *(self._ask(index, request, expected) for index in self._runtime.led)
            )
        )

    async def _ask(self, index: int, request: DeliveryRequest, expected: type[Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + ASK_SECONDS_MAX
        delay = RETRY_SECONDS_FIRST
        while True:
            response = await self._attempt(index, request)
            code = response.error_code
            if code == ErrorCode.NONE:
                assert isinstance(response, expected)
                return response
            if code not in _RETRIABLE or loop.time() + delay > give_up_at:
                raise _error(code, response.error_message)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS_MAX)

    async def _attempt(self, index: int, request: DeliveryRequest) -> DeliveryResponse:
        if index in self._runtime.led:
            return await self._runtime.submit(index, request)
        partition = TopicPartition(SHARE_GROUP_STATE_TOPIC, index)
        try:
            return await self._router.send(self._route, partition, request)
        except LeaderNotAvailable as reason:
            return refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(reason))
        except BrokerError as reason:
            # The shard may have carried it out. A retry is safe: writes are numbered.
            return refusal(request, ErrorCode.NETWORK_EXCEPTION, str(reason))


class PersistedSharePartitionStore:
    """The state of one share partition in its shard, written under the epochs of the broker that opened it."""

    def __init__(
        self, client: DeliveryStateClient, key: SharePartitionKey, *, leader_epoch: int
    ) -> None:
        self._client = client
        self._key = key
        self._leader_epoch = leader_epoch
        self._state_epoch = 0
        self._write_number = 0

    async def read(self) -> SharePartitionState | None:
        """The state; None if there is none. Fences earlier leaders of the partition."""
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
        """Replace the persisted state with this one."""
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
        """Durable when this returns. One write at a time: a retried write must not follow a later one."""
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
    """For a share partition that is not persisted."""

    async def write(self, update: SharePartitionUpdate) -> None:
        """Do nothing."""


class SharePartitionStore(Protocol):
    """Persists the updates of an open share partition."""

    async def write(self, update: SharePartitionUpdate) -> None:
        """Durable when this returns. Raises BrokerError."""


def _error(code: int, message: str | None) -> BrokerError:
    why = message or f"the delivery state is unavailable: {ErrorCode(code).name}"
    match code:
        case ErrorCode.FENCED_STATE_EPOCH:
            return FencedStateEpoch(why)
        case ErrorCode.FENCED_LEADER_EPOCH:
            return FencedLeaderEpoch(why)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return NotLeaderOrFollower(why)
        case _:
            return CoordinatorNotAvailable(why)

"""Delivery among several brokers: state and dead letters go to the brokers that lead their partitions."""

from collections.abc import Awaitable
from typing import Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.dead_letters import LocalDeadLetterRouter
from zhumq.coordinators.delivery_state import LocalStateRouter
from zhumq.metadata.image import NO_BROKER
from zhumq.model.errors import (
    BrokerError,
    ErrorCode,
    InvalidRequest,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
)
from zhumq.model.ids import SHARE_GROUP_STATE_TOPIC, BrokerId, TopicPartition
from zhumq.net.channel import PeerRefused
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.delivery_state import (
    AppendDeadLettersRequest,
    AppendDeadLettersResponse,
    AskDeliveryStateRequest,
    AskDeliveryStateResponse,
)
from zhumq.protocol.peer_api import PeerApi
from zhumq.replication.inter_broker.peer_service import PeerConnection, PeerService
from zhumq.replication.inter_broker.peers import Peers
from zhumq.share.requests import REQUEST_KINDS, DeliveryRequest, DeliveryResponse, refusal

ASK_STATE: Final = PeerApi(AskDeliveryStateRequest, AskDeliveryStateResponse)
APPEND_DEAD_LETTERS: Final = PeerApi(AppendDeadLettersRequest, AppendDeadLettersResponse)
ASK_MS_MAX: Final = 5_000
_VERSION: Final = 0
_KINDS: Final = {request: kind for kind, (request, _) in enumerate(REQUEST_KINDS)}


class ClusterStateRouter:
    """To the shards wherever they are. A `StateRouter`."""

    def __init__(
        self, local: LocalStateRouter, store: MetadataStore, peers: Peers, broker_id: BrokerId
    ) -> None:
        self._local = local
        self._store = store
        self._peers = peers
        self._broker_id = broker_id

    async def ensure(self) -> None:
        await self._local.ensure()

    async def ask(self, index: int, request: DeliveryRequest) -> DeliveryResponse:
        if index in self._local.led():
            return await self._local.ask(index, request)
        leader = leader_of(self._store, SHARE_GROUP_STATE_TOPIC, index)
        if leader in (None, self._broker_id):
            return refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker leads it now")
        kind = _KINDS[type(request)]
        asked = AskDeliveryStateRequest(
            partition=index, kind=kind, body=encode_versioned(request, _VERSION)
        )
        try:
            answer = await self._peers.request(leader, ASK_STATE, asked, timeout_ms=ASK_MS_MAX)
        except BrokerError as reason:
            # Nobody knows whether it was done. Asking again does no harm: writes are numbered.
            return refusal(request, ErrorCode.NETWORK_EXCEPTION, str(reason))
        return decode_versioned(REQUEST_KINDS[kind][1], answer.body)[1]

    def led(self) -> list[int]:
        return self._local.led()


class ClusterDeadLetterRouter:
    """To the leaders of dead letters. A `DeadLetterRouter`."""

    def __init__(
        self, local: LocalDeadLetterRouter, store: MetadataStore, peers: Peers, broker_id: BrokerId
    ) -> None:
        self._local = local
        self._store = store
        self._peers = peers
        self._broker_id = broker_id

    async def append(self, topic: str, partition: int, batch: bytes) -> None:
        leader = leader_of(self._store, topic, partition)
        if leader is None:
            raise LeaderNotAvailable(f"nobody leads {topic}-{partition} right now")
        if leader == self._broker_id:
            await self._local.append(topic, partition, batch)
            return
        request = AppendDeadLettersRequest(topic=topic, partition=partition, batch=batch)
        try:
            answer = await self._peers.request(leader, APPEND_DEAD_LETTERS, request)
        except PeerRefused as reason:
            raise _dead_letter_error(reason.error, str(reason)) from None
        if answer.error_code != ErrorCode.NONE:
            raise _dead_letter_error(answer.error_code, answer.error_message or "")


class DeliveryPeerService:
    """Answers the other brokers."""

    def __init__(self, state: LocalStateRouter, dead_letters: LocalDeadLetterRouter) -> None:
        self._state = state
        self._dead_letters = dead_letters

    def register(self, service: PeerService) -> None:
        service.register(ASK_STATE, self.ask_state)
        service.register(APPEND_DEAD_LETTERS, self.append_dead_letters)

    def ask_state(
        self, _peer: PeerConnection, asked: AskDeliveryStateRequest
    ) -> Awaitable[AskDeliveryStateResponse]:
        if not 0 <= asked.kind < len(REQUEST_KINDS):
            raise InvalidRequest(f"there is no kind {asked.kind} of requests about delivery state")
        request = decode_versioned(REQUEST_KINDS[asked.kind][0], asked.body)[1]
        return self._ask(asked.partition, request)

    async def _ask(self, index: int, request: DeliveryRequest) -> AskDeliveryStateResponse:
        answer = await self._state.ask(index, request)
        return AskDeliveryStateResponse(body=encode_versioned(answer, _VERSION))

    async def append_dead_letters(
        self, _peer: PeerConnection, asked: AppendDeadLettersRequest
    ) -> AppendDeadLettersResponse:
        try:
            await self._dead_letters.append(asked.topic, asked.partition, asked.batch)
        except BrokerError as reason:
            return AppendDeadLettersResponse(error_code=reason.code, error_message=str(reason))
        return AppendDeadLettersResponse()


def leader_of(store: MetadataStore, topic: str, partition: int) -> BrokerId | None:
    """The broker that leads a partition, as far as is known."""
    image = store.image
    state = image.partition(TopicPartition(topic, partition))
    if state is None:
        return None
    leader = image.leader_of(state)
    return None if leader == NO_BROKER else leader


def _dead_letter_error(code: int, why: str) -> BrokerError:
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return OutOfOrderSequenceNumber(why)
    return NotLeaderOrFollower(why or ErrorCode(code).name)

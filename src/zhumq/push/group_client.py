"""The coordinator of a push consumer's group, on whichever broker it is."""

from typing import Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.group_service import GroupService
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.groups.requests import GroupRequest, GroupResponse, refusal
from zhumq.metadata.image import NO_BROKER
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, BrokerId, TopicPartition
from zhumq.protocol.compiler import decode_message, encoder
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from zhumq.protocol.messages.push_members import AskMembershipRequest, AskMembershipResponse
from zhumq.protocol.peer_api import PeerApi
from zhumq.protocol.schema import Message
from zhumq.replication.inter_broker.peer_service import PeerConnection, PeerService
from zhumq.replication.inter_broker.peers import Peers

ASK_MEMBERSHIP: Final = PeerApi(AskMembershipRequest, AskMembershipResponse)
_VERSION: Final = 1


class GroupClient:
    """Asks the group coordinator: here, or over the brokers' own channel."""

    def __init__(
        self,
        service: GroupService,
        topic: InternalTopic,
        store: MetadataStore,
        *,
        broker_id: BrokerId,
        peers: Peers | None,
    ) -> None:
        self._service = service
        self._topic = topic
        self._store = store
        self._broker_id = broker_id
        self._peers = peers

    def register(self, service: PeerService) -> None:
        """Answer the other brokers."""
        service.register(ASK_MEMBERSHIP, self._asked)

    async def ensure(self) -> None:
        await self._topic.ensure()

    async def handle(self, request: GroupRequest) -> GroupResponse:
        message = request.message
        assert isinstance(message, ConsumerGroupHeartbeatRequest)
        if self._peers is None:
            return await self._service.handle(request)
        image = self._store.image
        index = self._service.partition_for(message.group_id)
        state = image.partition(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))
        leader = NO_BROKER if state is None else image.leader_of(state)
        if leader == self._broker_id:
            return await self._service.handle(request)
        if leader == NO_BROKER:
            return refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        asked = AskMembershipRequest(
            client_id=request.client_id,
            client_host=request.client_host,
            body=_encode(message),
        )
        try:
            answer = await self._peers.request(leader, ASK_MEMBERSHIP, asked)
        except BrokerError:
            return refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return decode_message(ConsumerGroupHeartbeatResponse, _VERSION, answer.body, 0)

    async def _asked(
        self, _peer: PeerConnection, asked: AskMembershipRequest
    ) -> AskMembershipResponse:
        message = decode_message(ConsumerGroupHeartbeatRequest, _VERSION, asked.body, 0)
        answer = await self._service.handle(
            GroupRequest(
                message=message,
                version=_VERSION,
                client_id=asked.client_id,
                client_host=asked.client_host,
            )
        )
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return AskMembershipResponse(body=_encode(answer))


def _encode(message: Message) -> bytes:
    parts: list[bytes] = []
    encoder(type(message), _VERSION)(message, parts)
    return b"".join(parts)

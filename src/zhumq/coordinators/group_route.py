"""The way to the coordinator of a group from any broker, for push consumers and their positions."""

from typing import Any, Final

from zhumq.coordinators.group_service import GroupService
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.router import LeaderRouter, RouteKind
from zhumq.groups.requests import GroupRequest, GroupResponse
from zhumq.model.errors import InvalidRequest
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from zhumq.protocol.api import APIS, ApiKey
from zhumq.protocol.compiler import decode_message, encoder
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.forward import ForwardedGroupRequest

_BODY_VERSION: Final = 0


class GroupRoute:
    """A `Route` for Kafka's requests about groups."""

    kind: int = RouteKind.GROUP

    def __init__(self, service: GroupService) -> None:
        self._service = service

    async def answer(self, _partition: TopicPartition, request: GroupRequest) -> GroupResponse:
        return await self._service.handle(request)

    def encode_request(self, request: GroupRequest) -> bytes:
        forwarded = ForwardedGroupRequest(
            api_key=_key_of(request),
            version=request.version,
            client_id=request.client_id,
            client_host=request.client_host,
            message=_encode(request.message, request.version),
        )
        return encode_versioned(forwarded, _BODY_VERSION)

    def decode_request(self, body: bytes) -> GroupRequest:
        forwarded = decode_versioned(ForwardedGroupRequest, body)[1]
        if forwarded.api_key not in APIS:
            raise InvalidRequest(f"API key {forwarded.api_key} is no request about groups")
        message: Any = decode_message(
            APIS[ApiKey(forwarded.api_key)].request, forwarded.version, forwarded.message, 0
        )
        return GroupRequest(
            message=message,
            version=forwarded.version,
            client_id=forwarded.client_id,
            client_host=forwarded.client_host,
        )

    def encode_response(self, request: GroupRequest, response: GroupResponse) -> bytes:
        return _encode(response, request.version)

    def decode_response(self, request: GroupRequest, body: bytes) -> GroupResponse:
        response: Any = decode_message(APIS[_key_of(request)].response, request.version, body, 0)
        return response  # type: ignore[no-any-return]


class RoutedGroups:
    """Answers requests about any group, whichever broker coordinates it."""

    def __init__(self, router: LeaderRouter, service: GroupService, topic: InternalTopic) -> None:
        self._router = router
        self._service = service
        self._topic = topic
        self._route = GroupRoute(service)
        router.add(self._route)

    async def ensure(self) -> None:
        """Done when `__consumer_offsets` exists. Raises BrokerError."""
        await self._topic.ensure()

    async def handle(self, group_id: str, request: GroupRequest) -> GroupResponse:
        """The coordinator's answer. Raises BrokerError where it cannot be reached."""
        index = self._service.partition_for(group_id)
        partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, index)
        return await self._router.send(self._route, partition, request)


def _key_of(request: GroupRequest) -> ApiKey:
    message: Any = request.message
    return ApiKey(message.__declared__.api_key)


def _encode(message: Any, version: int) -> bytes:
    parts: list[bytes] = []
    encoder(type(message), version)(message, parts)
    return b"".join(parts)

"""The one way to the leader of a partition: a call where this broker leads it, a message to its leader otherwise."""

from enum import IntEnum, unique
from typing import Any, Final, Protocol, TypeVar

from zhumq.cluster.store import MetadataStore
from zhumq.metadata.image import NO_BROKER
from zhumq.model.errors import InvalidRequest, LeaderNotAvailable
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.protocol.messages.forward import ForwardRequest, ForwardResponse
from zhumq.protocol.peer_api import PeerApi
from zhumq.replication.inter_broker.peer_service import PeerConnection
from zhumq.replication.replication import Replication

FORWARD: Final = PeerApi(ForwardRequest, ForwardResponse)
ANSWER_MS_MAX: Final = 5_000

Request = TypeVar("Request")
Response = TypeVar("Response")


@unique
class RouteKind(IntEnum):
    """The kinds of requests between brokers. Their numbers are on the wire: they stay."""

    GROUP = 1
    DELIVERY_STATE = 2
    DEAD_LETTER = 3
    TRANSACTION = 4
    OWN_PRODUCER = 5
    OWN_APPEND = 6
    LOOKUP = 7
    STAGE_DELAYED = 8
    SCHEDULE = 9
    OFFSET_TIMES = 10
    SCHEMA_IDS = 11


class Route(Protocol[Request, Response]):
    """One kind of requests to the leaders of partitions: how a leader answers, and how both travel."""

    kind: int  # a RouteKind

    async def answer(self, partition: TopicPartition, request: Request) -> Response:
        """Carry out the request on this broker. Raises BrokerError."""

    def encode_request(self, request: Request) -> bytes: ...

    def decode_request(self, body: bytes) -> Request: ...

    def encode_response(self, request: Request, response: Response) -> bytes: ...

    def decode_response(self, request: Request, body: bytes) -> Response: ...


class LeaderRouter:
    """Sends requests to the leaders of partitions."""

    def __init__(self, store: MetadataStore, broker_id: BrokerId, replication: Replication) -> None:
        self._store = store
        self._broker_id = broker_id
        self._peers = replication.peers
        self._routes: dict[int, Route[Any, Any]] = {}
        replication.service.register(FORWARD, self._forwarded)

    def add(self, route: Route[Any, Any]) -> None:
        """Answer other brokers' requests of this kind."""
        if route.kind in self._routes:
            raise ValueError(f"there is a route of kind {route.kind} already")
        self._routes[route.kind] = route

    def leads(self, partition: TopicPartition) -> bool:
        """Whether the metadata image names this broker as the leader: `send` would call, not write."""
        image = self._store.image
        state = image.partition(partition)
        return state is not None and image.leader_of(state) == self._broker_id

    async def send(
        self, route: Route[Request, Response], partition: TopicPartition, request: Request
    ) -> Response:
        """The answer of the leader. One attempt: raises LeaderNotAvailable where the metadata image names no
        leader, PeerRefused with the leader's error, and BrokerError where it does not answer in time."""
        image = self._store.image
        state = image.partition(partition)
        leader = NO_BROKER if state is None else image.leader_of(state)
        if leader == NO_BROKER:
            raise LeaderNotAvailable(f"no broker leads {partition} now")
        if leader == self._broker_id:
            return await route.answer(partition, request)
        forwarded = ForwardRequest(
            kind=route.kind,
            topic=partition.topic,
            partition=partition.partition,
            body=route.encode_request(request),
        )
        answer = await self._peers.request(leader, FORWARD, forwarded, timeout_ms=ANSWER_MS_MAX)
        return route.decode_response(request, answer.body)

    async def _forwarded(self, _peer: PeerConnection, asked: ForwardRequest) -> ForwardResponse:
        route = self._routes.get(asked.kind)
        if route is None:
            raise InvalidRequest(f"this broker knows no route of kind {asked.kind}")
        request = route.decode_request(asked.body)
        response = await route.answer(TopicPartition(asked.topic, asked.partition), request)
        return ForwardResponse(body=route.encode_response(request, response))

"""The routes: what is sent to a leader arrives as it was, and the leader's answer comes back."""

import asyncio
import uuid
from typing import Any, cast

import pytest

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_routes import DeadLetterRoute, DeliveryStateRoute
from zhumq.coordinators.group_route import GroupRoute
from zhumq.coordinators.router import LeaderRouter
from zhumq.groups.requests import GroupRequest
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.model.errors import InvalidRequest, LeaderNotAvailable
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from zhumq.protocol.messages.coordinator_records import encode_versioned
from zhumq.protocol.messages.delivery_state import ListSessionsRequest, ListSessionsResponse
from zhumq.protocol.messages.forward import (
    ForwardedGroupRequest,
    ForwardRequest,
    ForwardResponse,
)
from zhumq.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from zhumq.protocol.peer_api import PeerApi
from zhumq.replication.replication import Replication

PLACE = TopicPartition("t", 0)


class Upper:
    """A route that answers with capitals, and counts its answers."""

    kind = 9

    def __init__(self) -> None:
        self.answered: list[tuple[TopicPartition, str]] = []

    async def answer(self, partition: TopicPartition, request: str) -> str:
        self.answered.append((partition, request))
        return request.upper()

    def encode_request(self, request: str) -> bytes:
        return request.encode()

    def decode_request(self, body: bytes) -> str:
        return body.decode()

    def encode_response(self, _request: str, response: str) -> bytes:
        return response.encode()

    def decode_response(self, _request: str, body: bytes) -> str:
        return body.decode()


class Cluster:
    """Two brokers' routers that reach each other without a network: service and peers in one."""

    def __init__(self, leader: int) -> None:
        self._handlers: list[Any] = []
        state = PartitionState(
            replicas=(BrokerId(1), BrokerId(2)),
            in_sync=(BrokerId(1), BrokerId(2)),
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(1),
        )
        topic = Topic(name="t", topic_id=uuid.UUID(int=1), partitions=(state,))
        self.image = ClusterImage(
            version=1,
            cluster_id="c",
            controller_id=BrokerId(1),
            brokers={
                BrokerId(each): Broker(broker_id=BrokerId(each), host="h", port=1)
                for each in (1, 2)
            },
            topics={"t": topic},
            topics_by_id={topic.topic_id: topic},
            partition_count=1,
        )

    @property
    def peers(self) -> "Cluster":
        return self

    @property
    def service(self) -> "Cluster":
        return self

    def register(self, _api: PeerApi[Any, Any], handler: Any) -> None:
        self._handlers.append(handler)

    async def request(
        self, broker_id: int, _api: PeerApi[Any, Any], message: ForwardRequest, *, timeout_ms: int
    ) -> ForwardResponse:
        assert timeout_ms > 0
        response: ForwardResponse = await self._handlers[broker_id - 1](None, message)
        return response


def routers(leader: int) -> tuple[LeaderRouter, Upper, Upper]:
    cluster = Cluster(leader)
    routes = Upper(), Upper()
    made = [
        LeaderRouter(cast("MetadataStore", cluster), BrokerId(each), cast("Replication", cluster))
        for each in (1, 2)
    ]
    for router, route in zip(made, routes, strict=True):
        router.add(route)
    return made[0], *routes


def test_the_leader_itself_answers() -> None:
    router, here, there = routers(leader=1)
    assert asyncio.run(router.send(here, PLACE, "hello")) == "HELLO"
    assert (here.answered, there.answered) == ([(PLACE, "hello")], [])


def test_another_leader_is_asked() -> None:
    router, here, there = routers(leader=2)
    assert asyncio.run(router.send(here, PLACE, "hello")) == "HELLO"
    assert (here.answered, there.answered) == ([], [(PLACE, "hello")])


@pytest.mark.parametrize("place", [PLACE, TopicPartition("t", 5), TopicPartition("absent", 0)])
def test_without_a_leader_there_is_no_answer(place: TopicPartition) -> None:
    router, here, there = routers(leader=-1)
    with pytest.raises(LeaderNotAvailable):
        asyncio.run(router.send(here, place, "hello"))
    assert here.answered == there.answered == []


def test_a_kind_is_taken_once_and_an_unknown_one_is_refused() -> None:
    router, here, _ = routers(leader=2)
    with pytest.raises(ValueError, match="kind 9"):
        router.add(here)

    class Unknown(Upper):
        kind = 77

    with pytest.raises(InvalidRequest, match="kind 77"):
        asyncio.run(router.send(Unknown(), PLACE, "x"))


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3), 1),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 9),
    ],
)
def test_a_group_request_arrives_as_it_was(message: Any, version: int) -> None:
    route = GroupRoute(cast("Any", None))
    request = GroupRequest(
        message=message, version=version, client_id="app", client_host="10.0.0.7"
    )
    assert route.decode_request(route.encode_request(request)) == request


def test_an_unknown_group_request_is_refused() -> None:
    body = encode_versioned(ForwardedGroupRequest(api_key=999, version=0), 0)
    with pytest.raises(InvalidRequest, match="999"):
        GroupRoute(cast("Any", None)).decode_request(body)


def test_a_group_response_comes_back_in_the_version_of_its_request() -> None:
    route = GroupRoute(cast("Any", None))
    request = GroupRequest(message=ConsumerGroupHeartbeatRequest(group_id="g"), version=1)
    response = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=4)
    assert route.decode_response(request, route.encode_response(request, response)) == response


def test_a_request_about_delivery_state_arrives_as_it_was() -> None:
    route = DeliveryStateRoute(cast("Any", None))
    request = ListSessionsRequest()
    assert route.decode_request(route.encode_request(request)) == request
    response = ListSessionsResponse()
    assert route.decode_response(request, route.encode_response(request, response)) == response
    for body in (b"", b"\xff"):
        with pytest.raises(InvalidRequest):
            route.decode_request(body)


def test_the_kinds_of_all_routes_differ() -> None:
    kinds = [each.kind for each in (GroupRoute, DeliveryStateRoute, DeadLetterRoute)]
    assert len(set(kinds)) == len(kinds)

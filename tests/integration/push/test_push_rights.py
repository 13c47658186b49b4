"""Push asks the same authorizer as Kafka's requests: subscriptions, leaders, sessions, groups, releases."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from push_support import bare_stream, run
from tests.access_check import World
from tests.access_matrix import GROUP, TOPIC, Right

from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.callers import host_of
from zhumq.security.acl import Operation
from zhumq.testing.broker import RunningBroker, broker

SETTINGS = {"authorizer.class.name": "zhumq", "allow.everyone.if.no.acl.found": "true"}
READS_TOPIC = Right(Operation.READ, TOPIC)
READS_GROUP = Right(Operation.READ, GROUP)
DELETES_GROUP = Right(Operation.DELETE, GROUP)
DESCRIBES_GROUP = Right(Operation.DESCRIBE, GROUP)
DESCRIBES_TOPIC = Right(Operation.DESCRIBE, TOPIC)
SESSIONS_TOPIC = "sessions"


@pytest.fixture(scope="module")
def secured() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def of_secured(secured: RunningBroker) -> Iterator[World]:
    made = World.by_address(secured.bootstrap, tested_host="127.0.0.1")
    yield made
    made.close()


@pytest.fixture
def world(of_secured: World) -> Iterator[World]:
    of_secured.revoke_all()
    yield of_secured
    of_secured.revoke_all()


def subscribe(topic: str, group: str = "", mode: pb.Mode = pb.PTP_SHARED) -> pb.Subscribe:
    return pb.Subscribe(
        topics=[pb.TopicChoice(name=topic)], group=group, mode=mode, credits=10, consumer="c"
    )


async def first_frame(push: str, request: pb.Subscribe) -> pb.ServerFrame:
    async with bare_stream(push, request) as stream:
        frame = await stream.receive()
        assert frame is not None
        return frame


def call(push: str, method: str, request: Any, response: Any) -> Any:
    with grpc.insecure_channel(push) as channel:
        made = channel.unary_unary(
            f"/zhumq.push.v1.Push/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return made(request, timeout=30)


@pytest.mark.parametrize("topic", ["pushed", "absent"])
def test_a_subscription_without_rights_is_refused_whether_its_topic_exists_or_not(
    secured: RunningBroker, world: World, topic: str
) -> None:
    if topic == "pushed":
        world.make("pushed", None)
    frame = run(first_frame(secured.push, subscribe(topic, "g")))
    assert frame.refused.code == pb.NOT_AUTHORIZED
    assert not frame.refused.retry
    assert topic not in frame.refused.message


def test_a_subscription_needs_to_read_its_topic_and_its_group(
    secured: RunningBroker, world: World
) -> None:
    world.make("read", None)
    world.grant((READS_TOPIC, "read"))
    assert run(first_frame(secured.push, subscribe("read", "g"))).refused.code == pb.NOT_AUTHORIZED
    unnamed = run(first_frame(secured.push, subscribe("read")))
    assert unnamed.refused.code == pb.NOT_AUTHORIZED, "its group is made of the topic's name"
    world.grant((READS_GROUP, "g"))
    assert run(first_frame(secured.push, subscribe("read", "g"))).HasField("subscribed")


def test_a_psb_consumer_without_a_group_needs_the_topic_alone(
    secured: RunningBroker, world: World
) -> None:
    world.make("broadcast", None)
    world.grant((READS_TOPIC, "broadcast"))
    frame = run(first_frame(secured.push, subscribe("broadcast", mode=pb.PSB)))
    assert frame.HasField("subscribed")


def test_a_consumer_that_loses_its_rights_gets_nothing_more(
    secured: RunningBroker, world: World
) -> None:
    world.make("lost", None)
    world.grant((READS_TOPIC, "lost"), (READS_GROUP, "losing"))

    async def scenario() -> None:
        async with bare_stream(secured.push, subscribe("lost", "losing")) as stream:
            await stream.receive_kind("subscribed")
            world.revoke_all()
            while (frame := await stream.receive()) is not None:
                if frame.HasField("refused"):
                    assert frame.refused.code == pb.NOT_AUTHORIZED
                    return
            pytest.fail("the stream ended without a refusal")

    run(scenario())


def test_leaders_are_for_those_who_may_describe_the_topic(
    secured: RunningBroker, world: World
) -> None:
    world.make("led", None)
    for name in ("led", "absent"):
        request = pb.LeadersRequest(topics=[name])
        refused = call(secured.push, "Leaders", request, pb.LeadersResponse)
        assert (refused.code, list(refused.leaders)) == (pb.NOT_AUTHORIZED, [])
    world.grant((DESCRIBES_TOPIC, "led"))
    found = call(secured.push, "Leaders", pb.LeadersRequest(topics=["led"]), pb.LeadersResponse)
    assert (found.code, len(found.leaders)) == (pb.OK, 1)


def test_retention_is_explained_to_those_who_may_describe_the_topic(
    secured: RunningBroker, world: World
) -> None:
    world.make("kept", None)

    def explained(topic: str) -> pb.ExplainRetentionResponse:
        request = pb.ExplainRetentionRequest(topic=topic)
        answer = call(secured.push, "ExplainRetention", request, pb.ExplainRetentionResponse)
        assert isinstance(answer, pb.ExplainRetentionResponse)
        return answer

    for name in ("kept", "absent"):
        refused = explained(name)
        assert (refused.code, refused.disk_total_bytes) == (pb.NOT_AUTHORIZED, 0)
    world.grant((DESCRIBES_TOPIC, "kept"), (DESCRIBES_TOPIC, "absent"))
    assert (explained("kept").code, len(explained("kept").segments)) == (pb.OK, 1)
    assert explained("absent").code == pb.UNKNOWN_TOPIC


def test_sessions_and_groups_are_left_out_of_lists_and_refused_by_name(
    secured: RunningBroker, world: World
) -> None:
    world.make(SESSIONS_TOPIC, None)
    reading = ((READS_TOPIC, SESSIONS_TOPIC), (READS_GROUP, "listed"))

    def sessions() -> list[str]:
        answer = call(
            secured.push, "ListSessions", pb.ListSessionsRequest(), pb.ListSessionsResponse
        )
        return [each.name for each in answer.sessions]

    def claims() -> list[str]:
        answer = call(secured.push, "ListGroups", pb.ListGroupsRequest(), pb.ListGroupsResponse)
        groups = {each.group for each in (*answer.claims, *answer.partitions, *answer.consumers)}
        return sorted(groups)

    async def scenario() -> None:
        world.grant(*reading)
        async with bare_stream(secured.push, subscribe(SESSIONS_TOPIC, "listed")) as stream:
            await stream.receive_kind("subscribed")
            assert sessions() == ["listed/c"]
            assert claims() == ["listed"]
        world.revoke_all()
        world.grant((DESCRIBES_GROUP, "listed"))
        assert (sessions(), claims()) == ([], []), "the topic is not described"
        world.grant((DESCRIBES_TOPIC, SESSIONS_TOPIC))
        assert claims() == ["listed"]

    run(scenario())
    resume = pb.ResumeSessionRequest(name="listed/c")
    refused = call(secured.push, "ResumeSession", resume, pb.ResumeSessionResponse)
    assert refused.code == pb.NOT_AUTHORIZED
    release = pb.ReleaseRequest(topic=SESSIONS_TOPIC)
    world.grant((READS_TOPIC, SESSIONS_TOPIC))
    assert call(secured.push, "Release", release, pb.ReleaseResponse).code == pb.NOT_AUTHORIZED
    world.grant((DELETES_GROUP, "listed"))
    assert call(secured.push, "Release", release, pb.ReleaseResponse).code == pb.OK


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.9:5000", "10.0.0.9"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[fe80::1]:5000", "fe80::1"),
    ],
)
def test_the_host_of_a_caller_is_its_address(peer: str, host: str) -> None:
    assert host_of(peer) == host

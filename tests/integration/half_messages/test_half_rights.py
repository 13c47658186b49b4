"""Half messages and ACLs: a producer group is a transactional id; operators need ALTER on the cluster."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from half_support import SETTINGS, wait_for
from tests.access_check import World
from tests.access_matrix import Right

from zhumq import Admin, HalfMessageProducer
from zhumq.client.errors import AuthenticationFailed, HalfMessageRefused, RequestFailed
from zhumq.model.password import Password
from zhumq.protocol.push import push_pb2 as pb
from zhumq.security.acl import CLUSTER_NAME, Operation, ResourceType
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.secured import SecuredBroker

RIGHTS = {"authorizer.class.name": "zhumq", "allow.everyone.if.no.acl.found": "true"}
WRITES_GROUP = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBES_GROUP = Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
WRITES_TOPIC = Right(Operation.WRITE, ResourceType.TOPIC)
READS_TOPIC = Right(Operation.READ, ResourceType.TOPIC)
ALTERS_CLUSTER = Right(Operation.ALTER, ResourceType.CLUSTER)


@pytest.fixture(scope="module")
def secured() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS | RIGHTS) as running:
        yield running


@pytest.fixture(scope="module")
def of_secured(secured: RunningBroker) -> Iterator[World]:
    made = World.by_address(secured.bootstrap, tested_host="127.0.0.1")
    made.make("orders", None)
    yield made
    made.close()


@pytest.fixture
def world(of_secured: World) -> Iterator[World]:
    of_secured.revoke_all()
    yield of_secured
    of_secured.revoke_all()


def producer_of(secured: RunningBroker) -> HalfMessageProducer:
    return HalfMessageProducer(
        secured.bootstrap, push=secured.push, group="shop", check=None, timeout=30
    )


def call(secured: RunningBroker, method: str, **fields: Any) -> Any:
    with grpc.insecure_channel(secured.push) as channel:
        made: Any = channel.unary_unary(
            f"/zhumq.push.v1.Push/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(pb, f"{method}Response").FromString,
        )
        return made(getattr(pb, f"{method}Request")(**fields), timeout=30)


def test_a_producer_needs_to_write_to_its_group_and_to_the_topic(
    secured: RunningBroker, world: World
) -> None:
    with producer_of(secured) as producer, pytest.raises(RequestFailed, match="not permitted"):
        producer.prepare("orders", "x")
    world.grant((WRITES_GROUP, "shop"))
    with producer_of(secured) as producer:
        with pytest.raises(HalfMessageRefused, match="writing to topic 'orders'") as refused:
            producer.prepare("orders", "x")
        assert refused.value.code == "NOT_AUTHORIZED"
        world.grant((WRITES_TOPIC, "orders"))
        producer.prepare("orders", "x").commit()


def test_a_producer_that_loses_its_rights_can_do_nothing_more(
    secured: RunningBroker, world: World
) -> None:
    world.grant((WRITES_GROUP, "shop"), (WRITES_TOPIC, "orders"))
    with producer_of(secured) as producer:
        half = producer.prepare("orders", "x")
        world.revoke_all()

        def refusal() -> str:
            try:
                half.rollback()
            except (HalfMessageRefused, RequestFailed) as refused:
                return str(refused)
            return ""

        assert "not permitted" in wait_for(refusal, "the producer is refused")


def test_operators_see_groups_that_they_may_describe_and_decide_with_a_right_on_the_cluster(
    secured: RunningBroker, world: World
) -> None:
    world.grant((WRITES_GROUP, "shop"), (WRITES_TOPIC, "orders"))
    with producer_of(secured) as producer:
        half = producer.prepare("orders", "secret")
    world.revoke_all()
    assert half.id not in [each.id for each in call(secured, "ListHalf", limit=1_000).messages]
    assert call(secured, "ShowHalf", id=half.id).code == pb.UNKNOWN_HALF_MESSAGE
    decide = {"id": half.id, "decision": pb.HALF_ROLLBACK}
    assert call(secured, "DecideHalf", **decide).code == pb.NOT_AUTHORIZED
    assert call(secured, "HalfCoordinator", group="shop").code == pb.NOT_AUTHORIZED
    world.grant((DESCRIBES_GROUP, "shop"))
    assert half.id in [each.id for each in call(secured, "ListHalf", limit=1_000).messages]
    shown = call(secured, "ShowHalf", id=half.id)
    assert (shown.code, shown.HasField("body")) == (pb.OK, False)
    world.grant((READS_TOPIC, "orders"))
    assert call(secured, "ShowHalf", id=half.id).body.value == b"secret"
    assert call(secured, "DecideHalf", **decide).code == pb.NOT_AUTHORIZED
    world.grant((ALTERS_CLUSTER, CLUSTER_NAME))
    assert call(secured, "DecideHalf", id=half.id).code == pb.INVALID
    assert call(secured, "DecideHalf", **decide).code == pb.OK


def test_a_producer_logs_in_over_tls_and_a_wrong_password_ends_it(
    zhumq_broker_secured: SecuredBroker,
) -> None:
    running = zhumq_broker_secured
    with Admin(running.bootstrap, security=running.admin_security) as admin:
        admin.create_topic("orders", partitions=1)
    with HalfMessageProducer(
        running.bootstrap, group="shop", check=None, security=running.security
    ) as producer:
        producer.prepare("orders", "x").commit()
    wrong = dataclasses.replace(running.security, password=Password("wrong"))
    with (
        HalfMessageProducer(
            running.bootstrap, push=running.push, group="shop", check=None, security=wrong
        ) as producer,
        pytest.raises(AuthenticationFailed),
    ):
        producer.prepare("orders", "x")

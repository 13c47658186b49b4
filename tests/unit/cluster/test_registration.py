"""A broker that registers waits for a broken connection, within its configured time."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.ensemble_link import EnsembleLink
from zhumq.cluster.membership import Membership
from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import (
    ConnectionLost,
    LinkState,
    Node,
    Operation,
    SessionOver,
    ZnodeError,
)
from zhumq.metadata.changes import Change
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.model.ids import BrokerId

SESSION = 5
BROKER = Broker(broker_id=BrokerId(1), host="h", port=1)
IMAGE = ClusterImage(
    version=7, cluster_id="c", controller_id=BrokerId(-1), brokers={}, topics={}, topics_by_id={}
)


class BreakingStore:
    """A store whose connection breaks with each of these errors in turn."""

    image = IMAGE

    def __init__(self, *failures: ZnodeError) -> None:
        self.failures = list(failures)

    async def transact(
        self, plan: Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]
    ) -> ClusterImage:
        plan(self.image)
        if self.failures:
            raise self.failures.pop(0)
        return self.image

    def check_for_changes(self) -> None:
        """No effect: there are no other brokers."""


class OwnNode:
    """A client that finds the registration of its own session."""

    async def get(self, _path: str) -> Node:
        registration = layout.Registration(host="h", port=1, epoch=7, session_timeout_ms=1_000)
        return Node(
            data=layout.encode_registration(registration),
            version=0,
            created_zxid=0,
            modified_zxid=0,
            owner_session=SESSION,
        )


def membership(link: EnsembleLink, store: BreakingStore) -> Membership:
    return Membership(link, OwnNode(), store, session_timeout_ms=1_000)  # type: ignore[arg-type]


def test_a_broker_registers_through_broken_connections() -> None:
    async def scenario() -> None:
        link = EnsembleLink(connect_ms_max=5_000)
        store = BreakingStore(ConnectionLost("/version"), SessionOver("/version"))
        made = membership(link, store)
        link.changed(LinkState.CONNECTED, SESSION)
        await made.register(BROKER)
        assert made.broker_epoch == IMAGE.version

    asyncio.run(scenario())


def test_a_broker_that_cannot_register_reports_that_the_ensemble_does_not_answer() -> None:
    async def scenario() -> None:
        link = EnsembleLink(connect_ms_max=20)
        made = membership(link, BreakingStore(ConnectionLost("/version")))
        with pytest.raises(StoreUnusable, match="ZooKeeper stopped answering"):
            await made.register(BROKER)

    asyncio.run(scenario())


def test_an_error_of_a_node_names_the_node_in_its_message() -> None:
    message = "ZooKeeper did not answer a request for the node /version"
    assert str(ConnectionLost("/version")) == message

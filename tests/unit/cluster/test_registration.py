"""A connection that breaks while a broker registers is waited for, not longer than it was told to."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from zhumq.cluster import zookeeper_layout as layout
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


class BreakingLedger:
    """A store whose connection breaks as often as it is told to."""

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

    def look_again(self) -> None:
        """Nothing is newer here."""


class OwnNode:
    """A session that finds its own registration."""

    async def get(self, _path: str) -> Node:
        registration = layout.Registration(host="h", port=1, epoch=7, session_timeout_ms=1_000)
        return Node(
            data=layout.encode_registration(registration),
            version=0,
            created_zxid=0,
            modified_zxid=0,
            owner_session=SESSION,
        )


def membership(ledger: BreakingLedger, connect_ms_max: int = 5_000) -> Membership:
    made = Membership(session_timeout_ms=1_000, connect_ms_max=connect_ms_max)
    made.attach(OwnNode(), ledger)  # type: ignore[arg-type]
    return made


def test_a_broker_registers_through_broken_connections() -> None:
    async def scenario() -> None:
        made = membership(BreakingLedger(ConnectionLost("/version"), SessionOver("/version")))
        made.link_changed(LinkState.CONNECTED, SESSION)
        await made.register(BROKER)
        assert made.broker_epoch == IMAGE.version

    asyncio.run(scenario())


def test_a_broker_that_cannot_register_says_that_the_ensemble_does_not_answer() -> None:
    async def scenario() -> None:
        made = membership(BreakingLedger(ConnectionLost("/version")), connect_ms_max=20)
        with pytest.raises(StoreUnusable, match="ZooKeeper stopped answering"):
            await made.register(BROKER)

    asyncio.run(scenario())


def test_what_goes_wrong_with_a_node_is_said_in_words() -> None:
    assert str(ConnectionLost("/version")) == "ZooKeeper did not answer about the node /version"

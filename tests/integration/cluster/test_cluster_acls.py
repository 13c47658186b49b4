"""ACLs of a cluster on ZooKeeper: every broker decides by a change that any broker made, after a restart, too."""

import time
from collections.abc import Iterator

import pytest
from tests.access_check import (
    ADMIN_HOST,
    TESTED_HOST,
    Client,
    acl_of,
    codes_of,
    connect,
    create_acls,
)
from tests.access_matrix import ANY_ACL, CLUSTER, GROUP, TOPIC, Right

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages import acls, metadata
from zhumq.security.acl import CLUSTER_NAME, Operation
from zhumq.testing.cluster import ClusterProcesses, cluster_processes

pytestmark = pytest.mark.slow

SECONDS_MAX = 30.0
SETTINGS = {"authorizer.class.name": "zhumq", "allow.everyone.if.no.acl.found": "true"}
TESTED = Client.at("", TESTED_HOST)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def secured() -> Iterator[ClusterProcesses]:
    with cluster_processes(nodes=3, settings=SETTINGS) as running:
        everything = [
            acl_of(Right(Operation.ALL, type_), name, Client.at("", ADMIN_HOST))
            for type_, name in ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, CLUSTER_NAME))
        ]
        create(running.brokers[1].bootstrap, *everything)
        yield running


def create(bootstrap: str, *creations: acls.AclCreation) -> None:
    with connect(bootstrap, ADMIN_HOST) as admin:
        create_acls(admin, list(creations))


def is_refused(bootstrap: str, topic: str) -> bool:
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    with connect(bootstrap, TESTED_HOST) as tested:
        return REFUSED in codes_of(tested.ask(ApiKey.METADATA, request))


def seconds_until(cluster: ClusterProcesses, topic: str, *, refused: bool) -> float:
    """How long it takes until every broker decides so."""
    begin = time.monotonic()
    for broker in cluster.brokers.values():
        while is_refused(broker.bootstrap, topic) is not refused:
            assert time.monotonic() - begin < SECONDS_MAX, f"{broker.bootstrap} decides as before"
    return time.monotonic() - begin


def test_every_broker_decides_by_a_change_that_any_broker_made(secured: ClusterProcesses) -> None:
    took = []
    for broker_id, broker in secured.brokers.items():
        topic = f"orders-{broker_id}"
        create(broker.bootstrap, acl_of(Right(Operation.DESCRIBE, TOPIC), topic, TESTED))
        took.append(seconds_until(secured, topic, refused=False))
        with connect(broker.bootstrap, ADMIN_HOST) as admin:
            mine = acls.DeleteAclsFilter(**{**ANY_ACL, "host_filter": TESTED_HOST})
            admin.ask(ApiKey.DELETE_ACLS, acls.DeleteAclsRequest(filters=[mine]))
        took.append(seconds_until(secured, topic, refused=True))
    print(f"slowest of {len(took)} changes on three brokers: {max(took):.3f} s")


def test_a_broker_that_restarts_decides_by_the_acls_of_the_cluster(
    secured: ClusterProcesses,
) -> None:
    create(
        secured.brokers[1].bootstrap,
        acl_of(Right(Operation.DESCRIBE, TOPIC), "kept", TESTED),
    )
    seconds_until(secured, "kept", refused=False)
    secured.brokers[2].kill()
    secured.restart(2)
    assert not is_refused(secured.brokers[2].bootstrap, "kept")
    assert is_refused(secured.brokers[2].bootstrap, "other")

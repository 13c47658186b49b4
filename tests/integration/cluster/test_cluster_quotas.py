"""Quotas of a cluster on ZooKeeper: every broker throttles by a change that any broker made."""

import time
from collections.abc import Iterator

import pytest

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.quotas import alter_quotas
from zhumq.client.wire import Connection
from zhumq.model.address import parse_address
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.testing.cluster import ClusterProcesses, cluster_processes

pytestmark = pytest.mark.slow

SECONDS_MAX = 30.0
VALUE = b"x" * 5_000
# Two samples: the first burst is one second long.
SETTINGS = {"quota.window.num": "2"}
LOW, HIGH = 100.0, 1e9  # bytes a second


@pytest.fixture(scope="module")
def limited() -> Iterator[ClusterProcesses]:
    with cluster_processes(nodes=3, settings=SETTINGS) as running:
        yield running


def throttle_ms(bootstrap: str, client_id: str) -> int:
    """For how long a broker throttles a client that sends a message to it."""
    record = Record(offset=0, timestamp=0, key=None, value=VALUE, headers=())
    partition = PartitionProduceData(index=0, records=build_batch([record]))
    # The bytes of a request count, whatever becomes of it: the broker that is asked need not lead a partition.
    data = [TopicProduceData(name="absent", partition_data=[partition])]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=data)
    with Connection.open(
        [parse_address(bootstrap)], client_id=client_id, request_seconds=SECONDS_MAX
    ) as client:
        answer = client.ask(ApiKey.PRODUCE, request)
    milliseconds: int = answer.throttle_time_ms
    return milliseconds


def seconds_until(cluster: ClusterProcesses, client_id: str, *, throttled: bool) -> float:
    """How long it takes until every broker throttles the client, or none does."""
    begin = time.monotonic()
    for broker in cluster.brokers.values():
        while (throttle_ms(broker.bootstrap, client_id) > 0) is not throttled:
            assert time.monotonic() - begin < SECONDS_MAX, f"{broker.bootstrap} decides as before"
    return time.monotonic() - begin


def test_every_broker_throttles_by_a_change_that_any_broker_made(limited: ClusterProcesses) -> None:
    took = []
    for broker_id, broker in limited.brokers.items():
        client_id = f"client-{broker_id}"
        with ClusterConnection(broker.bootstrap) as admin:
            for quota in (LOW, HIGH, LOW, None):
                alter_quotas(admin, {"client-id": client_id}, {"producer_byte_rate": quota})
                took.append(seconds_until(limited, client_id, throttled=quota == LOW))
                assert throttle_ms(broker.bootstrap, "another") == 0
    print(f"slowest of {len(took)} changes on three brokers: {max(took):.3f} s")


def test_a_broker_that_restarts_throttles_by_the_quotas_of_the_cluster(
    limited: ClusterProcesses,
) -> None:
    with ClusterConnection(limited.brokers[1].bootstrap) as admin:
        alter_quotas(admin, {"client-id": "kept"}, {"producer_byte_rate": LOW})
    limited.brokers[2].kill()
    limited.restart(2)
    assert throttle_ms(limited.brokers[2].bootstrap, "kept") > 0

"""Lookup in a cluster: from any broker, and after the leader with the index has failed."""

import pytest
from confluent_kafka import Producer

from zhumq import Admin
from zhumq.admin.lookup import Lookup
from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60.0
COUNT = 3_000


def found_from(bootstrap: str, topic: str, key: str) -> Lookup:
    with Admin(bootstrap) as admin:
        return admin.lookup(topic, key=key)


@pytest.mark.parametrize("mode", ["raft", "fetch"])
def test_any_broker_answers_also_after_the_leader_has_failed(
    cluster: ClusterProcesses, mode: str
) -> None:
    topic = f"lookup-{mode}"
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(
            topic,
            partitions=1,
            replicas=3,
            settings={"index.keys": "true", "replication.mode": mode, "segment.bytes": "50000"},
        )
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, key=b"k%d" % (number % 1000))
    assert producer.flush(WAIT_SECONDS) == 0
    expected = [b"2007", b"1007", b"7"]
    for broker in cluster.brokers.values():
        found = found_from(broker.bootstrap, topic, "k7")
        assert [message.value for message in found.messages] == expected
    leader = cluster.wait_for_leader(topic, 0)
    cluster.kill(leader)
    (other, *_) = (broker for broker in cluster.brokers.values() if broker.running)
    # The new leader answers at once, by a scan, and has an index of its own soon.
    found = found_from(other.bootstrap, topic, "k7")
    assert [message.value for message in found.messages] == expected

    def indexed() -> Lookup | None:
        answer = found_from(other.bootstrap, topic, "k7")
        return answer if answer.scanned == 0 else None

    found = wait_for(indexed, "the index of the new leader", WAIT_SECONDS)
    assert [message.value for message in found.messages] == expected

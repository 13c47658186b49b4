"""The coordinator of a group dies while a transaction has offsets for it: the next one knows them."""

import pytest
from cluster_support import client_of, create_topic
from confluent_kafka import Consumer, Producer, TopicPartition

from zhumq.coordinators.group_service import partition_for
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC
from zhumq.testing.cluster import ClusterProcesses

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60.0
SOURCE, TARGET = "source", "target"


def transactional(cluster: ClusterProcesses) -> Producer:
    producer = Producer(
        {
            **client_of(cluster),
            "transactional.id": "copier",
            "transaction.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_SECONDS)
    return producer


def committed(cluster: ClusterProcesses, group: str) -> int:
    """The offset where a consumer at read_committed begins: it waits until no transaction is open."""
    settings = {"group.id": group, "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer({**client_of(cluster), **settings})
    try:
        (found,) = consumer.committed([TopicPartition(SOURCE, 0)], timeout=WAIT_SECONDS)
    finally:
        consumer.close()
    assert found.error is None
    return found.offset


@pytest.mark.thorough
@pytest.mark.parametrize(("is_commit", "offset"), [(True, 7), (False, 3)])
def test_pending_offsets_survive_the_death_of_the_groups_coordinator(
    cluster: ClusterProcesses, is_commit: bool, offset: int
) -> None:
    group = f"group-{is_commit}"
    for topic in (SOURCE, TARGET):
        if topic not in cluster.admin().list_topics(timeout=WAIT_SECONDS).topics:
            create_topic(cluster, topic)
    member = Consumer({**client_of(cluster), "group.id": group, "log_level": 0})
    member.commit(offsets=[TopicPartition(SOURCE, 0, 3)], asynchronous=False)
    producer = transactional(cluster)
    producer.begin_transaction()
    producer.produce(TARGET, b"copied")
    producer.send_offsets_to_transaction(
        [TopicPartition(SOURCE, 0, 7)], member.consumer_group_metadata(), WAIT_SECONDS
    )
    offsets = cluster.admin().list_topics(CONSUMER_OFFSETS_TOPIC, timeout=WAIT_SECONDS)
    count = len(offsets.topics[CONSUMER_OFFSETS_TOPIC].partitions)
    index = partition_for(group, count)
    leader = cluster.wait_for_leader(CONSUMER_OFFSETS_TOPIC, index)
    cluster.kill(leader)
    if is_commit:
        producer.commit_transaction(WAIT_SECONDS)
    else:
        producer.abort_transaction(WAIT_SECONDS)
    assert committed(cluster, group) == offset
    # The broker that was killed reads the same from its log once it leads again.
    cluster.restart(leader)
    others = [each for each in cluster.brokers if each != leader]
    cluster.kill(others[0])
    assert committed(cluster, group) == offset
    member.close()

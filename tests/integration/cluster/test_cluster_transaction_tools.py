"""Operations on transactions in a cluster: each request goes to the broker that can answer it."""

import contextlib
from collections.abc import Iterator

import pytest
from cluster_support import create_topic
from confluent_kafka import KafkaException, Producer

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.transactions import (
    abort_transaction,
    describe_transaction,
    find_hanging,
    list_transactions,
)
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow

TOPIC = "operated"
PARTITIONS = 3
IDS = [f"operated-{number}" for number in range(8)]
WAIT_SECONDS = 60.0


@contextlib.contextmanager
def open_transactions(bootstrap: str) -> Iterator[dict[str, Producer]]:
    """One for each id, with a message in every partition."""
    producers = {}
    for name in IDS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
        )
        producer.init_transactions(WAIT_SECONDS)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, name.encode(), partition=partition)
        assert producer.flush(WAIT_SECONDS) == 0
        producers[name] = producer
    yield producers


def producers_at(connection: ClusterConnection, address: str) -> dict[int, int] | None:
    """The first offsets of open transactions in partition 0, by producer, as the broker at the address has it."""
    topics = [TopicRequest(name=TOPIC, partition_indexes=[0])]
    request = DescribeProducersRequest(topics=topics)
    answer = connection.request(ApiKey.DESCRIBE_PRODUCERS, request, address=address)
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE, address
    return {
        each.producer_id: each.current_txn_start_offset for each in partition.active_producers
    } or None


def test_transactions_of_all_coordinators_are_listed_described_and_aborted(
    cluster: ClusterProcesses,
) -> None:
    create_topic(cluster, TOPIC, partitions=PARTITIONS)
    with (
        open_transactions(cluster.bootstrap) as producers,
        ClusterConnection(cluster.bootstrap) as connection,
    ):
        listed = list_transactions(connection, states=["Ongoing"])
        assert [each.transactional_id for each in listed] == IDS
        assert len({each.coordinator for each in listed}) > 1
        for summary in listed:
            details = describe_transaction(connection, summary.transactional_id)
            assert details.coordinator == summary.coordinator
            assert len(details.partitions) == PARTITIONS
        assert find_hanging(connection, older_than_ms=0) == []

        # As kafka-transactions does with --broker-id: followers answer as the leader does.
        at_leader, *others = (
            wait_for(lambda each=address: producers_at(connection, each), "the producers")
            for address in connection.broker_addresses().values()
        )
        assert len(at_leader) == len(IDS)
        assert all(each == at_leader for each in others)

        for name in IDS[:4]:
            assert abort_transaction(connection, name).transactional_id == name
        for name in IDS[4:]:
            producers[name].commit_transaction(WAIT_SECONDS)
        assert list_transactions(connection, states=["Ongoing"]) == []
        for name in IDS[:4]:
            with pytest.raises(KafkaException):
                producers[name].commit_transaction(WAIT_SECONDS)

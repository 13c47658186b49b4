"""Schema validation in a cluster: the registry's topic is on one broker, and the messages go to all."""

import pytest
from cluster_support import create_topic
from confluent_kafka import KafkaError, Producer

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schemas import register_schema
from zhumq.schemas.schema import SchemaType
from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow

SECONDS_MAX = 60.0
ORDER = '{"type": "record", "name": "Order", "fields": []}'
LATER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int", "default": 0}]}'
)


def framed(id_: int) -> bytes:
    return b"\0" + id_.to_bytes(4, "big")


def errors_of(cluster: ClusterProcesses, topic: str, value: bytes, partitions: int) -> list[str]:
    """What became of a message to each partition."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "message.timeout.ms": 10_000,
            "enable.idempotence": True,
        }
    )
    found: list[str] = []
    for partition in range(partitions):
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _: found.append("" if error is None else error.name()),
        )
    assert producer.flush(SECONDS_MAX) == 0
    return found


@pytest.mark.thorough
def test_every_broker_knows_the_schemas_that_one_has(cluster: ClusterProcesses) -> None:
    create_topic(cluster, "_schemas", replicas=1, cleanup_policy="compact")
    create_topic(cluster, "orders", partitions=3, replicas=3, schema_validation="value")
    connection = ClusterConnection(cluster.bootstrap)
    id_ = register_schema(connection, "orders-value", ORDER, type_=SchemaType.AVRO).id
    leaders = {cluster.wait_for_leader("orders", each) for each in range(3)}
    assert len(leaders) == 3, "the leaders are on all brokers"
    assert errors_of(cluster, "orders", framed(id_), 3) == [""] * 3
    invalid = KafkaError(KafkaError.INVALID_RECORD).name()
    assert errors_of(cluster, "orders", framed(id_ + 1), 3) == [invalid] * 3

    # Without the broker that has the registry, what is known is taken, and what is not known waits.
    holder = cluster.wait_for_leader("_schemas", 0)
    later = register_schema(connection, "orders-value", LATER, type_=SchemaType.AVRO).id
    cluster.kill(holder)
    wait_for(
        lambda: errors_of(cluster, "orders", framed(id_), 3) == [""] * 3,
        "the other brokers take what they know",
        SECONDS_MAX,
    )
    cluster.restart(holder)
    cluster.wait_for_brokers(cluster.brokers)
    wait_for(
        lambda: errors_of(cluster, "orders", framed(later), 3) == [""] * 3,
        "the new schema is known",
        SECONDS_MAX,
    )

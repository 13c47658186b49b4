"""Helpers of the tests with transactions: topics, and what a reader of committed messages sees."""

import os
import time
import uuid

import confluent_kafka
from confluent_kafka import TopicPartition

from zhumq import Admin

SECONDS_MAX = 60.0
# The address of an Apache Kafka: the tests run against it. It has no KIP-939 yet.
PEER = os.environ.get("ZHUMQ_TRANSACTIONS_PEER", "")


def new_topic(bootstrap: str, partitions: int = 1) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=partitions)
    return name


def read(
    bootstrap: str, topic: str, *, isolation: str = "read_committed", partitions: int = 1
) -> list[bytes]:
    """The values of a topic up to its last stable offset, or its end, partition by partition."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "checker",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings)
    found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic} was not read to its end"
            for message in consumer.consume(1_000, timeout=1):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message.value())
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return [value for index in range(partitions) for value in found[index]]

"""Helpers for topics that lose replicas: create, send one message, read."""

import time
import uuid
from typing import Final

from cluster_support import create_topic
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from zhumq.testing.cluster import ClusterProcesses, wait_for

WAIT_SECONDS: Final = 60.0
# How long a client retries what cannot succeed.
GIVE_UP_MS: Final = 4_000
COMMITTED: Final = 20  # messages that are acknowledged with acks=-1 before any broker is killed


def create_committed(cluster: ClusterProcesses, topic: str, mode: str) -> None:
    """A topic with COMMITTED messages on all three replicas."""
    create_topic(cluster, topic, replication_mode=mode, min_insync_replicas="2")
    wait_until_in_sync(cluster, topic)
    for number in range(COMMITTED):
        assert send(cluster, topic, -1, str(number)) == (None, number)


def wait_until_in_sync(cluster: ClusterProcesses, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def in_sync() -> bool | None:
        # Not `zhumq topic describe`, which also asks for offsets: a partition may have no leader yet.
        found = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
        return (bool(found) and len(found[0].isrs) == 3) or None

    wait_for(in_sync, f"all replicas of {topic} in sync", WAIT_SECONDS)


def send(
    cluster: ClusterProcesses, topic: str, acks: int, value: str, ack_wait_ms: int = 30_000
) -> tuple[int | None, int | None]:
    """Send one message; returns its error code, or None, and its offset."""
    answers: list[tuple[int | None, int | None]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        answers.append((None if error is None else error.code(), message.offset()))

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "retries": 0 if ack_wait_ms == GIVE_UP_MS else 1_000,
            "delivery.timeout.ms": ack_wait_ms,
            "request.timeout.ms": min(ack_wait_ms, 5_000),
            "log_level": 0,
        }
    )
    producer.produce(topic, value.encode(), on_delivery=delivered)
    assert producer.flush(WAIT_SECONDS) == 0
    return answers[0]


def read(cluster: ClusterProcesses, topic: str, count: int, seconds: float) -> list[str]:
    """Read from the beginning with a new consumer, up to so many messages or seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + seconds
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                values.append(value.decode())
    finally:
        consumer.close()
    return values

"""The operator's limits on partitions hold for the topics of clients, not for the broker's own."""

import contextlib
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC
from zhumq.testing.broker import broker

SECONDS_MAX = 30.0
LIMITS = {"topic.partitions.max": "10", "cluster.partitions.max": "12"}


def read_one(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    with contextlib.closing(consumer):
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, "nothing was read"
        consumer.commit(asynchronous=False)
        return message.value()


def test_groups_consume_and_commit_under_limits_below_the_internal_topics(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path, settings=LIMITS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("orders", 10, 1)])["orders"].result(SECONDS_MAX)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("orders", b"first")
        assert producer.flush(SECONDS_MAX) == 0
        assert read_one(running.bootstrap, "orders") == b"first"
        # The 50 partitions of __consumer_offsets are there now, and take nothing from clients.
        admin.create_topics([NewTopic("small", 2, 1)])["small"].result(SECONDS_MAX)
        for refused in (NewTopic("large", 11, 1), NewTopic("one-more", 1, 1)):
            with pytest.raises(KafkaException, match=r"partitions\.max"):
                admin.create_topics([refused])[refused.topic].result(SECONDS_MAX)


def test_a_client_cannot_pass_the_limits_by_an_internal_name(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path, settings=LIMITS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        new_topic = NewTopic(CONSUMER_OFFSETS_TOPIC, 11, 1)
        with pytest.raises(KafkaException, match=r"topic\.partitions\.max"):
            admin.create_topics([new_topic])[new_topic.topic].result(SECONDS_MAX)

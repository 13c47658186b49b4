"""What a data folder of a release holds: one function fills a broker, and another checks that all of it is there."""

import time
from collections.abc import Callable
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import zhumq
from zhumq.admin.acls import consumer_acls, create_acls, list_acls
from zhumq.admin.groups import describe_group
from zhumq.admin.quotas import ClientQuota, alter_quotas, list_quotas
from zhumq.admin.topics import describe_topic
from zhumq.admin.users import create_user, list_users
from zhumq.model.password import Password
from zhumq.security.acl import ResourcePattern, ResourceType

SECONDS_MAX: Final = 90.0
# The folder is opened years after it was written: nothing in it may expire.
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "delayed.message.topic.num.partitions": "2",
    "delayed.message.delay.max.ms": str(100 * 365 * 86_400_000),
    "offsets.retention.minutes": str(2**31 - 1),
    "authorizer.class.name": "zhumq",
    "super.users": "User:ANONYMOUS;User:alice",
}
FOR_EVER: Final = {"retention.ms": "-1"}
ORDERS, PAYMENTS, TASKS, REMINDERS = "orders", "payments", "tasks", "reminders"
PARTITIONS, EACH = 2, 50  # of orders
GROUP, COMMITTED = "billing", 20
SHARED_GROUP, TASK_COUNT, TASKS_DONE = "workers", 20, 12
MAX_MESSAGE_BYTES: Final = 123_456
FAR_MS: Final = 2**42  # in 2109
USER, PASSWORD = "alice", "a password"
QUOTA = ClientQuota(entity={"user": USER}, quotas={"producer_byte_rate": 1e6})
ACLS = consumer_acls("User:bob", [ResourcePattern(ResourceType.TOPIC, ORDERS)], [])


def order(partition: int, number: int) -> bytes:
    return f"order {partition}-{number} ".encode() * 5


def fill(bootstrap: str, push: str) -> None:
    """Write everything that `check` looks for."""
    with zhumq.Admin(bootstrap, push=push) as admin:
        indexed = {**FOR_EVER, "index.keys": "true", "max.message.bytes": str(MAX_MESSAGE_BYTES)}
        admin.create_topic(ORDERS, partitions=PARTITIONS, settings=indexed)
        admin.create_topic(PAYMENTS, partitions=1, settings=FOR_EVER)
        admin.create_topic(TASKS, partitions=1, settings=FOR_EVER)
        admin.create_topic(REMINDERS, partitions=1, settings={**FOR_EVER, "delay.enable": "true"})
        create_user(admin, USER, Password(PASSWORD))
        alter_quotas(admin, QUOTA.entity, QUOTA.quotas)
        create_acls(admin, ACLS)
    with zhumq.Producer(bootstrap) as producer:
        for number in range(EACH):
            for partition in range(PARTITIONS):
                producer.send(
                    ORDERS,
                    order(partition, number),
                    key=f"customer-{number}".encode(),
                    partition=partition,
                    headers={"number": str(number)},
                )
        for number in range(TASK_COUNT):
            producer.send(TASKS, b"task %d" % number)
        producer.send(REMINDERS, b"at once")
        producer.send(REMINDERS, b"soon", delay=1)
        producer.send(REMINDERS, b"in 2109", deliver_at=FAR_MS)
    _commit_offsets(bootstrap)
    _do_tasks(bootstrap, push, TASKS_DONE)
    _wait_for(lambda: b"soon" in values(bootstrap, REMINDERS, 1), "the delayed message")
    for name, ends in (("first", "commit"), ("second", "abort"), ("third", "open")):
        _write_transaction(bootstrap, name, ends)


def check(bootstrap: str, push: str, sasl: str) -> None:
    """Raises AssertionError if something that `fill` wrote is missing or has changed, or cannot be gone on with."""
    for partition in range(PARTITIONS):
        found = read(bootstrap, ORDERS, partition)
        expected = [order(partition, number) for number in range(EACH)]
        assert [message.value() for message in found] == expected
        assert [message.offset() for message in found] == list(range(EACH))
        assert [message.headers() for message in found][7] == [("number", b"7")]
    with zhumq.Admin(bootstrap, push=push) as admin:
        settings = describe_topic(admin, ORDERS).settings
        assert settings["max.message.bytes"] == str(MAX_MESSAGE_BYTES)
        assert settings["retention.ms"] == "-1"
        offsets = {each.partition: each.committed for each in describe_group(admin, GROUP).offsets}
        assert offsets == {0: COMMITTED}
        (looked_up,) = admin.lookup(ORDERS, key="customer-7", partition=1).messages
        assert looked_up.value == order(1, 7)
        assert [each.due_ms for each in admin.scheduled(REMINDERS).messages] == [FAR_MS]
        assert [each.user for each in list_users(admin)] == [USER]
        assert list_quotas(admin) == [QUOTA]
        assert sorted(list_acls(admin)) == sorted(ACLS)
    assert sorted(values(bootstrap, REMINDERS, 1)) == [b"at once", b"soon"]
    assert _log_in(sasl) > 0
    _check_transactions(bootstrap)
    left = _do_tasks(bootstrap, push, TASK_COUNT - TASKS_DONE)
    assert len(left) == TASK_COUNT - TASKS_DONE


def read(bootstrap: str, topic: str, partition: int) -> list[Any]:
    """The committed messages of a partition up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        assert time.monotonic() < deadline, f"no end of {topic}"
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message)
        elif message is not None:
            consumer.close()
            return found


def values(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    return [
        message.value() for each in range(partitions) for message in read(bootstrap, topic, each)
    ]


def _commit_offsets(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(ORDERS, 0, COMMITTED)], asynchronous=False)
    consumer.close()


def _do_tasks(bootstrap: str, push: str, count: int) -> list[bytes]:
    """Acknowledge so many tasks in the shared group. Raises if one was acknowledged before."""
    done: list[bytes] = []
    with zhumq.Consumer(
        TASKS, group=SHARED_GROUP, mode="ptp-shared", bootstrap=bootstrap, push=push, auto_ack=False
    ) as consumer:
        for message in consumer:
            message.ack()
            assert message.value is not None
            done.append(message.value)
            if len(done) == count:
                break
    assert len(set(done)) == count
    return done


def _producer(bootstrap: str, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def _write_transaction(bootstrap: str, name: str, ends: str) -> None:
    producer = _producer(bootstrap, name)
    producer.begin_transaction()
    for number in range(5):
        producer.produce(PAYMENTS, f"{name} {number}")
    producer.flush(SECONDS_MAX)
    if ends == "commit":
        producer.commit_transaction(SECONDS_MAX)
    elif ends == "abort":
        producer.abort_transaction(SECONDS_MAX)


def _check_transactions(bootstrap: str) -> None:
    """Committed messages are there, no others, and the producers go on; one of them had left a transaction open."""
    committed = [b"first %d" % number for number in range(5)]
    producer = _producer(bootstrap, "third")
    producer.begin_transaction()
    producer.produce(PAYMENTS, "after the upgrade")
    producer.commit_transaction(SECONDS_MAX)
    _wait_for(
        lambda: values(bootstrap, PAYMENTS, 1) == [*committed, b"after the upgrade"],
        "the committed messages and the new one",
    )


def _log_in(sasl: str) -> int:
    """How many topics the user sees."""
    admin = AdminClient(
        {
            "bootstrap.servers": sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
    )
    return len(admin.list_topics(timeout=SECONDS_MAX).topics)


def _wait_for(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.1)

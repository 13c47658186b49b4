"""librdkafka, the client most programs use, against a real broker."""

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 30.0


def producer(broker: RunningBroker, **config: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **config})


def consumer(broker: RunningBroker, group: str, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **config,
        }
    )


def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def poll_until(reader: Consumer, done: Callable[[list[object]], bool]) -> list[object]:
    messages: list[object] = []
    deadline = time.monotonic() + SECONDS_MAX
    while not done(messages):
        assert time.monotonic() < deadline, f"only {len(messages)} messages came"
        message = reader.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_messages_come_back_as_they_were_sent(
    zhumq_broker: RunningBroker, compression: str, acks: str
) -> None:
    sender = producer(zhumq_broker, **{"compression.type": compression, "acks": acks})
    for index in range(100):
        sender.produce(
            "orders",
            key=f"key-{index}".encode(),
            value=f"value-{index}".encode() * 20,
            headers=[("trace", b"\x00\xff"), ("empty", b"")],
            timestamp=1_700_000_000_000 + index,
        )
    assert sender.flush(SECONDS_MAX) == 0
    reader = consumer(zhumq_broker, "readers")
    reader.subscribe(["orders"])
    messages = poll_until(reader, lambda got: len(got) == 100)
    assert [message.offset() for message in messages] == list(range(100))
    assert messages[7].key() == b"key-7"
    assert messages[7].value() == b"value-7" * 20
    assert messages[7].headers() == [("trace", b"\x00\xff"), ("empty", b"")]
    assert messages[7].timestamp()[1] == 1_700_000_000_007
    reader.close()


def test_an_idempotent_producer_writes_in_order_and_once(zhumq_broker: RunningBroker) -> None:
    sender = producer(zhumq_broker, **{"enable.idempotence": True, "linger.ms": 0})
    delivered: list[int] = []
    for index in range(2_000):
        sender.produce(
            "t",
            value=b"%d" % index,
            callback=lambda _e, message: delivered.append(message.offset()),
        )
        sender.poll(0)
    assert sender.flush(SECONDS_MAX) == 0
    assert delivered == list(range(2_000))


def test_a_group_goes_on_where_it_committed(zhumq_broker: RunningBroker) -> None:
    sender = producer(zhumq_broker)
    for index in range(10):
        sender.produce("t", value=b"%d" % index)
    sender.flush(SECONDS_MAX)
    first = consumer(zhumq_broker, "g", **{"enable.auto.commit": False})
    first.subscribe(["t"])
    poll_until(first, lambda got: len(got) == 10)
    first.commit(offsets=[TopicPartition("t", 0, 4, metadata="half way")], asynchronous=False)
    (committed,) = first.committed([TopicPartition("t", 0)], timeout=SECONDS_MAX)
    assert (committed.offset, committed.metadata) == (4, "half way")
    first.close()
    second = consumer(zhumq_broker, "g")
    second.subscribe(["t"])
    assert poll_until(second, lambda got: len(got) == 6)[0].value() == b"4"
    second.close()


def test_seeking_by_offset_and_by_time(zhumq_broker: RunningBroker) -> None:
    sender = producer(zhumq_broker)
    for index in range(50):
        sender.produce("t", value=b"%d" % index, timestamp=1_000_000 + index * 1_000)
        sender.flush(SECONDS_MAX)
    reader = consumer(zhumq_broker, "g")
    (found,) = reader.offsets_for_times([TopicPartition("t", 0, 1_000_000 + 20_500)], SECONDS_MAX)
    assert found.offset == 21
    assert reader.get_watermark_offsets(TopicPartition("t", 0), SECONDS_MAX) == (0, 50)
    reader.assign([TopicPartition("t", 0, 45)])
    assert [m.value() for m in poll_until(reader, lambda got: len(got) == 5)] == [
        b"45",
        b"46",
        b"47",
        b"48",
        b"49",
    ]
    reader.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    assert poll_until(reader, lambda got: len(got) == 1)[0].value() == b"0"
    reader.close()


def test_topics_are_created_described_grown_and_deleted(zhumq_broker: RunningBroker) -> None:
    client = admin(zhumq_broker)
    created = client.create_topics(
        [NewTopic("t", num_partitions=3, config={"retention.ms": "1000"}), NewTopic("bad name")]
    )
    assert created["t"].result(SECONDS_MAX) is None
    with pytest.raises(KafkaException, match="characters"):
        created["bad name"].result(SECONDS_MAX)
    assert len(client.list_topics("t", timeout=SECONDS_MAX).topics["t"].partitions) == 3
    client.create_partitions([NewPartitions("t", 5)])["t"].result(SECONDS_MAX)
    assert len(client.list_topics("t", timeout=SECONDS_MAX).topics["t"].partitions) == 5
    client.delete_topics(["t"])["t"].result(SECONDS_MAX)
    assert "t" not in client.list_topics(timeout=SECONDS_MAX).topics


def test_settings_are_described_and_altered(zhumq_broker: RunningBroker) -> None:
    client = admin(zhumq_broker)
    client.create_topics([NewTopic("t", config={"retention.ms": "1000"})])["t"].result(SECONDS_MAX)
    resource = ConfigResource(ResourceType.TOPIC, "t")

    def described() -> dict[str, ConfigEntry]:
        return client.describe_configs([resource])[resource].result(SECONDS_MAX)

    assert described()["retention.ms"].value == "1000"
    assert described()["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    client.incremental_alter_configs([change])[change].result(SECONDS_MAX)
    assert described()["cleanup.policy"].value == "delete,compact"
    assert described()["retention.ms"].is_default


def test_records_are_deleted_from_the_front(zhumq_broker: RunningBroker) -> None:
    sender = producer(zhumq_broker)
    for index in range(10):
        sender.produce("t", value=b"%d" % index)
    sender.flush(SECONDS_MAX)
    client = admin(zhumq_broker)
    where = TopicPartition("t", 0, 6)
    client.delete_records([where])[where].result(SECONDS_MAX)
    earliest = client.list_offsets({TopicPartition("t", 0): OffsetSpec.earliest()})
    ((_, result),) = earliest.items()
    assert result.result(SECONDS_MAX).offset == 6
    reader = consumer(zhumq_broker, "g")
    reader.subscribe(["t"])
    assert poll_until(reader, lambda got: len(got) == 4)[0].offset() == 6
    reader.close()


def test_groups_are_listed_described_and_deleted(zhumq_broker: RunningBroker) -> None:
    sender = producer(zhumq_broker)
    sender.produce("t", value=b"x")
    sender.flush(SECONDS_MAX)
    group = f"group-{uuid.uuid4()}"
    reader = consumer(zhumq_broker, group, **{"client.id": "the-reader"})
    reader.subscribe(["t"])
    poll_until(reader, lambda got: len(got) == 1)
    client = admin(zhumq_broker)
    listed = client.list_consumer_groups().result(SECONDS_MAX)
    assert group in {each.group_id for each in listed.valid}
    described = client.describe_consumer_groups([group])[group].result(SECONDS_MAX)
    assert described.state.name == "STABLE"
    (member,) = described.members
    assert member.client_id == "the-reader"
    assert [str(p.topic) for p in member.assignment.topic_partitions] == ["t"]
    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        client.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    reader.close()
    client.delete_consumer_groups([group])[group].result(SECONDS_MAX)


def test_a_message_over_the_topics_limit_is_refused(zhumq_broker: RunningBroker) -> None:
    client = admin(zhumq_broker)
    small = NewTopic("small", config={"max.message.bytes": "500"})
    client.create_topics([small])["small"].result(SECONDS_MAX)
    sender = producer(zhumq_broker)
    errors: list[object] = []
    sender.produce("small", value=b"x" * 1_000, callback=lambda error, _m: errors.append(error))
    sender.flush(SECONDS_MAX)
    assert errors[0].name() == "MSG_SIZE_TOO_LARGE"

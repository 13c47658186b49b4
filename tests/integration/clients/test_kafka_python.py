"""kafka-python, the pure Python client, which uses the newest versions of every API."""

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 30
COUNT = 500


def consumer(broker: RunningBroker, *topics: str, **config: object) -> KafkaConsumer:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1_000,
        **config,
    )


def take(reader: KafkaConsumer, count: int) -> list[object]:
    # The range comes first: a reader that is asked once more waits for a message that never comes.
    return [message for _, message in zip(range(count), reader, strict=False)]


def test_messages_come_back_as_they_were_sent(zhumq_broker: RunningBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=zhumq_broker.bootstrap, acks="all")
    for index in range(COUNT):
        producer.send("t", key=b"k%d" % index, value=b"v%d" % index, headers=[("h", b"%d" % index)])
    producer.flush(SECONDS_MAX)
    producer.close()
    reader = consumer(zhumq_broker, "t", group_id="g")
    messages = take(reader, COUNT)
    assert [message.offset for message in messages] == list(range(COUNT))
    assert (messages[9].key, messages[9].value) == (b"k9", b"v9")
    assert list(messages[9].headers) == [("h", b"9")]
    reader.commit()
    assert reader.committed(TopicPartition("t", 0)) == COUNT
    reader.close()


def test_positions_by_time_and_at_the_ends(zhumq_broker: RunningBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=zhumq_broker.bootstrap)
    for index in range(20):
        producer.send("t", value=b"%d" % index, timestamp_ms=5_000 + index).get(SECONDS_MAX)
    producer.close()
    reader = consumer(zhumq_broker)
    partition = TopicPartition("t", 0)
    assert reader.beginning_offsets([partition]) == {partition: 0}
    assert reader.end_offsets([partition]) == {partition: 20}
    found = reader.offsets_for_times({partition: 5_012})[partition]
    assert (found.offset, found.timestamp) == (12, 5_012)
    reader.close()


def test_topics_are_created_described_and_deleted(zhumq_broker: RunningBroker) -> None:
    client = KafkaAdminClient(bootstrap_servers=zhumq_broker.bootstrap)
    client.create_topics([NewTopic("made", num_partitions=4, replication_factor=1)])
    assert "made" in client.list_topics()
    (described,) = client.describe_topics(["made"])
    assert len(described["partitions"]) == 4
    client.delete_topics(["made"])
    assert "made" not in client.list_topics()
    client.close()

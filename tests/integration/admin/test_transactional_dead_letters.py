"""Dead letters that were written in transactions: read to the end, and replayed, although markers follow them."""

import confluent_kafka

import zhumq
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.dead_letters import count_dead_letters, read_dead_letters, replay_dead_letters
from zhumq.client.dead_letters import Story, topic_of

SECONDS_MAX = 30.0


def write(connection: ClusterConnection, topic: str, value: bytes, end: str) -> object:
    """A dead letter of the topic, in a transaction of its own."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": connection.bootstrap, "transactional.id": f"{topic}-{end}"}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    story = Story(
        group="g", reason="broken", deliveries=1, topic=topic, partition=0, offset=0, time_ms=0
    )
    producer.produce(topic_of(topic), value, headers=story.headers(), partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    if end == "commit":
        producer.commit_transaction(SECONDS_MAX)
    elif end == "abort":
        producer.abort_transaction(SECONDS_MAX)
    return producer  # An open transaction ends with its producer.


def test_dead_letters_of_transactions_are_read_to_the_end_and_replayed(
    connection: ClusterConnection, topic: str
) -> None:
    with zhumq.Admin(connection.bootstrap) as admin:
        for name in (topic, topic_of(topic)):
            admin.create_topic(name, partitions=1)
    write(connection, topic, b"kept", "commit")
    write(connection, topic, b"gone", "abort")
    still_open = write(connection, topic, b"open", "later")
    values = [each.value for each in read_dead_letters(connection, topic)]
    assert values == [b"kept"]
    assert replay_dead_letters(connection, topic) == 1
    assert count_dead_letters(connection)[topic_of(topic)].left == 0
    assert replay_dead_letters(connection, topic) == 0
    del still_open

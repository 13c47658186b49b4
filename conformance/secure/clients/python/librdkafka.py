"""librdkafka through confluent-kafka, over a secured listener."""

from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)  # fmt: skip
from confluent_kafka.admin import AdminClient, NewTopic
from steps import (
    MECHANISM,
    PARTITIONS,
    RECORDS,
    WAIT_S,
    Arguments,
    Client,
    arguments,
    equal,
    numbers,
    run,
    until,
)  # fmt: skip


class Librdkafka(Client):
    def __init__(self, given: Arguments) -> None:
        super().__init__(given)
        self.settings = settings(given)
        self.admin = AdminClient(self.settings)

    def create(self) -> None:
        new = NewTopic(self.given.topic, PARTITIONS, 1)
        self.admin.create_topics([new])[self.given.topic].result(WAIT_S)

    def describe(self) -> None:
        asked = self.admin.describe_topics(TopicCollection([self.given.topic]))
        equal(PARTITIONS, len(asked[self.given.topic].result(WAIT_S).partitions))

    def send(self, values: list[bytes]) -> None:
        acknowledged: list[bytes] = []

        def done(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            acknowledged.append(message.value())

        producer = Producer({**self.settings, "acks": "all", "enable.idempotence": True})
        for value in values:
            producer.produce(self.given.topic, value, value, on_delivery=done)
        equal(0, producer.flush(WAIT_S))
        equal(sorted(values), sorted(acknowledged))

    def consume(self) -> None:
        reader = self.consumer(f"{self.given.topic}-alone")
        reader.assign([TopicPartition(self.given.topic, each, 0) for each in range(PARTITIONS)])
        equal(sorted(numbers(0, RECORDS)), sorted(self.read(reader, RECORDS)))
        reader.close()

    def member(self, count: int) -> list[bytes]:
        joined = self.consumer(self.given.topic)
        joined.subscribe([self.given.topic])
        found = self.read(joined, count)
        joined.commit(asynchronous=False)
        joined.close()
        return found

    def committed(self) -> int:
        group = self.given.topic
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return sum(each.offset for each in asked[group].result(WAIT_S).topic_partitions)

    def consumer(self, group: str) -> Consumer:
        own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        return Consumer({**self.settings, **own})

    def read(self, consumer: Consumer, count: int) -> list[bytes]:
        found: list[bytes] = []

        def enough() -> bool:
            for message in consumer.consume(count, 0.1):
                assert message.error() is None, message.error()
                found.append(message.value())
            return len(found) >= count

        until(enough, f"{count} records are read")
        return found

    def delete(self) -> None:
        self.admin.delete_topics([self.given.topic])[self.given.topic].result(WAIT_S)
        until(
            lambda: self.given.topic not in self.admin.list_topics(timeout=WAIT_S).topics,
            "the topic is gone",
        )

    def refused(self) -> None:
        errors: list[KafkaError] = []
        client = Producer(
            {**settings(self.given.with_wrong_credentials()), "error_cb": errors.append}
        )
        expected = "SASL authentication error" if self.given.uses_sasl else "SSL alert number"

        def is_refused() -> bool:
            client.poll(0.1)
            return any(expected in each.str() for each in errors)

        until(is_refused, "the client is refused")


def settings(given: Arguments) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": given.bootstrap,
        "security.protocol": given.protocol,
        "ssl.ca.location": str(given.ca),
    }
    if given.uses_sasl:
        found |= {
            "sasl.mechanism": MECHANISM,
            "sasl.username": given.user,
            "sasl.password": given.password,
        }
    elif given.certificate is not None:
        found |= {
            "ssl.certificate.location": str(given.certificate),
            "ssl.key.location": str(given.key),
        }
    return found


if __name__ == "__main__":
    run(Librdkafka(arguments()))

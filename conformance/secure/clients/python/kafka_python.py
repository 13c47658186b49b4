"""kafka-python over a secured listener."""

from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError
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

# kafka-python 3.0.12 loses a join that ends after the poll that began it (FINDINGS.md).
POLL_MS = 5_000


class KafkaPython(Client):
    def __init__(self, given: Arguments) -> None:
        super().__init__(given)
        self.settings = settings(given)

    def create(self) -> None:
        admin = KafkaAdminClient(**self.settings)
        admin.create_topics([NewTopic(self.given.topic, PARTITIONS, 1)])
        admin.close()

    def describe(self) -> None:
        admin = KafkaAdminClient(**self.settings)
        (found,) = admin.describe_topics([self.given.topic])
        equal(PARTITIONS, len(found["partitions"]))
        admin.close()

    def send(self, values: list[bytes]) -> None:
        producer = KafkaProducer(**self.settings, acks="all")
        sent = [producer.send(self.given.topic, value, value) for value in values]
        for each in sent:
            each.get(WAIT_S)
        producer.close()

    def consume(self) -> None:
        reader = KafkaConsumer(**self.settings, auto_offset_reset="earliest", group_id=None)
        reader.assign([TopicPartition(self.given.topic, each) for each in range(PARTITIONS)])
        equal(sorted(numbers(0, RECORDS)), sorted(self.read(reader, RECORDS)))
        reader.close()

    def member(self, count: int) -> list[bytes]:
        joined = KafkaConsumer(
            self.given.topic, **self.settings, group_id=self.given.topic,
            auto_offset_reset="earliest", enable_auto_commit=False,
        )  # fmt: skip
        found = self.read(joined, count)
        joined.commit()
        joined.close()
        return found

    def committed(self) -> int:
        reader = KafkaConsumer(**self.settings, group_id=self.given.topic)
        partitions = [TopicPartition(self.given.topic, each) for each in range(PARTITIONS)]
        found = sum(reader.committed(each) or 0 for each in partitions)
        reader.close()
        return found

    def read(self, consumer: Any, count: int) -> list[bytes]:
        found: list[bytes] = []

        def enough() -> bool:
            for messages in consumer.poll(POLL_MS).values():
                found.extend(each.value for each in messages)
            return len(found) >= count

        until(enough, f"{count} records are read")
        return found

    def delete(self) -> None:
        admin = KafkaAdminClient(**self.settings)
        admin.delete_topics([self.given.topic])
        until(lambda: self.given.topic not in admin.list_topics(), "the topic is gone")
        admin.close()

    def refused(self) -> None:
        # Apache Kafka's refusal reaches the caller as a bootstrap that took too long, as does zhumq's.
        other = {**settings(self.given.with_wrong_credentials()), "bootstrap_timeout_ms": 3_000}
        refused = False
        try:
            KafkaAdminClient(**other).close()
        except KafkaError:
            refused = True
        assert refused, "the client was served"


def settings(given: Arguments) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": given.bootstrap,
        "security_protocol": given.protocol,
        "ssl_cafile": str(given.ca),
    }
    if given.uses_sasl:
        found |= {
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": given.user,
            "sasl_plain_password": given.password,
        }
    elif given.certificate is not None:
        found |= {"ssl_certfile": str(given.certificate), "ssl_keyfile": str(given.key)}
    return found


if __name__ == "__main__":
    run(KafkaPython(arguments()))

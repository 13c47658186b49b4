"""Topics with schema.validation: what producers of the field get, with the registry of a live broker."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from confluent_support import record, register

from zhumq import Admin
from zhumq.admin.settings import alter_topic_settings
from zhumq.testing.broker import RunningBroker
from zhumq.testing.cluster import wait_for

SECONDS_MAX = 30.0
ORDER = record("Order", id="string")
OK = 0
INVALID_RECORD = confluent_kafka.KafkaError.INVALID_RECORD


def framed(id_: int, data: bytes = b"data") -> bytes:
    return b"\0" + id_.to_bytes(4, "big") + data


@pytest.fixture
def validated(running: RunningBroker, topic: str) -> str:
    """A topic whose values need a schema."""
    with Admin(running.bootstrap) as admin:
        admin.create_topic(topic, settings={"schema.validation": "value"})
    return topic


class Sender:
    """A producer that notes what becomes of each message."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})

    def send(self, topic: str, *values: bytes | None, key: bytes | None = None) -> list[int]:
        """The error of each message, OK for one that arrived."""
        errors: list[int] = []

        def note(error: Any, _: object) -> None:
            errors.append(OK if error is None else error.code())

        for value in values:
            self._producer.produce(topic, value, key=key, on_delivery=note)
        assert self._producer.flush(SECONDS_MAX) == 0
        return errors


@pytest.fixture
def sender(running: RunningBroker) -> Sender:
    return Sender(running.bootstrap, **{"linger.ms": 0, "batch.num.messages": 1})


def values_of(bootstrap: str, topic: str, count: int) -> Iterator[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        for _ in range(count):
            message: Any = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            yield message.value()
    finally:
        consumer.close()


def test_confluents_serializer_is_served_at_once(
    url: str, validated: str, sender: Sender, running: RunningBroker
) -> None:
    with SchemaRegistryClient({"url": f"{url}/registry"}) as client:
        serializer = AvroSerializer(client, ORDER)
        context = SerializationContext(validated, MessageField.VALUE)
        values = [serializer({"id": str(number)}, context) for number in range(3)]
    assert sender.send(validated, *values) == [OK] * 3
    assert list(values_of(running.bootstrap, validated, 3)) == values


def test_what_has_no_registered_schema_is_refused(
    registry: httpx.Client, validated: str, sender: Sender
) -> None:
    mine = register(registry, f"{validated}-value", ORDER)
    other = register(registry, f"{validated}-other", record("Other", x="int"))
    errors = sender.send(
        validated, b'{"id": 1}', framed(mine), framed(other), framed(2**31 - 1), None, b""
    )
    assert sorted(errors) == sorted([OK] * 2 + [INVALID_RECORD] * 4)


def test_a_schema_of_any_subject_does_where_the_topic_says_so(
    registry: httpx.Client, running: RunningBroker, topic: str, sender: Sender
) -> None:
    id_ = register(registry, f"com.example.{topic}", ORDER)
    with Admin(running.bootstrap) as admin:
        admin.create_topic(
            topic,
            settings={"schema.validation": "both", "schema.validation.subject": "any"},
        )
    assert sender.send(topic, framed(id_), key=framed(id_)) == [OK]
    assert sender.send(topic, framed(id_), key=b"key") == [INVALID_RECORD]


def test_a_schema_that_is_registered_after_a_refusal_is_taken_soon(
    registry: httpx.Client, validated: str, sender: Sender
) -> None:
    id_ = register(registry, f"{validated}-other", ORDER)
    assert sender.send(validated, framed(id_)) == [INVALID_RECORD]
    assert register(registry, f"{validated}-value", ORDER) == id_
    wait_for(lambda: sender.send(validated, framed(id_)) == [OK], "the schema", SECONDS_MAX)


def test_a_topic_can_get_and_lose_its_rule(
    running: RunningBroker, topic: str, sender: Sender
) -> None:
    with Admin(running.bootstrap) as admin:
        admin.create_topic(topic)
        assert sender.send(topic, b"plain") == [OK]
        alter_topic_settings(admin, topic, {"schema.validation": "value"})
        assert sender.send(topic, b"plain") == [INVALID_RECORD]
        alter_topic_settings(admin, topic, {"schema.validation": "none"})
        assert sender.send(topic, b"plain") == [OK]


def test_messages_of_an_idempotent_producer_stay_in_order_while_their_schema_is_looked_up(
    registry: httpx.Client, running: RunningBroker, validated: str
) -> None:
    id_ = register(registry, f"{validated}-value", ORDER)
    values = [framed(id_, b"%d" % number) for number in range(500)]
    sender = Sender(
        running.bootstrap,
        **{"enable.idempotence": True, "batch.num.messages": 1, "linger.ms": 0},
    )
    assert sender.send(validated, *values) == [OK] * len(values)
    assert list(values_of(running.bootstrap, validated, len(values))) == values


def test_a_transaction_with_such_a_message_is_aborted(
    registry: httpx.Client, running: RunningBroker, validated: str
) -> None:
    id_ = register(registry, f"{validated}-value", ORDER)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "transactional.id": validated}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(validated, framed(id_))
    assert producer.flush(SECONDS_MAX) == 0
    producer.produce(validated, b"plain")
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        producer.commit_transaction(SECONDS_MAX)
    assert failed.value.args[0].txn_requires_abort()
    producer.abort_transaction(SECONDS_MAX)
    # As with Apache Kafka, librdkafka goes on with another sequence after INVALID_RECORD: a new instance.
    again = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "transactional.id": validated}
    )
    again.init_transactions(SECONDS_MAX)
    again.begin_transaction()
    again.produce(validated, framed(id_, b"committed"))
    again.commit_transaction(SECONDS_MAX)
    assert list(values_of(running.bootstrap, validated, 1)) == [framed(id_, b"committed")]


def test_refused_batches_are_counted(
    running: RunningBroker, validated: str, sender: Sender
) -> None:
    def refused() -> int:
        text = httpx.get(f"http://{running.http}/metrics").text
        (line,) = (
            each
            for each in text.splitlines()
            if each.startswith("zhumq_schema_refused_batches_total")
        )
        return int(float(line.split()[-1]))

    before = refused()
    sender.send(validated, framed(2**31 - 2))
    assert refused() > before


def test_a_message_over_rest_is_refused_as_well(api: httpx.Client, validated: str) -> None:
    answer = api.post(
        f"/topics/{validated}/messages", json={"messages": [{"value": json.dumps({"id": 1})}]}
    )
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "INVALID_RECORD"
    assert "schema.validation" in answer.json()["advice"]


def test_producers_in_parallel_ask_once_for_each_schema(
    registry: httpx.Client, running: RunningBroker, validated: str
) -> None:
    ids = [
        register(registry, f"{validated}-value", record("Order", **{f"f{number}": ("int", 0)}))
        for number in range(8)
    ]
    outcomes: list[list[int]] = []

    def produce(id_: int) -> None:
        sender = Sender(running.bootstrap, **{"linger.ms": 0})
        outcomes.append(sender.send(validated, *[framed(id_)] * 50))

    threads = [threading.Thread(target=produce, args=(id_,)) for id_ in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [[OK] * 50] * len(ids)

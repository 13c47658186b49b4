"""Other projects' transactional producers: commit, abort, and an instance that replaces another one."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AiokafkaError
from kafka.errors import KafkaError as KafkaPythonError

import zhumq
from zhumq.testing.broker import RunningBroker, broker

TOPICS = ("orders", "payments")
SECONDS_MAX = 30.0
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as each:
        with zhumq.Admin(each.bootstrap) as admin:
            admin.create_topic(TOPICS[0], partitions=2)
            admin.create_topic(TOPICS[1], partitions=1)
        yield each


class Librdkafka:
    """confluent_kafka."""

    failure = confluent_kafka.KafkaException

    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
        )
        self._producer.init_transactions(SECONDS_MAX)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self._producer.produce(topic, value)
        self._producer.flush()

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS_MAX)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS_MAX)

    def close(self) -> None:
        with contextlib.suppress(confluent_kafka.KafkaException):  # It is fenced.
            self._producer.flush(0)


class KafkaPython:
    failure = KafkaPythonError

    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self._producer.send(topic, value).get(SECONDS_MAX)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(1)


class Aiokafka:
    failure = AiokafkaError

    def __init__(self, bootstrap: str, name: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
            await producer.start()
            return producer

        self._producer = self._runner.run(start())

    def begin(self) -> None:
        self._runner.run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes) -> None:
        self._runner.run(self._producer.send_and_wait(topic, value))

    def commit(self) -> None:
        self._runner.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._runner.run(self._producer.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(AiokafkaError):
            self._runner.run(self._producer.stop())
        self._runner.close()


Client = type[Librdkafka] | type[KafkaPython] | type[Aiokafka]
each_client = pytest.mark.parametrize(
    "client", [Librdkafka, KafkaPython, Aiokafka], ids=lambda each: each.__name__
)


def read(running: RunningBroker, isolation: str, is_last: Callable[[bytes], bool]) -> list[bytes]:
    """The values of all topics, up to the last one."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": f"reader-{next(NUMBERS)}",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.subscribe(list(TOPICS))
        values: list[bytes] = []
        ended = set[tuple[str, int]]()
        while len(ended) < 3 or not any(map(is_last, values)):
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, values
            if message.error():
                ended.add((message.topic(), message.partition()))
            else:
                values.append(message.value())
        return values
    finally:
        consumer.close()


@each_client
def test_committed_transactions_are_read_and_aborted_ones_are_not(
    running: RunningBroker, client: Client
) -> None:
    name = f"{client.__name__}-{next(NUMBERS)}"
    with contextlib.closing(client(running.bootstrap, name)) as producer:
        for number in range(6):
            producer.begin()
            for topic in TOPICS:
                producer.send(topic, f"{name} {number} {topic}".encode())
            if number % 3 == 1:
                producer.abort()
            else:
                producer.commit()

    def mine(values: list[bytes]) -> set[int]:
        found = [value.split() for value in values if value.startswith(name.encode())]
        assert len(found) % len(TOPICS) == 0, "a transaction is read in part"
        return {int(number) for _, number, _ in found}

    def is_last(value: bytes) -> bool:
        return value == f"{name} 5 {TOPICS[1]}".encode()

    assert mine(read(running, "read_committed", is_last)) == {0, 2, 3, 5}
    assert mine(read(running, "read_uncommitted", is_last)) == set(range(6))


@each_client
def test_an_instance_that_is_replaced_cannot_commit(running: RunningBroker, client: Client) -> None:
    name = f"{client.__name__}-{next(NUMBERS)}"
    with contextlib.closing(client(running.bootstrap, name)) as first:
        first.begin()
        first.send(TOPICS[0], f"{name} lost".encode())
        with contextlib.closing(client(running.bootstrap, name)) as second:
            with pytest.raises(client.failure):
                first.commit()
            second.begin()
            second.send(TOPICS[0], f"{name} kept".encode())
            second.commit()
    values = read(running, "read_committed", lambda value: value == f"{name} kept".encode())
    assert f"{name} lost".encode() not in values

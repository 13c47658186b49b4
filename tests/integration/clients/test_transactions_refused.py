"""Transactions are not supported: each client stops at once, with an error that says so."""

import asyncio
import contextlib
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AiokafkaError
from kafka.errors import KafkaError as KafkaPythonError

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import FindCoordinatorRequest
from zhumq.protocol.messages.producers import InitProducerIdRequest
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.raw_client import RawClient

MESSAGE = "this broker does not support transactions"
SECONDS_MAX = 30.0  # a client that retries for ever would take all of it
TRANSACTION = 1


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as each:
        yield each


def test_librdkafka_stops_with_the_brokers_message(running: RunningBroker) -> None:
    settings = {"bootstrap.servers": running.bootstrap, "transactional.id": "x", "log_level": 0}
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        confluent_kafka.Producer(settings).init_transactions(SECONDS_MAX)
    assert caught.value.args[0].fatal()
    assert MESSAGE in caught.value.args[0].str()


def test_kafka_python_stops_without_an_authorization_error(running: RunningBroker) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=running.bootstrap,
        transactional_id="x",
        max_block_ms=int(SECONDS_MAX * 1000),
    )
    with contextlib.closing(producer), pytest.raises(KafkaPythonError, match="UnsupportedVersion"):
        producer.init_transactions()


def test_aiokafka_stops_without_an_authorization_error(running: RunningBroker) -> None:
    async def begin() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=running.bootstrap, transactional_id="x"
        )
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await producer.start()
        finally:
            with contextlib.suppress(AiokafkaError):
                await producer.stop()

    with pytest.raises(AiokafkaError, match="UnsupportedVersion"):
        asyncio.run(begin())


@pytest.mark.parametrize("version", range(7))
def test_every_version_is_refused_with_an_error_that_its_clients_do_not_retry(
    running: RunningBroker, version: int
) -> None:
    request = FindCoordinatorRequest(key="x", key_type=TRANSACTION, coordinator_keys=["x"])
    with RawClient(running.bootstrap) as client:
        answer = client.ask(ApiKey.FIND_COORDINATOR, request, version)
        found = answer.coordinators[0] if version >= 4 else answer
        if version == 0:
            # Version 0 has no key type: it finds a group coordinator.
            assert found.error_code == ErrorCode.NONE
            return
        assert found.error_message == MESSAGE
        # librdkafka uses version 2, and retries at every other code.
        librdkafkas = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        expected = librdkafkas if version in (2, 3) else ErrorCode.UNSUPPORTED_VERSION
        assert found.error_code == expected
        begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
        assert client.ask(ApiKey.INIT_PRODUCER_ID, begin, 4).error_code == (
            ErrorCode.UNSUPPORTED_VERSION
        )

"""Clients of other projects that authenticate with each mechanism: produce, consume in a group, administer."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka.abc
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from sasl_support import ALL, Issuer, sasl_broker
from tests.sasl_client import PASSWORD, USER

from zhumq.testing.broker import RunningBroker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
COUNT = 20
SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def running(issuer: Issuer) -> Iterator[RunningBroker]:
    with sasl_broker(mechanisms=f"{ALL},OAUTHBEARER", **issuer.settings) as started:
        yield started


def of_librdkafka(
    running: RunningBroker, mechanism: str, issuer: Issuer, **more: Any
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": running.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "logger": _Quiet(),
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (issuer.token(), time.time() + 3_600)
    else:
        settings |= {"sasl.username": USER, "sasl.password": PASSWORD}
    return settings | {name.replace("_", "."): value for name, value in more.items()}


class _Quiet:
    def log(self, *_: object) -> None: ...


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(running: RunningBroker, mechanism: str, issuer: Issuer) -> None:
    topic = f"librdkafka-{mechanism}"
    admin = AdminClient(of_librdkafka(running, mechanism, issuer))
    admin.poll(0)  # librdkafka asks for a token in a poll
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS_MAX)
    producer = Producer(of_librdkafka(running, mechanism, issuer))
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer(
        of_librdkafka(running, mechanism, issuer, group_id=topic, auto_offset_reset="earliest")
    )
    consumer.subscribe([topic])
    received: list[bytes | None] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(received) < COUNT and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            received.append(message.value())
    consumer.close()
    assert received == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("unknown", PASSWORD)])
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_librdkafka_reports_a_wrong_password_and_an_unknown_user(
    running: RunningBroker, mechanism: str, issuer: Issuer, user: str, password: str
) -> None:
    errors: list[KafkaError] = []
    settings = of_librdkafka(running, mechanism, issuer, sasl_username=user, sasl_password=password)
    producer = Producer({**settings, "error_cb": errors.append})
    deadline = time.monotonic() + SECONDS_MAX
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert user not in errors[0].str()


class _Tokens(AbstractTokenProvider):
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    def token(self) -> str:
        return self._issuer.token()


def of_kafka_python(running: RunningBroker, mechanism: str, issuer: Issuer) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": running.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": _Tokens(issuer)}
    return settings | {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(running: RunningBroker, mechanism: str, issuer: Issuer) -> None:
    topic = f"kafka-python-{mechanism}"
    settings = of_kafka_python(running, mechanism, issuer)
    with contextlib.closing(KafkaProducer(**settings)) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)
        producer.flush(SECONDS_MAX)
    consumer = KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1_000,
        **settings,
    )
    with contextlib.closing(consumer):
        received = [message.value for _, message in zip(range(COUNT), consumer, strict=False)]
    assert received == [b"%d" % number for number in range(COUNT)]


@pytest.mark.thorough
def test_kafka_python_reports_a_wrong_password(running: RunningBroker, issuer: Issuer) -> None:
    settings = of_kafka_python(running, "SCRAM-SHA-512", issuer) | {"sasl_plain_password": "wrong"}
    # In processes of their own: a constructor that fails leaves sockets open. kafka-python loses an answer that it
    # reads together with the end of the connection, so one of several attempts has to see it.
    program = (
        "import logging, kafka; logging.basicConfig();"
        f" kafka.KafkaProducer(bootstrap_timeout_ms=1_000, **{settings!r})"
    )
    deadline = time.monotonic() + SECONDS_MAX * 2
    while True:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX * 2,
            check=False,
        )
        assert done.returncode != 0
        if "SaslAuthenticationFailed" in done.stderr:
            return
        assert time.monotonic() < deadline, done.stderr


class _AsyncTokens(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def token(self) -> str:
        return self._issuer.token()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(running: RunningBroker, mechanism: str, issuer: Issuer) -> None:
    topic = f"aiokafka-{mechanism}"
    settings = of_kafka_python(running, mechanism, issuer)
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _AsyncTokens(issuer)

    async def scenario() -> list[bytes | None]:
        async with AIOKafkaProducer(**settings) as producer:
            for number in range(COUNT):
                await producer.send_and_wait(topic, b"%d" % number)
        consumer = AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        async with consumer, asyncio.timeout(SECONDS_MAX):
            return [(await consumer.getone()).value for _ in range(COUNT)]

    assert asyncio.run(scenario()) == [b"%d" % number for number in range(COUNT)]


def test_aiokafka_reports_a_wrong_password(
    running: RunningBroker, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = of_kafka_python(running, "SCRAM-SHA-256", issuer)

    async def scenario() -> None:
        producer = AIOKafkaProducer(**{**settings, "sasl_plain_password": "wrong"})
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(scenario())
    assert "SaslAuthenticationFailed" in caplog.text


def test_a_refused_token_is_reported(
    running: RunningBroker, issuer: Issuer, tmp_path: Path
) -> None:
    impostor = Issuer(tmp_path)
    errors: list[KafkaError] = []
    settings = of_librdkafka(running, "OAUTHBEARER", impostor)
    producer = Producer({**settings, "error_cb": errors.append})
    deadline = time.monotonic() + SECONDS_MAX
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert issuer.key is not impostor.key

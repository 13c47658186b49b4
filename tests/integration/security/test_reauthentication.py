"""Sessions with a lifetime (KIP-368): clients re-authenticate on their connections, or lose them."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from sasl_support import Issuer, bearer, sasl_broker
from tests.sasl_client import PASSWORD, USER, SaslClient

from zhumq.model.errors import ErrorCode
from zhumq.testing.broker import RunningBroker

LIFETIME_MS = 2_000
LIFETIMES = 3
SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sasl_broker(connections__max__reauth__ms=str(LIFETIME_MS)) as started:
        yield started


@pytest.fixture
def client(running: RunningBroker) -> Iterator[SaslClient]:
    with SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as opened:
        yield opened


def wait_until_expired(client: SaslClient, lifetime_ms: int = LIFETIME_MS) -> None:
    """Return a little after the session has ended. Without a request there is no fact to wait for."""
    ended = time.monotonic() + lifetime_ms / 1000 + 0.5
    while time.monotonic() < ended:
        with contextlib.suppress(TimeoutError):
            client.wait(ended - time.monotonic())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_learns_how_long_its_session_lasts(client: SaslClient, mechanism: str) -> None:
    assert client.log_in(mechanism).session_lifetime_ms == LIFETIME_MS


def test_a_client_re_authenticates_on_its_connection_in_time(client: SaslClient) -> None:
    for _ in range(2):
        assert client.log_in().session_lifetime_ms == LIFETIME_MS
        client.use()
        wait_until_expired(client, LIFETIME_MS // 2)
    client.use()


def test_a_client_re_authenticates_after_its_session_has_ended(client: SaslClient) -> None:
    client.log_in()
    wait_until_expired(client)
    assert client.log_in().error_code == 0
    client.use()


def test_any_other_request_after_the_end_of_the_session_closes_the_connection(
    client: SaslClient,
) -> None:
    client.log_in()
    wait_until_expired(client)
    with pytest.raises(ConnectionError):
        client.use()


def test_a_client_may_not_do_anything_else_while_it_re_authenticates(client: SaslClient) -> None:
    client.log_in()
    client.handshake("SCRAM-SHA-512")
    with pytest.raises(ConnectionError):
        client.use()


def test_a_client_cannot_become_another_user(running: RunningBroker) -> None:
    with SaslClient(running.bootstrap) as admin:
        admin.log_in()
        admin.create_user("bob", "bob's secret")
    with SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as client:
        client.log_in()
        answer = client.log_in(user="bob", password="bob's secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_a_client_cannot_change_its_mechanism(client: SaslClient) -> None:
    client.log_in()
    assert client.handshake("PLAIN").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.is_closed()


def test_a_wrong_password_in_a_re_authentication_ends_the_connection(client: SaslClient) -> None:
    client.log_in()
    answer = client.log_in(password="wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_a_second_re_authentication_within_a_second_is_refused(client: SaslClient) -> None:
    client.log_in()
    client.log_in()
    assert client.handshake("SCRAM-SHA-512").error_code == ErrorCode.ILLEGAL_SASL_STATE
    client.use()


def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    issuer.write_jwks()
    with (
        sasl_broker(mechanisms="OAUTHBEARER", **issuer.settings) as running,
        SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as client,
    ):
        for expires_in in (2, 60):
            client.handshake("OAUTHBEARER")
            answer = client.send_token(bearer(issuer.token(exp=int(time.time()) + expires_in)))
            assert 0 < answer.session_lifetime_ms <= expires_in * 1000
            client.use()
        wait_until_expired(client, 2_000)
        client.use()


@pytest.mark.thorough
def test_librdkafka_keeps_its_connection_over_several_sessions(running: RunningBroker) -> None:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": running.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "error_cb": errors.append,
    }
    producer = Producer(settings)
    delivered = 0

    def on_delivery(error: KafkaError | None, _: object) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1

    sent = 0
    ended = time.monotonic() + LIFETIMES * LIFETIME_MS / 1000
    while time.monotonic() < ended:
        producer.produce("librdkafka", b"v", on_delivery=on_delivery)
        sent += 1
        producer.poll(0.05)
    assert producer.flush(SECONDS_MAX) == 0
    assert delivered == sent
    assert not errors


@pytest.mark.thorough
def test_kafka_python_keeps_its_connection_over_several_sessions(running: RunningBroker) -> None:
    producer = KafkaProducer(
        bootstrap_servers=running.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
        retries=0,
    )
    with contextlib.closing(producer):
        ended = time.monotonic() + LIFETIMES * LIFETIME_MS / 1000
        while time.monotonic() < ended:
            producer.send("kafka-python", b"v").get(SECONDS_MAX)

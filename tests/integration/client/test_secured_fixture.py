"""The fixture zhumq_broker_secured: a broker of one's own over SASL_SSL, for our clients and for others."""

import asyncio
import stat
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest
from tests.certificates import make_authority

from zhumq import Admin, Consumer, Producer, PushConsumer
from zhumq.admin.users import list_users
from zhumq.cli.main import run
from zhumq.client.errors import AuthenticationFailed, SecurityFailed
from zhumq.client.security import ClientSecurity
from zhumq.model.password import Password
from zhumq.testing.secured import SecuredBroker

SECONDS_MAX = 60.0


def test_alice_sends_and_reads(zhumq_broker_secured: SecuredBroker) -> None:
    running = zhumq_broker_secured
    with Admin(running.bootstrap, security=running.admin_security) as admin:
        admin.create_topic("orders", partitions=1)
        assert [each.user for each in list_users(admin)] == ["admin", "alice"]
    with Producer(running.bootstrap, security=running.security) as producer:
        producer.send("orders", b"one")
    with Consumer(
        "orders", group="g", bootstrap=running.bootstrap, security=running.security
    ) as consumer:
        assert next(iter(consumer)).value == b"one"


def test_the_files_are_for_every_client_and_for_their_owner_alone(
    zhumq_broker_secured: SecuredBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    running = zhumq_broker_secured
    for file in (running.client_properties, running.admin_properties):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    options = ["--bootstrap", running.bootstrap, "--config", str(running.client_properties)]
    assert run(["topic", "create", "t", *options]) == 0
    assert run(["topic", "list", "--json", *options]) == 0
    assert '"t"' in capfd.readouterr().out
    other = confluent_kafka.Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(running.authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": running.security.username,
            "sasl.password": running.security.password.reveal(),
        }
    )
    other.produce("t", b"one")
    assert other.flush(SECONDS_MAX) == 0


def test_a_client_without_settings_is_refused(zhumq_broker_secured: SecuredBroker) -> None:
    producer = Producer(zhumq_broker_secured.bootstrap)
    producer.send("orders", b"one")
    with pytest.raises(SecurityFailed, match="the port speaks TLS"):
        producer.flush(SECONDS_MAX)


def test_alice_gets_messages_pushed_over_tls(zhumq_broker_secured: SecuredBroker) -> None:
    running = zhumq_broker_secured
    with Admin(running.bootstrap, security=running.security) as admin:
        admin.create_topic("pushed", partitions=1)
    with Producer(running.bootstrap, security=running.security) as producer:
        producer.send("pushed", b"one")

    async def read() -> bytes | None:
        async with (
            asyncio.timeout(SECONDS_MAX),
            PushConsumer(
                "pushed", group="g", bootstrap=running.bootstrap, security=running.security
            ) as consumer,
        ):
            return (await anext(consumer)).value

    assert asyncio.run(read()) == b"one"
    with Admin(running.bootstrap, security=running.security) as admin:
        assert list(admin.subscription_groups()) == ["g"]
    with Producer(running.bootstrap, security=running.security) as producer:
        producer.send("pushed", b"two")
    with Consumer(
        "pushed", group="g", mode="ptp", bootstrap=running.bootstrap, security=running.security
    ) as pulled:
        assert next(iter(pulled)).value == b"two"


def subscribe(running: SecuredBroker, security: ClientSecurity | dict[str, str]) -> None:
    async def connect() -> None:
        # With the address of the push listener: the consumer connects nowhere else.
        async with PushConsumer(
            "pushed", group="g", push=running.push, security=security
        ) as consumer:
            await consumer.subscribed(SECONDS_MAX)

    asyncio.run(connect())


def test_a_push_consumer_that_does_not_trust_the_broker_ends(
    zhumq_broker_secured: SecuredBroker, tmp_path: Path
) -> None:
    other = make_authority(tmp_path / "other")
    untrusted = {"security.protocol": "SSL", "ssl.ca.location": str(other.certificate_file)}
    with pytest.raises(SecurityFailed, match="the certificate is not trusted"):
        subscribe(zhumq_broker_secured, untrusted)


def test_a_push_consumer_that_is_refused_ends(zhumq_broker_secured: SecuredBroker) -> None:
    wrong = replace(zhumq_broker_secured.security, password=Password("wrong"))
    with pytest.raises(AuthenticationFailed, match="refused the client") as caught:
        subscribe(zhumq_broker_secured, wrong)
    assert "wrong" not in str(caught.value)
    with (
        Admin(
            zhumq_broker_secured.bootstrap, push=zhumq_broker_secured.push, security=wrong
        ) as admin,
        pytest.raises(AuthenticationFailed, match="refused the client"),
    ):
        admin.sessions()

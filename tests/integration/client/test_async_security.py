"""The async client with TLS and SASL: served with the right settings, refused within seconds with wrong ones."""

import asyncio

import pytest

import zhumq.aio
from zhumq.client.errors import AuthenticationFailed, SecurityFailed
from zhumq.testing.secured import SecuredBroker

# A refusal is confirmed after a few seconds; without that a send would wait for five minutes.
REFUSED_SECONDS_MAX = 60.0


def wrong_password(broker: SecuredBroker) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "wrong",
        "ssl.truststore.location": str(broker.authority),
    }


def test_messages_go_through_a_secured_broker(zhumq_broker_secured: SecuredBroker) -> None:
    async def run() -> bytes | None:
        bootstrap, security = zhumq_broker_secured.bootstrap, zhumq_broker_secured.security
        async with zhumq.aio.Producer(bootstrap, security=security) as producer:
            await producer.send("orders", b"chair")
        async with zhumq.aio.Consumer(
            "orders", group="g", bootstrap=bootstrap, security=security
        ) as consumer:
            return (await anext(consumer)).value

    assert asyncio.run(run()) == b"chair"


def test_sends_that_are_refused_raise_why(zhumq_broker_secured: SecuredBroker) -> None:
    async def run() -> None:
        async with zhumq.aio.Producer(
            zhumq_broker_secured.bootstrap, security=wrong_password(zhumq_broker_secured)
        ) as producer:
            sends = [producer.send("orders", b"%d" % number) for number in range(3)]
            async with asyncio.timeout(REFUSED_SECONDS_MAX):
                found = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(each) for each in found] == [AuthenticationFailed] * 3
            raise found[0]  # type: ignore[misc]

    with pytest.raises(AuthenticationFailed, match="refused the user 'alice'") as caught:
        asyncio.run(run())
    assert "wrong" not in str(caught.value)


def test_a_consumer_that_is_refused_raises_why(zhumq_broker_secured: SecuredBroker) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(REFUSED_SECONDS_MAX),
            zhumq.aio.Consumer(
                "orders",
                group="g",
                bootstrap=zhumq_broker_secured.bootstrap,
                security=wrong_password(zhumq_broker_secured),
            ) as consumer,
        ):
            await anext(consumer)

    with pytest.raises(SecurityFailed, match="refused the user 'alice'"):
        asyncio.run(run())

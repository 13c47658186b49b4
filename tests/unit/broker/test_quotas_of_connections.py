"""Quotas of the metadata image applied to connections, and the requests that change them."""

from typing import Any

from broker_support import CLIENT_ID, connection
from one_broker import OneBroker, with_broker
from tests.manual_time import advance

from zhumq.broker.access import Access
from zhumq.broker.handlers.quotas import QuotasHandler
from zhumq.broker.quotas import ClientQuotas
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import Principal
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityData,
    QuotaFilterComponent,
    QuotaOperation,
)
from zhumq.security.quota import Sampling

SECOND_NS = 1_000_000_000


def alteration(entity: dict[str, str | None], **quotas: float | None) -> QuotaAlteration:
    return QuotaAlteration(
        entity=[
            QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[
            QuotaOperation(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )


async def alter(broker: OneBroker, *entries: QuotaAlteration, validate_only: bool = False) -> Any:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return (await broker.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)).entries


def open_quotas(broker: OneBroker) -> ClientQuotas:
    """Quotas that follow the image, and the requests that change them."""
    quotas = ClientQuotas(Sampling(), broker.clock)
    quotas.apply(broker.store.image)
    broker.store.watch(quotas.apply)
    handler = QuotasHandler(broker.store, broker.metadata_client)
    broker.dispatch(handler.handlers(), Access(None, quotas))
    return quotas


def user(name: str, muted: list[int]) -> ConnectionInfo:
    info = connection()
    info.principal = Principal(f"User:{name}")
    info.mute = muted.append
    return info


def test_quotas_are_active_while_there_are_any() -> None:
    async def scenario(broker: OneBroker) -> None:
        quotas = open_quotas(broker)
        assert not quotas.is_active
        (result,) = await alter(broker, alteration({"user": "alice"}, producer_byte_rate=100))
        assert result.error_code == ErrorCode.NONE
        assert quotas.is_active
        await alter(broker, alteration({"user": "alice"}, producer_byte_rate=None))
        assert not quotas.is_active

    with_broker(scenario)


def test_a_connection_above_its_quota_is_muted_and_others_are_not() -> None:
    async def scenario(broker: OneBroker) -> None:
        quotas = open_quotas(broker)
        await alter(broker, alteration({"user": "alice"}, producer_byte_rate=100))
        muted: list[int] = []
        alice = user("alice", muted)
        assert quotas.record_request(alice, CLIENT_ID, ApiKey.PRODUCE, 1_000) == 0
        assert quotas.record_request(alice, "other", ApiKey.PRODUCE, 100) == 1_000
        assert muted == [1_000]
        assert quotas.record_request(user("bob", muted), CLIENT_ID, ApiKey.PRODUCE, 10**9) == 0
        assert quotas.record_request(alice, CLIENT_ID, ApiKey.METADATA, 10**9) == 0
        assert quotas.grant_fetch(alice, CLIENT_ID, 10**9) == (True, 0)
        assert muted == [1_000]
        quotas.take_back(alice, CLIENT_ID, 1_000)
        assert quotas.record_request(alice, CLIENT_ID, ApiKey.PRODUCE, 0) == 0

    with_broker(scenario)


def test_time_is_counted_behind_a_request_and_throttles_the_next_one() -> None:
    async def scenario(broker: OneBroker) -> None:
        quotas = open_quotas(broker)
        await alter(broker, alteration({"client-id": None}, request_percentage=10))
        muted: list[int] = []
        alice = user("alice", muted)
        quotas.record_time(alice, CLIENT_ID, SECOND_NS)
        assert quotas.record_request(alice, CLIENT_ID, ApiKey.METADATA, 1) == 0, "a tenth of ten"
        quotas.record_time(alice, CLIENT_ID, SECOND_NS)
        assert quotas.record_request(alice, CLIENT_ID, ApiKey.METADATA, 1) == 1_000
        assert quotas.record_request(alice, "other", ApiKey.METADATA, 1) == 0
        await advance(30_000)
        assert quotas.record_request(alice, CLIENT_ID, ApiKey.METADATA, 1) == 0

    with_broker(scenario)


def test_the_requests_themselves_are_counted() -> None:
    async def scenario(broker: OneBroker) -> None:
        open_quotas(broker)
        tiny = alteration({"user": None}, request_percentage=1e-6)
        await alter(broker, tiny)
        described = await broker.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest()
        )
        described = await broker.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest()
        )
        assert described.throttle_time_ms == 1_000

    with_broker(scenario)


def test_an_address_is_refused_when_it_connects_too_fast() -> None:
    async def scenario(broker: OneBroker) -> None:
        quotas = open_quotas(broker)
        assert quotas.connection_delay_ms("10.0.0.1") == 0
        await alter(
            broker,
            alteration({"ip": None}, connection_creation_rate=1),
            alteration({"ip": "10.0.0.2"}, connection_creation_rate=2),
        )
        assert [quotas.connection_delay_ms("10.0.0.1") > 0 for _ in range(11)] == (
            [False] * 10 + [True]
        )
        assert [quotas.connection_delay_ms("::ffff:10.0.0.2") > 0 for _ in range(21)] == (
            [False] * 20 + [True]
        )
        assert quotas.connection_delay_ms("10.0.0.1") <= 1_000
        await advance(11_000)
        assert quotas.connection_delay_ms("10.0.0.1") == 0

    with_broker(scenario)


def test_each_entity_of_a_request_is_answered() -> None:
    async def scenario(broker: OneBroker) -> None:
        open_quotas(broker)
        results = await alter(
            broker,
            alteration({"user": "alice"}, producer_byte_rate=100),
            alteration({"user": "alice"}, producer_byte_rate=200),
            alteration({"group": "g"}, producer_byte_rate=100),
            alteration({"ip": "10.0.0.1"}, producer_byte_rate=100),
            alteration({"user": "bob", "client-id": None}, consumer_byte_rate=5),
        )
        refused = ErrorCode.INVALID_REQUEST
        assert [each.error_code for each in results] == [0, refused, refused, refused, 0]
        assert [each.error_message is None for each in results] == [True] + [False] * 3 + [True]
        assert results[4].entity[0].entity_type == "user"
        security = broker.store.image.security
        assert security.quotas == {
            (("user", "alice"),): {"producer_byte_rate": 100},
            (("client-id", None), ("user", "bob")): {"consumer_byte_rate": 5},
        }
        (valid,) = await alter(
            broker, alteration({"user": "alice"}, producer_byte_rate=7), validate_only=True
        )
        assert valid.error_code == 0
        assert broker.store.image.security is security

    with_broker(scenario)


def test_quotas_are_described_by_a_filter() -> None:
    async def scenario(broker: OneBroker) -> None:
        open_quotas(broker)
        await alter(
            broker,
            alteration({"user": "alice"}, producer_byte_rate=100, request_percentage=12.5),
            alteration({"user": None}, producer_byte_rate=200),
        )
        component = QuotaFilterComponent(entity_type="user", match_type=0, match="alice")
        found = await broker.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            1,
            DescribeClientQuotasRequest(components=[component], strict=True),
        )
        (entry,) = found.entries
        assert [(each.entity_type, each.entity_name) for each in entry.entity] == [
            ("user", "alice")
        ]
        assert {each.key: each.value for each in entry.values} == {
            "producer_byte_rate": 100.0,
            "request_percentage": 12.5,
        }
        component = QuotaFilterComponent(entity_type="no-type", match_type=0, match="x")
        found = await broker.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(components=[component])
        )
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert found.entries is None

    with_broker(scenario)

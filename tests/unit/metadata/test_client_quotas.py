import pytest

from zhumq.metadata.client_quotas import (
    FilterComponent,
    Match,
    check_entity,
    describe_quotas,
    plan_quotas,
)
from zhumq.metadata.security import SecurityImage
from zhumq.model.errors import BrokerError, InvalidRequest, UnsupportedVersion
from zhumq.security.credential import QuotaEntity

ALICE: QuotaEntity = (("user", "alice"),)
DEFAULT_USER: QuotaEntity = (("user", None),)
ALICE_SHOP: QuotaEntity = (("client-id", "shop"), ("user", "alice"))
SHOP: QuotaEntity = (("client-id", "shop"),)
ADDRESS: QuotaEntity = (("ip", "10.0.0.1"),)
IMAGE = SecurityImage(
    quotas={
        ALICE: {"producer_byte_rate": 1.0},
        DEFAULT_USER: {"request_percentage": 2.5},
        ALICE_SHOP: {"consumer_byte_rate": 3.0},
        SHOP: {"consumer_byte_rate": 4.0},
        ADDRESS: {"connection_creation_rate": 5.0},
    }
)


def component(kind: str, match: int, name: str | None = None) -> FilterComponent:
    return FilterComponent(entity_type=kind, match=match, name=name)


def test_an_entity_is_ordered_by_type_and_an_address_is_written_in_one_way() -> None:
    assert check_entity([("user", "alice"), ("client-id", "shop")]) == ALICE_SHOP
    assert check_entity([("user", None)]) == DEFAULT_USER
    assert check_entity([("ip", "0:0::1")]) == (("ip", "::1"),)
    assert check_entity([("ip", None)]) == (("ip", None),)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("group", "g")],
        [("user", "a"), ("user", "b")],
        [("user", "")],
        [("ip", "10.0.0.1"), ("user", "a")],
        [("ip", "no-address")],
    ],
)
def test_an_entity_that_makes_no_sense_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidRequest):
        check_entity(parts)


def test_quotas_are_set_and_deleted_one_by_one() -> None:
    change = plan_quotas(IMAGE, ALICE, {"consumer_byte_rate": 7.0})
    assert change is not None
    assert change.quotas == {"producer_byte_rate": 1.0, "consumer_byte_rate": 7.0}
    change = plan_quotas(IMAGE, ALICE, {"producer_byte_rate": None})
    assert change is not None
    assert change.quotas == {}
    assert plan_quotas(IMAGE, ALICE, {"producer_byte_rate": 1.0}) is None
    assert plan_quotas(IMAGE, ALICE, {"consumer_byte_rate": None}) is None


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (ALICE, "connection_creation_rate", 1.0),
        (ADDRESS, "producer_byte_rate", 1.0),
        (ALICE, "no_such_quota", 1.0),
        (ALICE, "controller_mutation_rate", 1.0),
        (ALICE, "producer_byte_rate", 0.0),
        (ALICE, "producer_byte_rate", -1.0),
        (ALICE, "producer_byte_rate", 1.5),
        (ALICE, "producer_byte_rate", 2.0**63),
        (ALICE, "request_percentage", float("nan")),
        (ALICE, "request_percentage", float("inf")),
        (ADDRESS, "connection_creation_rate", 2.0**31),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(
    entity: QuotaEntity, name: str, value: float
) -> None:
    with pytest.raises(InvalidRequest, match=name):
        plan_quotas(IMAGE, entity, {name: value})


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, list(IMAGE.quotas)),
        ([], True, []),
        ([component("user", Match.EXACT, "alice")], False, [ALICE, ALICE_SHOP]),
        ([component("user", Match.EXACT, "alice")], True, [ALICE]),
        ([component("user", Match.DEFAULT)], True, [DEFAULT_USER]),
        ([component("user", Match.SPECIFIED)], True, [ALICE, DEFAULT_USER]),
        (
            [component("user", Match.SPECIFIED), component("client-id", Match.SPECIFIED)],
            True,
            [ALICE_SHOP],
        ),
        ([component("ip", Match.SPECIFIED)], True, [ADDRESS]),
    ],
)
def test_a_filter_finds_what_kafkas_finds(
    components: list[FilterComponent], strict: bool, expected: list[QuotaEntity]
) -> None:
    found = describe_quotas(IMAGE, components, strict=strict)
    assert [entity for entity, _ in found] == expected
    assert all(quotas == IMAGE.quotas[entity] for entity, quotas in found)


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([component("", Match.EXACT, "a")], InvalidRequest),
        ([component("group", Match.EXACT, "a")], UnsupportedVersion),
        ([component("user", 3)], InvalidRequest),
        ([component("user", Match.EXACT)], InvalidRequest),
        ([component("user", Match.DEFAULT, "a")], InvalidRequest),
        ([component("user", Match.SPECIFIED, "a")], InvalidRequest),
        ([component("user", Match.SPECIFIED), component("user", Match.DEFAULT)], InvalidRequest),
        ([component("user", Match.SPECIFIED), component("ip", Match.DEFAULT)], InvalidRequest),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    components: list[FilterComponent], error: type[BrokerError]
) -> None:
    with pytest.raises(error):
        describe_quotas(IMAGE, components, strict=False)

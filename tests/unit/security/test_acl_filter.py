"""Filters of ACLs as Kafka's ResourcePatternFilter and AccessControlEntryFilter have them; validity of ACLs."""

import pytest

from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.acl_filter import AclFilter, AclInvalid, check_acl

ENTRY = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
TOPIC = ResourceType.TOPIC
LITERAL = ResourcePattern(TOPIC, "orders")
PREFIXED = ResourcePattern(TOPIC, "ord", PatternType.PREFIXED)
WILDCARD = ResourcePattern(TOPIC, "*")
GROUP = ResourcePattern(ResourceType.GROUP, "orders")
ACLS = {each: frozenset({ENTRY}) for each in (LITERAL, PREFIXED, WILDCARD, GROUP)}


def found(**fields: object) -> list[ResourcePattern]:
    return [resource for resource, _ in AclFilter(**fields).select(ACLS)]  # type: ignore[arg-type]


def test_no_condition_finds_every_acl() -> None:
    assert found() == [LITERAL, PREFIXED, WILDCARD, GROUP]


def test_match_finds_every_pattern_that_is_about_the_name() -> None:
    assert found(type=TOPIC, name="orders", pattern=PatternType.MATCH) == [
        LITERAL,
        PREFIXED,
        WILDCARD,
    ]
    assert found(type=TOPIC, name="other", pattern=PatternType.MATCH) == [WILDCARD]


def test_every_other_pattern_type_finds_the_name_as_it_is_written() -> None:
    assert found(name="orders", pattern=PatternType.ANY) == [LITERAL, GROUP]
    assert found(type=TOPIC, name="orders", pattern=PatternType.LITERAL) == [LITERAL]
    assert found(type=TOPIC, name="ord", pattern=PatternType.PREFIXED) == [PREFIXED]
    assert found(type=TOPIC, name="ord", pattern=PatternType.LITERAL) == []
    assert found(pattern=PatternType.PREFIXED) == [PREFIXED]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("principal", "User:bob"),
        ("host", "10.0.0.9"),
        ("operation", Operation.ALL),
        ("permission", Permission.DENY),
    ],
)
def test_each_field_of_an_entry_is_compared(field: str, value: object) -> None:
    assert found(**{field: value}) == []
    assert found(**{field: getattr(ENTRY, field)}) == list(ACLS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", ResourceType.UNKNOWN),
        ("pattern", PatternType.UNKNOWN),
        ("operation", Operation.UNKNOWN),
        ("permission", Permission.UNKNOWN),
    ],
)
def test_a_filter_with_an_unknown_code_is_invalid(field: str, value: object) -> None:
    with pytest.raises(AclInvalid, match="unknown"):
        AclFilter(**{field: value}).check()  # type: ignore[arg-type]


def test_a_whole_acl_is_valid() -> None:
    check_acl(LITERAL, ENTRY)
    check_acl(PREFIXED, ENTRY)
    check_acl(ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), ENTRY)


@pytest.mark.parametrize(
    ("resource", "entry", "why"),
    [
        (LITERAL._replace(type=ResourceType.ANY), ENTRY, "resource type ANY"),
        (LITERAL._replace(pattern=PatternType.MATCH), ENTRY, "pattern type MATCH"),
        (LITERAL._replace(name=""), ENTRY, "name of the resource is empty"),
        (LITERAL._replace(name="x" * 2_000), ENTRY, "longer than 1024"),
        (LITERAL._replace(type=ResourceType.CLUSTER), ENTRY, "kafka-cluster"),
        (LITERAL, ENTRY._replace(operation=Operation.ANY), "operation ANY"),
        (LITERAL, ENTRY._replace(permission=Permission.ANY), "permission type ANY"),
        (LITERAL, ENTRY._replace(principal="alice"), "User:alice"),
        (LITERAL, ENTRY._replace(principal="User:"), "User:alice"),
        (LITERAL, ENTRY._replace(host=""), "host is empty"),
    ],
)
def test_an_acl_that_cannot_be_says_what_is_wrong(
    resource: ResourcePattern, entry: AclEntry, why: str
) -> None:
    with pytest.raises(AclInvalid, match=why):
        check_acl(resource, entry)

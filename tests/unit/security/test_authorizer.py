"""The authorizer: each rule of Kafka's StandardAuthorizer, and the index behind it."""

import pytest

from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.authorizer import Acls, Authorizer

ALICE = "User:alice"
BOB = "User:bob"
HOST = "10.0.0.9"
TOPIC = ResourceType.TOPIC
GROUP = ResourceType.GROUP


def allow(
    operation: Operation = Operation.ALL, principal: str = ALICE, host: str = "*"
) -> AclEntry:
    return AclEntry(principal, host, operation, Permission.ALLOW)


def deny(operation: Operation = Operation.ALL, principal: str = ALICE, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, Permission.DENY)


def literal(name: str, type_: ResourceType = TOPIC) -> ResourcePattern:
    return ResourcePattern(type_, name)


def prefixed(name: str, type_: ResourceType = TOPIC) -> ResourcePattern:
    return ResourcePattern(type_, name, PatternType.PREFIXED)


def authorizer(
    acls: dict[ResourcePattern, list[AclEntry]], *, allow_if_no_acl_found: bool = False
) -> Authorizer:
    made = Authorizer(
        super_users=frozenset({"User:root"}), allow_if_no_acl_found=allow_if_no_acl_found
    )
    made.apply({resource: frozenset(entries) for resource, entries in acls.items()})
    return made


def may(
    made: Authorizer,
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    principal: str = ALICE,
    host: str = HOST,
    type_: ResourceType = TOPIC,
) -> bool:
    return made.may(principal, host, operation, type_, name)


def test_without_acls_nothing_is_permitted_but_to_super_users() -> None:
    made = authorizer({})
    assert not may(made)
    assert may(made, principal="User:root")


def test_a_super_user_may_do_what_is_denied() -> None:
    made = authorizer({literal("orders"): [deny(principal="User:*")]})
    assert may(made, principal="User:root")


@pytest.mark.parametrize(
    "resource", [literal("orders"), literal("*"), prefixed("ord"), prefixed("orders")]
)
def test_a_name_matches_itself_a_prefix_and_the_wildcard(resource: ResourcePattern) -> None:
    made = authorizer({resource: [allow(Operation.READ)]})
    assert may(made)
    assert not may(made, Operation.WRITE)
    assert not may(made, type_=GROUP)
    assert not may(made, principal=BOB)


def test_a_literal_name_is_no_prefix_and_a_longer_prefix_does_not_match() -> None:
    made = authorizer({literal("ord"): [allow()], prefixed("orders2"): [allow()]})
    assert not may(made)


@pytest.mark.parametrize("principal", [ALICE, "User:*"])
@pytest.mark.parametrize("host", [HOST, "*"])
def test_principal_and_host_match_themselves_and_the_wildcard(principal: str, host: str) -> None:
    made = authorizer({literal("orders"): [allow(principal=principal, host=host)]})
    assert may(made)
    assert may(made, host="10.0.0.10") == (host == "*")
    assert may(made, principal=BOB) == (principal == "User:*")


@pytest.mark.parametrize("denied", [literal("*"), prefixed("o"), literal("orders")])
@pytest.mark.parametrize("allowed", [literal("*"), prefixed("o"), literal("orders")])
def test_an_entry_that_denies_wins_over_every_entry_that_allows(
    denied: ResourcePattern, allowed: ResourcePattern
) -> None:
    acls = {allowed: [allow()]}
    acls[denied] = [*acls.get(denied, []), deny(Operation.READ, "User:*")]
    made = authorizer(acls)
    assert not may(made)
    assert may(made, Operation.WRITE)


@pytest.mark.parametrize(
    "operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]
)
def test_some_operations_imply_that_the_resource_may_be_described(operation: Operation) -> None:
    assert may(authorizer({literal("orders"): [allow(operation)]}), Operation.DESCRIBE)
    denied = authorizer({literal("orders"): [allow(Operation.DESCRIBE), deny(operation)]})
    assert may(denied, Operation.DESCRIBE), "what is denied implies nothing"


def test_altering_settings_implies_describing_them_and_creating_implies_nothing() -> None:
    made = authorizer(
        {literal("orders"): [allow(Operation.ALTER_CONFIGS), allow(Operation.CREATE)]}
    )
    assert may(made, Operation.DESCRIBE_CONFIGS)
    assert not may(made, Operation.DESCRIBE)


def test_without_an_acl_of_the_resource_everyone_may_do_everything_if_so_set() -> None:
    made = authorizer({literal("orders"): [allow(principal=BOB)]}, allow_if_no_acl_found=True)
    assert may(made, name="payments")
    assert not may(made), "there are ACLs of orders, and none allows alice anything"


def test_a_right_to_any_topic_is_found_unless_all_of_it_is_denied() -> None:
    def writes(acls: dict[ResourcePattern, list[AclEntry]]) -> bool:
        return authorizer(acls).may_with_any(ALICE, HOST, Operation.WRITE, TOPIC)

    assert not writes({})
    assert not writes({literal("orders"): [allow(Operation.READ)]})
    assert not writes({literal("orders", GROUP): [allow(Operation.ALL)]})
    assert writes({literal("orders"): [allow(Operation.WRITE)]})
    assert writes({prefixed("ord"): [allow(Operation.ALL, "User:*")]})
    assert not writes({prefixed("ord"): [allow(), deny(Operation.WRITE)]})
    assert not writes({literal("orders"): [allow()], prefixed("o"): [deny()]})
    assert not writes({literal("orders"): [allow()], literal("*"): [deny()]})
    assert writes({prefixed("ord"): [allow()], literal("orders"): [deny()]})
    assert not writes({literal("orders"): [allow(host="10.0.0.10")]})
    assert authorizer({}).may_with_any("User:root", HOST, Operation.WRITE, TOPIC)


class CountingAcls(dict[ResourcePattern, frozenset[AclEntry]]):
    """Counts the lookups of patterns, which the authorizer makes for those that it indexes."""

    lookups = 0

    def __getitem__(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        self.lookups += 1
        return super().__getitem__(pattern)


def test_a_change_of_one_resource_indexes_only_that_resource() -> None:
    many = {literal(f"topic-{number}"): frozenset({allow()}) for number in range(1_000)}
    made = authorizer({})
    made.apply(many)
    changed: Acls = CountingAcls(many)
    assert isinstance(changed, CountingAcls)
    # As the metadata image does it: what changes comes last.
    del changed[literal("topic-500")]
    changed[literal("topic-500")] = frozenset({deny()})
    made.apply(changed)
    assert changed.lookups == 1
    assert not may(made, name="topic-500")
    assert may(made, name="topic-501")


def test_acls_in_any_order_replace_those_before() -> None:
    made = authorizer({literal("a"): [allow()], prefixed("b"): [allow()], literal("c"): [allow()]})
    made.apply({literal("c"): frozenset({deny()}), literal("a"): frozenset({allow()})})
    assert may(made, name="a")
    assert not may(made, name="bee")
    assert not may(made, name="c")
    made.apply({})
    assert not may(made, name="a")
    assert not made.may_with_any(ALICE, HOST, Operation.WRITE, TOPIC)

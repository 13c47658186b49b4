"""The authorizer against a scan of all ACLs, as Kafka's documentation describes the decision."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.authorizer import Authorizer

NAMES = st.text("ab*", min_size=1, max_size=3)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:root"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from([each for each in Operation if each > Operation.ALL])
PATTERNS = st.builds(
    ResourcePattern, TYPES, NAMES, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])
)
ENTRIES = st.builds(
    AclEntry,
    st.one_of(PRINCIPALS, st.just("User:*")),
    st.one_of(HOSTS, st.just("*")),
    st.one_of(OPERATIONS, st.just(Operation.ALL)),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
ACLS = st.dictionaries(PATTERNS, st.frozensets(ENTRIES, min_size=1, max_size=4), max_size=5)
SUPER_USERS = frozenset({"User:root"})
IMPLIES = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

Acls = Mapping[ResourcePattern, frozenset[AclEntry]]


def is_about(pattern: ResourcePattern, type_: ResourceType, name: str) -> bool:
    if pattern.type != type_:
        return False
    if pattern.pattern is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in ("*", name)


def applies(entry: AclEntry, principal: str, host: str, operation: Operation) -> bool:
    operations = {operation, Operation.ALL}
    if entry.permission is Permission.ALLOW:
        operations |= IMPLIES.get(operation, set())
    return (
        entry.principal in (principal, "User:*")
        and entry.host in (host, "*")
        and entry.operation in operations
    )


def decided_by_a_scan(
    acls: Acls,
    question: tuple[str, str, Operation, ResourceType, str],
    *,
    allow_if_no_acl_found: bool,
) -> bool:
    principal, host, operation, type_, name = question
    if principal in SUPER_USERS:
        return True
    about = [
        entry
        for pattern, entries in acls.items()
        if is_about(pattern, type_, name)
        for entry in entries
    ]
    if not about:
        return allow_if_no_acl_found
    permissions = {
        entry.permission for entry in about if applies(entry, principal, host, operation)
    }
    return permissions == {Permission.ALLOW}


@pytest.mark.thorough
@given(
    images=st.lists(ACLS, min_size=1, max_size=4),
    question=st.tuples(PRINCIPALS, HOSTS, OPERATIONS, TYPES, NAMES),
    allow_if_no_acl_found=st.booleans(),
)
def test_the_index_decides_as_a_scan_of_all_acls_does_after_every_change(
    images: list[dict[ResourcePattern, frozenset[AclEntry]]],
    question: tuple[str, str, Operation, ResourceType, str],
    allow_if_no_acl_found: bool,
) -> None:
    authorizer = Authorizer(super_users=SUPER_USERS, allow_if_no_acl_found=allow_if_no_acl_found)
    for acls in images:
        authorizer.apply(acls)
        assert authorizer.may(*question) == decided_by_a_scan(
            acls, question, allow_if_no_acl_found=allow_if_no_acl_found
        )


@given(acls=ACLS, principal=PRINCIPALS, host=HOSTS, name=NAMES)
def test_who_may_write_to_some_topic_is_found_among_those_who_may_write_to_any(
    acls: dict[ResourcePattern, frozenset[AclEntry]], principal: str, host: str, name: str
) -> None:
    """A right to one topic is a right to any, unless the name is one that a rule is not about."""
    authorizer = Authorizer(super_users=SUPER_USERS)
    authorizer.apply(acls)
    if authorizer.may(principal, host, Operation.WRITE, ResourceType.TOPIC, name):
        assert authorizer.may_with_any(principal, host, Operation.WRITE, ResourceType.TOPIC)

"""The authorizer with many ACLs: decisions, and the changes of one ACL among them."""

import time
from collections.abc import Callable, Iterable

from zhumq.metadata.security import AclsChanged, SecurityImage, apply_security_changes
from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.authorizer import Authorizer

ACL_COUNTS = (1_000, 100_000)
SMALL_ACL_COUNTS = (1_000,)
PREFIX_SHARE = 10  # one pattern in so many is a prefix, of a length from 4 to 23
USERS = 500
DECISIONS = 20_000
CHANGES = 20
HOST = "10.0.0.9"


def acl_figures(count: int) -> dict[str, float]:
    """Microseconds of CPU time for each decision and change."""
    image = apply_security_changes(SecurityImage(), [_change(each) for each in range(count)])
    authorizer = Authorizer()
    indexed = _seconds(lambda: authorizer.apply(image.acls))

    def decide(names: Iterable[str]) -> None:
        for number, name in enumerate(names):
            authorizer.may(_user(number), HOST, Operation.READ, ResourceType.TOPIC, name)

    known = [_name(number * 7 % count) for number in range(DECISIONS)]
    unknown = [f"unknown-{number}" for number in range(DECISIONS)]
    images = []
    for number in range(CHANGES):
        image = apply_security_changes(image, [_change(number, Permission.DENY)])
        images.append(image)

    def change() -> None:
        for each in images:
            authorizer.apply(each.acls)

    return {
        "all ACLs indexed, ms": indexed * 1e3,
        "a decision about a topic with ACLs, us": _seconds(lambda: decide(known)) * 1e6 / DECISIONS,
        "about a topic without, us": _seconds(lambda: decide(unknown)) * 1e6 / DECISIONS,
        "the index after a change of one ACL, ms": _seconds(change) * 1e3 / CHANGES,
    }


def _change(number: int, permission: Permission = Permission.ALLOW) -> AclsChanged:
    pattern = PatternType.LITERAL if number % PREFIX_SHARE else PatternType.PREFIXED
    name = _name(number)
    if pattern is PatternType.PREFIXED:
        name = name.ljust(4 + number // PREFIX_SHARE % 20, "-")
    entry = AclEntry(_user(number), "*", Operation.READ, permission)
    return AclsChanged(
        resource=ResourcePattern(ResourceType.TOPIC, name, pattern), entries=frozenset({entry})
    )


def _name(number: int) -> str:
    return f"team-{number % 97}.orders-{number}"


def _user(number: int) -> str:
    return f"User:user-{number % USERS}"


def _seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin

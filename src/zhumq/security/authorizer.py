"""Decides by ACLs whether a principal may do something. An index finds the few rules that matter."""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from zhumq.security.acl import (
    ANY_USER,
    WILDCARD,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

Acls = Mapping[ResourcePattern, frozenset[AclEntry]]
# The rules of one resource pattern: what is allowed and what is denied, as bits of operations, by
# principal and host.
_Rules = dict[tuple[str, str], tuple[int, int]]

_NO_ACLS: Final[Acls] = {}
_LITERAL: Final = PatternType.LITERAL
_PREFIXED: Final = PatternType.PREFIXED
_ALL: Final = 1 << Operation.ALL
# An entry that denies an operation denies nothing that the operation implies.
_DENIED_BY: Final = {each: 1 << each | _ALL for each in Operation}
_IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_ALLOWED_BY: Final = {
    each: bits | sum(1 << other for other in _IMPLIED_BY.get(each, ()))
    for each, bits in _DENIED_BY.items()
}


class Authorizer:
    """The rules of Kafka's StandardAuthorizer. An entry that denies wins over all that allow.

    A decision looks up the literal name, the name `*`, and a prefix of each length that occurs, whatever
    the number of rules is. After a change only what has changed is indexed again.
    """

    def __init__(
        self, *, super_users: AbstractSet[str] = frozenset(), allow_if_no_acl_found: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_if_no_acl_found = allow_if_no_acl_found
        self._acls = _NO_ACLS
        self._rules: dict[tuple[ResourceType, str, PatternType], _Rules] = {}
        # How many prefixed patterns of a type have names of a length.
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {
            each: Counter() for each in ResourceType
        }
        # The patterns with entries of a principal.
        self._patterns: dict[tuple[ResourceType, str], set[ResourcePattern]] = {}

    def apply(self, acls: Acls) -> None:
        """Takes over the ACLs of a new metadata image."""
        if acls is self._acls:
            return
        removed, added = _difference(self._acls, acls)
        for pattern in removed:
            self._remove(pattern)
        for pattern in added:
            self._add(pattern, acls[pattern])
        self._acls = acls

    def may(
        self, principal: str, host: str, operation: Operation, type_: ResourceType, name: str
    ) -> bool:
        """Whether the principal, from this host, may do this with the resource of this name."""
        if principal in self._super_users:
            return True
        allowed_by, denied_by = _ALLOWED_BY[operation], _DENIED_BY[operation]
        allowed = has_rules = 0
        for rules in self._matching(type_, name):
            has_rules = 1
            for who in (principal, ANY_USER):
                for where in (host, WILDCARD):
                    bits = rules.get((who, where))
                    if bits is not None:
                        if bits[1] & denied_by:
                            return False
                        allowed |= bits[0] & allowed_by
        return bool(allowed) or (not has_rules and self._allow_if_no_acl_found)

    def may_with_any(
        self, principal: str, host: str, operation: Operation, type_: ResourceType
    ) -> bool:
        """Whether there can be a resource of the type with which the principal may do this: some entry
        allows it, and none denies all that the entry is about. Implied operations do not count (KIP-679).
        """
        # As in Kafka, a name that no rule is about finds super users, and the rule for no rules.
        if self.may(principal, host, operation, type_, "hardcode"):
            return True
        operation_bits = _DENIED_BY[operation]
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for who in (principal, ANY_USER):
            for pattern in self._patterns.get((type_, who), ()):
                rules = self._rules[pattern]
                bits = [rules.get((who, where), (0, 0)) for where in (host, WILDCARD)]
                if any(each[1] & operation_bits for each in bits):
                    denied.add(pattern)
                if any(each[0] & operation_bits for each in bits):
                    allowed.append(pattern)
        if ResourcePattern(type_, WILDCARD) in denied:
            return False
        return any(not _is_denied(pattern, denied) for pattern in allowed)

    def _matching(self, type_: ResourceType, name: str) -> Iterator[_Rules]:
        """The rules of each resource pattern that the name matches."""
        found = self._rules.get((type_, name, _LITERAL))
        if found is not None:
            yield found
        found = self._rules.get((type_, WILDCARD, _LITERAL))
        if found is not None:
            yield found
        size = len(name)
        for length in self._prefix_lengths[type_]:
            if length <= size:
                found = self._rules.get((type_, name[:length], _PREFIXED))
                if found is not None:
                    yield found

    def _add(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        rules: _Rules = {}
        for entry in entries:
            key = entry.principal, entry.host
            allowed, denied = rules.get(key, (0, 0))
            bit = 1 << entry.operation
            rules[key] = (
                (allowed | bit, denied)
                if entry.permission is Permission.ALLOW
                else (allowed, denied | bit)
            )
            self._patterns.setdefault((pattern.type, entry.principal), set()).add(pattern)
        self._rules[pattern] = rules
        if pattern.pattern is _PREFIXED:
            self._prefix_lengths[pattern.type][len(pattern.name)] += 1

    def _remove(self, pattern: ResourcePattern) -> None:
        for principal, _ in self._rules.pop(pattern):
            patterns = self._patterns.get((pattern.type, principal))
            if patterns is not None:
                patterns.discard(pattern)
                if not patterns:
                    del self._patterns[pattern.type, principal]
        if pattern.pattern is _PREFIXED:
            lengths = self._prefix_lengths[pattern.type]
            lengths[len(pattern.name)] -= 1
            if not lengths[len(pattern.name)]:
                del lengths[len(pattern.name)]


def _is_denied(allowed: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Whether these patterns deny everything that the allowed pattern is about."""
    if allowed.name == WILDCARD and allowed.pattern is _LITERAL:
        return False
    if allowed.pattern is _LITERAL and allowed in denied:
        return True
    return any(
        ResourcePattern(allowed.type, allowed.name[:length], _PREFIXED) in denied
        for length in range(1, len(allowed.name) + 1)
    )


def _difference(before: Acls, after: Acls) -> tuple[list[ResourcePattern], list[ResourcePattern]]:
    """The patterns to remove, and those to add. A new image is a copy of the one before: what is unchanged
    is the same object in the same order, and what has changed comes last. Any other order only
    costs more.
    """
    removed: list[ResourcePattern] = []
    added = iter(after.items())
    ahead = next(added, None)
    for pattern, entries in before.items():
        if ahead is not None and ahead[0] is pattern and ahead[1] is entries:
            ahead = next(added, None)
        else:
            removed.append(pattern)
    rest = [] if ahead is None else [ahead[0]]
    rest.extend(pattern for pattern, _ in added)
    return removed, rest

"""Filters of ACLs, and which resource patterns and entries are valid: what the requests about ACLs say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from zhumq.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

RESOURCE_NAME_LENGTH_MAX = 1_024
PRINCIPAL_LENGTH_MAX = 1_024
HOST_LENGTH_MAX = 255


class AclInvalid(ValueError):
    """An ACL that cannot be: what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which ACLs are meant. None and ANY: all of them."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def check(self) -> None:
        """Raises AclInvalid for a filter with codes that this release does not know."""
        for field, value in (
            ("resource type", self.type),
            ("pattern type", self.pattern),
            ("operation", self.operation),
            ("permission type", self.permission),
        ):
            if not value:
                raise AclInvalid(f"the {field} of the filter is unknown")

    def select(
        self, acls: Mapping[ResourcePattern, frozenset[AclEntry]]
    ) -> Iterator[tuple[ResourcePattern, list[AclEntry]]]:
        """The patterns with entries that match, each with these entries in order."""
        for resource, entries in self._resources(acls):
            found = sorted(entry for entry in entries if self.matches_entry(entry))
            if found:
                yield resource, found

    def matches_resource(self, resource: ResourcePattern) -> bool:
        """As in Kafka: MATCH finds every pattern that is about the resource with this name."""
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None or self.name == resource.name:
            return True
        if self.pattern is not PatternType.MATCH:
            return False
        if resource.pattern is PatternType.PREFIXED:
            return self.name.startswith(resource.name)
        return resource.name == WILDCARD

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def _resources(
        self, acls: Mapping[ResourcePattern, frozenset[AclEntry]]
    ) -> Iterator[tuple[ResourcePattern, frozenset[AclEntry]]]:
        if (
            self.name is not None
            and self.type is not ResourceType.ANY
            and self.pattern in (PatternType.LITERAL, PatternType.PREFIXED)
        ):
            # Only this one can match: there may be 100,000 others.
            only = ResourcePattern(self.type, self.name, self.pattern)
            if only in acls:
                yield only, acls[only]
            return
        for resource, entries in acls.items():
            if self.matches_resource(resource):
                yield resource, entries


def check_acl(resource: ResourcePattern, entry: AclEntry) -> None:
    """Raises AclInvalid for an ACL that cannot be created."""
    if resource.type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise AclInvalid(f"invalid resource type {resource.type.name}")
    if resource.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise AclInvalid(f"invalid pattern type {resource.pattern.name}")
    if entry.operation in (Operation.UNKNOWN, Operation.ANY):
        raise AclInvalid(f"invalid operation {entry.operation.name}")
    if entry.permission not in (Permission.ALLOW, Permission.DENY):
        raise AclInvalid(f"invalid permission type {entry.permission.name}")
    if not resource.name:
        raise AclInvalid("the name of the resource is empty")
    if resource.type is ResourceType.CLUSTER and resource.name != CLUSTER_NAME:
        raise AclInvalid(f"the only name of a CLUSTER resource is {CLUSTER_NAME}")
    kind, colon, name = entry.principal.partition(":")
    if not (kind and colon and name):
        raise AclInvalid(f"principal {entry.principal[:64]!r} is not TYPE:NAME, such as User:alice")
    if not entry.host:
        raise AclInvalid("the host is empty: write * for every host")
    for text, length_max in (
        (resource.name, RESOURCE_NAME_LENGTH_MAX),
        (entry.principal, PRINCIPAL_LENGTH_MAX),
        (entry.host, HOST_LENGTH_MAX),
    ):
        if len(text) > length_max:
            raise AclInvalid(f"{text[:32]!r}... is longer than {length_max} characters")

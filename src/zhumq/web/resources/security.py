"""Users, ACLs and quotas: list and change them."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from zhumq.admin import acls, quotas, users
from zhumq.model.password import Password
from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.acl_filter import AclFilter
from zhumq.web.brokers import Brokers
from zhumq.web.names import AnyName
from zhumq.web.paging import Page, PageQuery, page_of
from zhumq.web.problems import invalid

UserName = Annotated[str, Meta(min_length=1, max_length=249)]
Secret = Annotated[str, Meta(min_length=1, max_length=1_024)]
Principal = Annotated[str, Meta(max_length=1_024, description="Such as User:alice.")]
ResourceName = Annotated[str, Meta(max_length=1_024)]
Host = Annotated[str, Meta(max_length=255)]
ResourceTypeName = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "USER"]
PatternName = Literal["LITERAL", "PREFIXED"]
OperationName = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE", "TWO_PHASE_COMMIT",
]  # fmt: skip
PermissionName = Literal["ALLOW", "DENY"]
EntityType = Literal["user", "client-id", "ip"]
QuotaName = Literal[
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate", "controller_mutation_rate",
]  # fmt: skip
_CREATED_MAX: Final = 1_000  # ACLs of a request


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user to create."""

    user: UserName
    password: Secret


class NewPassword(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new password of a user."""

    password: Secret


class AclRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A principal may, or may not, do something with resources. A host of * is every host."""

    resource_type: ResourceTypeName
    resource_name: ResourceName
    principal: Principal
    operation: OperationName
    pattern: PatternName = "LITERAL"
    permission: PermissionName = "ALLOW"
    host: Host = "*"


class NewAcls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ACLs to create."""

    acls: Annotated[list[AclRule], Meta(min_length=1, max_length=_CREATED_MAX)]


class AclQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ACLs. Those about a resource include the ones by a prefix, or by *, with `pattern=MATCH`."""

    resource_type: ResourceTypeName | None = None
    resource_name: ResourceName | None = None
    pattern: Literal["LITERAL", "PREFIXED", "MATCH"] | None = None
    principal: Principal | None = None
    operation: OperationName | None = None
    permission: PermissionName | None = None
    host: Host | None = None


class AclDeletion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ACLs are deleted: all that have what is given here. A principal or a resource is needed."""

    resource_type: ResourceTypeName | None = None
    resource_name: ResourceName | None = None
    pattern: PatternName | None = None
    principal: Principal | None = None
    operation: OperationName | None = None
    permission: PermissionName | None = None
    host: Host | None = None


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Quotas of an entity. Its name of null is the default of that type; a quota of null is deleted."""

    entity: Annotated[Mapping[EntityType, AnyName | None], Meta(min_length=1)]
    quotas: Annotated[Mapping[QuotaName, Annotated[float, Meta(gt=0)] | None], Meta(min_length=1)]


def list_users(brokers: Brokers, query: PageQuery) -> Page[users.User]:
    """List users by name, with the SASL mechanisms of each."""
    found = users.list_users(brokers.connection)
    return page_of(found, lambda each: each.user, limit=query.limit, after=query.after)


def create_user(brokers: Brokers, body: NewUser) -> users.User:
    """Create a user with a password."""
    users.create_user(brokers.connection, body.user, Password(body.password))
    known = users.list_users(brokers.connection)
    return next((each for each in known if each.user == body.user), _without_mechanism(body.user))


def set_password(brokers: Brokers, user: UserName, body: NewPassword) -> None:
    """Set the password of a user."""
    users.set_password(brokers.connection, user, Password(body.password))


def delete_user(brokers: Brokers, user: UserName) -> None:
    """Delete a user."""
    users.delete_user(brokers.connection, user)


def list_acls(brokers: Brokers, query: AclQuery) -> Page[AclRule]:
    """List ACLs."""
    found = acls.list_acls(brokers.connection, _filter(query))
    shown = sorted((_shown(each) for each in found), key=_name)
    return page_of(shown, _name, limit=query.limit, after=query.after)


def create_acls(brokers: Brokers, body: NewAcls) -> NewAcls:
    """Create ACLs. Those that exist stay as they are."""
    acls.create_acls(brokers.connection, [_acl(each) for each in body.acls])
    return body


def delete_acls(brokers: Brokers, query: AclDeletion) -> list[AclRule]:
    """Delete the ACLs that have what is given, and answer with them."""
    if query.principal is None and query.resource_name is None:
        raise invalid("which ACLs?", "give principal, or resource_type and resource_name")
    deleted = acls.delete_acls(brokers.connection, [_filter(query)])
    return sorted((_shown(each) for each in deleted), key=_name)


def list_quotas(brokers: Brokers) -> list[quotas.ClientQuota]:
    """List the quotas of users, clients and addresses."""
    return quotas.list_quotas(brokers.connection)


def alter_quotas(brokers: Brokers, body: QuotaChange) -> None:
    """Set and delete quotas of a user, a client id, an address, or a combination."""
    quotas.alter_quotas(
        brokers.connection,
        {str(kind): name for kind, name in body.entity.items()},
        {str(name): value for name, value in body.quotas.items()},
    )


def _without_mechanism(name: str) -> users.User:
    """A user that was just created, as a broker that does not know it yet would show it."""
    return users.User(user=name, mechanisms=())


def _filter(query: AclQuery | AclDeletion) -> AclFilter:
    return AclFilter(
        type=ResourceType[query.resource_type or "ANY"],
        name=query.resource_name,
        pattern=PatternType[query.pattern or "ANY"],
        principal=query.principal,
        host=query.host,
        operation=Operation[query.operation or "ANY"],
        permission=Permission[query.permission or "ANY"],
    )


def _acl(rule: AclRule) -> acls.Acl:
    return acls.Acl(
        resource=ResourcePattern(
            ResourceType[rule.resource_type], rule.resource_name, PatternType[rule.pattern]
        ),
        entry=AclEntry(
            rule.principal, rule.host, Operation[rule.operation], Permission[rule.permission]
        ),
    )


def _shown(acl: acls.Acl) -> AclRule:
    return msgspec.convert(
        {
            "resource_type": acl.resource.type.name,
            "resource_name": acl.resource.name,
            "principal": acl.entry.principal,
            "operation": acl.entry.operation.name,
            "pattern": acl.resource.pattern.name,
            "permission": acl.entry.permission.name,
            "host": acl.entry.host,
        },
        AclRule,
    )


def _name(rule: AclRule) -> str:
    parts = (rule.resource_type, rule.resource_name, rule.pattern, rule.principal)
    return " ".join([*parts, rule.host, rule.operation, rule.permission])

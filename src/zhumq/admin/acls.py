"""ACLs: list, create and delete them; the rights of a producer and of a consumer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused
from zhumq.model.errors import ErrorCode
from zhumq.security.acl import (
    CLUSTER_NAME,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.acl_filter import AclFilter


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One rule: what it is about, and what it says."""

    resource: ResourcePattern
    entry: AclEntry


def list_acls(connection: ClusterConnection, acl_filter: AclFilter | None = None) -> list[Acl]:
    """The ACLs that the filter matches, in order."""
    # Imported here: most operations do not need the codecs, which take time to load.
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages.acls import DescribeAclsRequest  # noqa: PLC0415

    request = DescribeAclsRequest(**_fields(acl_filter or AclFilter()))
    answer = connection.request(ApiKey.DESCRIBE_ACLS, request)
    _check("list ACLs", answer.error_code, answer.error_message)
    return sorted(
        _acl(each.resource_type, each.resource_name, each.pattern_type, entry)
        for each in answer.resources
        for entry in each.acls
    )


def create_acls(connection: ClusterConnection, acls: Sequence[Acl]) -> None:
    """Create ACLs. Those that exist stay as they are. Raises Refused for the first that is refused."""
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages.acls import AclCreation, CreateAclsRequest  # noqa: PLC0415

    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource.type,
                resource_name=acl.resource.name,
                resource_pattern_type=acl.resource.pattern,
                principal=acl.entry.principal,
                host=acl.entry.host,
                operation=acl.entry.operation,
                permission_type=acl.entry.permission,
            )
            for acl in acls
        ]
    )
    for result in connection.request(ApiKey.CREATE_ACLS, request).results:
        _check("create the ACL", result.error_code, result.error_message)


def delete_acls(connection: ClusterConnection, filters: Iterable[AclFilter]) -> list[Acl]:
    """Delete the ACLs that any of the filters matches. Returns them, in order."""
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages.acls import DeleteAclsFilter, DeleteAclsRequest  # noqa: PLC0415

    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(each)) for each in filters])
    deleted: set[Acl] = set()
    for result in connection.request(ApiKey.DELETE_ACLS, request).filter_results:
        _check("delete ACLs", result.error_code, result.error_message)
        for each in result.matching_acls:
            deleted.add(_acl(each.resource_type, each.resource_name, each.pattern_type, each))
    return sorted(deleted)


def producer_acls(
    principal: str, topics: Iterable[ResourcePattern], *, host: str = "*"
) -> list[Acl]:
    """The rights of a producer: write to topics, and create them. As kafka-acls --producer grants them."""
    operations = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
    return [_allow(topic, principal, host, each) for topic in topics for each in operations]


def consumer_acls(
    principal: str,
    topics: Iterable[ResourcePattern],
    groups: Iterable[ResourcePattern],
    *,
    host: str = "*",
) -> list[Acl]:
    """The rights of a consumer: read topics in a group. As kafka-acls --consumer grants them."""
    operations = (Operation.READ, Operation.DESCRIBE)
    found = [_allow(topic, principal, host, each) for topic in topics for each in operations]
    return found + [_allow(group, principal, host, Operation.READ) for group in groups]


def cluster_resource() -> ResourcePattern:
    """The resource of rights to the cluster itself."""
    return ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)


def _allow(resource: ResourcePattern, principal: str, host: str, operation: Operation) -> Acl:
    return Acl(resource=resource, entry=AclEntry(principal, host, operation, Permission.ALLOW))


def _fields(acl_filter: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": acl_filter.type,
        "resource_name_filter": acl_filter.name,
        "pattern_type_filter": acl_filter.pattern,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission,
    }


def _acl(type_: int, name: str, pattern: int, entry: Any) -> Acl:
    return Acl(
        resource=ResourcePattern(ResourceType(type_), name, PatternType(pattern)),
        entry=AclEntry(
            entry.principal,
            entry.host,
            Operation(entry.operation),
            Permission(entry.permission_type),
        ),
    )


def _check(doing: str, code: int, message: str | None) -> None:
    match code:
        case ErrorCode.NONE:
            return
        case ErrorCode.SECURITY_DISABLED:
            raise Refused(
                f"cannot {doing}: the broker has no authorizer",
                "start it with --set authorizer.class.name=zhumq --set super.users=User:NAME",
                code=ErrorCode(code).name,
            )
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise Refused(
                f"cannot {doing}: this needs the right to describe or alter the cluster",
                "connect as a user of super.users",
                code=ErrorCode(code).name,
            )
        case _:
            name = ErrorCode(code).name
            raise Refused(f"cannot {doing}: {message or name}", code=name)

"""`zhumq acl`: list, add and remove ACLs, which say who may do what."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from zhumq.admin import acls as admin
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_note, print_table
from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.acl_filter import AclFilter

app = typer.Typer(no_args_is_help=True, help="ACLs: who may do what with which resource.")

_OPERATIONS = [each.name for each in Operation if each >= Operation.ALL]
COLUMNS = headings("resource name pattern permission principal host operation")

TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic; * for all.")
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="A group; * for all.")
]
TransactionOption = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="NAME", help="A transactional id; * for all."),
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="The names are prefixes of the names that are meant.")
]
OperationOption = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="NAME", help=f"One of {', '.join(_OPERATIONS)}."),
]
ProducerOption = Annotated[
    bool, typer.Option("--producer", help="The rights of a producer: --topic.")
]
ConsumerOption = Annotated[
    bool, typer.Option("--consumer", help="The rights of a consumer: --topic and --group.")
]
PrincipalOption = Annotated[
    str, typer.Option("--principal", metavar="User:NAME", help="Who; User:* for everyone.")
]
AnyPrincipalOption = Annotated[
    str | None,
    typer.Option("--principal", metavar="User:NAME", help="Only ACLs of this principal."),
]
HostOption = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="The address of the client; * for every.")
]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny it, whatever other ACLs allow.")]


@app.command("list")
def list_acls(
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionOption = None,
    cluster: ClusterOption = False,
    principal: AnyPrincipalOption = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List ACLs: all, or those that are about the given resources, also by a prefix or by *."""
    resources = _resources(topic, group, transactional_id, cluster=cluster, prefixed=False)
    filters = [
        AclFilter(type=each.type, name=each.name, pattern=PatternType.MATCH, principal=principal)
        for each in resources
    ] or [AclFilter(principal=principal)]
    with connect(bootstrap, security) as connection:
        found = {acl for each in filters for acl in admin.list_acls(connection, each)}
    empty = "no ACLs: `zhumq acl add`"
    print_table(_rows(sorted(found)), COLUMNS, empty=empty, as_json=as_json)


@app.command()
def add(
    principal: PrincipalOption,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    operation: OperationOption = None,
    producer: ProducerOption = False,
    consumer: ConsumerOption = False,
    host: HostOption = "*",
    deny: DenyOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Allow, or deny, a principal operations with resources.

    zhumq acl add --principal User:alice --producer --topic orders
    zhumq acl add --principal User:bob --consumer --topic orders --group billing
    zhumq acl add --principal User:carol --operation READ --topic logs- --prefixed
    """
    resources = _resources(topic, group, transactional_id, cluster=cluster, prefixed=prefixed)
    acls = _acls(resources, principal, host, operation or [], producer, consumer, deny=deny)
    with connect(bootstrap, security) as connection:
        admin.create_acls(connection, acls)
    print_note(f"added {len(acls)} ACLs for {principal}")


@app.command()
def remove(
    principal: AnyPrincipalOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    operation: OperationOption = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Remove the ACLs that were added for exactly these resources, operations and principal; prints them."""
    resources = _resources(topic, group, transactional_id, cluster=cluster, prefixed=prefixed)
    if not resources and principal is None:
        raise CommandFailed("say which ACLs: --principal, --topic, --group, --cluster, ...")
    operations = [_operation(each) for each in operation or []] or [Operation.ANY]
    filters = [
        AclFilter(
            type=each.type,
            name=each.name,
            pattern=each.pattern,
            principal=principal,
            operation=each_operation,
        )
        for each in resources
        for each_operation in operations
    ] or [AclFilter(principal=principal, operation=each_operation) for each_operation in operations]
    with connect(bootstrap, security) as connection:
        deleted = admin.delete_acls(connection, filters)
    print_table(_rows(deleted), COLUMNS, empty="no such ACLs: `zhumq acl list`", as_json=as_json)


def _acls(
    resources: list[ResourcePattern],
    principal: str,
    host: str,
    operations: list[str],
    producer: bool,
    consumer: bool,
    *,
    deny: bool,
) -> list[admin.Acl]:
    topics = [each for each in resources if each.type is ResourceType.TOPIC]
    groups = [each for each in resources if each.type is ResourceType.GROUP]
    if producer or consumer:
        if deny or operations:
            raise CommandFailed("--producer and --consumer go without --deny and --operation")
        if not topics or (consumer and not groups):
            raise CommandFailed(
                "--producer needs --topic"
                if not consumer
                else "--consumer needs --topic and --group"
            )
        found = admin.producer_acls(principal, topics, host=host) if producer else []
        if consumer:
            found += admin.consumer_acls(principal, topics, groups, host=host)
        return list(dict.fromkeys(found))
    if not resources or not operations:
        raise CommandFailed(
            "say what is allowed: --operation with --topic, --group, --transactional-id or"
            " --cluster; or --producer, --consumer"
        )
    permission = Permission.DENY if deny else Permission.ALLOW
    return [
        admin.Acl(resource=resource, entry=AclEntry(principal, host, _operation(each), permission))
        for resource in resources
        for each in operations
    ]


def _resources(
    topics: Iterable[str] | None,
    groups: Iterable[str] | None,
    transactional_ids: Iterable[str] | None,
    *,
    cluster: bool,
    prefixed: bool,
) -> list[ResourcePattern]:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    found = [
        ResourcePattern(type_, name, pattern)
        for type_, names in (
            (ResourceType.TOPIC, topics),
            (ResourceType.GROUP, groups),
            (ResourceType.TRANSACTIONAL_ID, transactional_ids),
        )
        for name in names or ()
    ]
    return [*found, admin.cluster_resource()] if cluster else found


def _operation(name: str) -> Operation:
    known = name.upper().replace("-", "_")
    if known not in _OPERATIONS:
        raise CommandFailed(
            f"there is no operation {name!r}: it is one of {', '.join(_OPERATIONS)}"
        )
    return Operation[known]


def _rows(acls: Iterable[admin.Acl]) -> list[dict[str, Any]]:
    return [
        {
            "resource": acl.resource.type.name,
            "name": acl.resource.name,
            "pattern": acl.resource.pattern.name,
            "permission": acl.entry.permission.name,
            "principal": acl.entry.principal,
            "host": acl.entry.host,
            "operation": acl.entry.operation.name,
        }
        for acl in acls
    ]

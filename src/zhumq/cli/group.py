"""`zhumq group`: list, describe, reset and delete groups of Kafka clients and of subscriptions."""

import sys
from typing import Annotated, Any

import typer
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, ConsumerGroupListing

from zhumq.cli import completion
from zhumq.cli.client import Cluster
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    INT32_MAX,
    BootstrapOption,
    CommandFailed,
    JsonOption,
)
from zhumq.cli.output import print_facts, print_json, print_note, print_table
from zhumq.cli.positions import LATEST, Position, parse_position, resolve_offsets
from zhumq.cli.subscription_info import (
    mode_of,
    state_of,
    subscription_groups,
    subscription_members,
    subscription_offsets,
)

app = typer.Typer(help="List, describe, reset and delete groups.")

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=completion.groups)
]


@app.command("list")
def list_groups(
    as_json: JsonOption = False, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP
) -> None:
    """List the groups."""
    cluster = Cluster(bootstrap)
    rows: dict[str, dict[str, Any]] = {
        entry.group_id: {
            "group": entry.group_id,
            "state": _state_name(entry.state),
            "type": _state_name(entry.type),
            "mode": None,
            "claims": [],
        }
        for entry in _listing(cluster)
    }
    for name, group in subscription_groups(bootstrap).items():
        kind = "Share" if group.mode in (None, "ptp-shared") else "Consumer"
        row = rows.setdefault(name, {"group": name, "state": state_of(group), "type": kind})
        if group.consumers:
            row["state"] = state_of(group)
        row |= {"mode": mode_of(group, row["type"]), "claims": group.claims}
    rows = dict(sorted(rows.items()))
    if as_json:
        print_json(list(rows.values()))
    else:
        headings = {
            "group": "GROUP",
            "state": "STATE",
            "type": "TYPE",
            "mode": "MODE",
            "claims": "POINT-TO-POINT",
        }
        print_table(
            list(rows.values()), headings, empty="no groups yet: `zhumq consume TOPIC --group NAME`"
        )


@app.command()
def describe(
    group: GroupArgument,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a group's members, offsets and lag."""
    cluster = Cluster(bootstrap)
    subscription = subscription_groups(bootstrap, group).get(group)
    description = _describe(cluster, group, must_exist=subscription is None)
    members: list[dict[str, Any]] = []
    holders: dict[tuple[str, int], str] = {}
    for member in sorted(description.members, key=lambda member: member.member_id):
        held = member.assignment.topic_partitions if member.assignment is not None else []
        for place in held:
            holders[place.topic, place.partition] = member.member_id
        members.append(
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "static_id": member.group_instance_id,
                "partitions": len(held),
            }
        )
    offsets = _offsets_with_lag(cluster, group, holders)
    facts: dict[str, Any] = {
        "group": group,
        "state": _state_name(description.state),
        "protocol": description.partition_assignor or None,
    }
    offset_headings = {
        "topic": "TOPIC",
        "partition": "PARTITION",
        "committed": "COMMITTED",
        "latest": "LATEST",
        "lag": "LAG",
        "member": "MEMBER",
    }
    if subscription is not None:
        is_known = description.state != ConsumerGroupState.DEAD
        kind = "Consumer" if is_known else "Share"
        if subscription.consumers or not is_known:
            facts["state"] = state_of(subscription)
        facts |= {"mode": mode_of(subscription, kind), "claims": subscription.claims}
        members = members or subscription_members(subscription)
        offsets = subscription_offsets(subscription, offsets)
        offset_headings |= {"in_flight": "IN FLIGHT", "consumers": "CONSUMERS"}
        del offset_headings["member"]
    if as_json:
        coordinator = description.coordinator.id if description.coordinator else None
        print_json(facts | {"coordinator": coordinator, "members": members, "offsets": offsets})
        return
    print_facts(facts)
    print_table(offsets, offset_headings, empty="no committed offsets")
    if members:
        sys.stdout.write("\n")
        member_headings = {
            "member": "MEMBER",
            "client": "CLIENT",
            "host": "HOST",
            "static_id": "STATIC ID",
            "partitions": "PARTITIONS",
        }
        print_table(members, member_headings, empty="no members")


@app.command()
def reset(
    group: GroupArgument,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="The topic whose offsets move.")],
    place: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="earliest, latest, an offset, a time (2026-01-31T09:00:00Z) or @MILLISECONDS.",
        ),
    ],
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=INT32_MAX, help="Only this partition.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the changes.")] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Move a group's offsets. Its consumers must be stopped."""
    position = parse_position(place, option="--to")
    cluster = Cluster(bootstrap)
    numbers = sorted(entry.id for entry in cluster.describe_topic(topic).partitions)
    if partition is not None:
        if partition not in numbers:
            raise CommandFailed(f"{topic!r} has no partition {partition}")
        numbers = [partition]
    if _describe(cluster, group, must_exist=False).members:
        raise CommandFailed(f"group {group!r} has members: stop its consumers first")
    before = _committed(cluster, group)
    target = resolve_offsets(cluster, topic, numbers, position)
    if not dry_run:
        places = [TopicPartition(topic, number, target[number]) for number in numbers]
        targets = [ConsumerGroupTopicPartitions(group, places)]
        changed = cluster.ask(
            f"reset {group!r}",
            lambda admin, seconds: admin.alter_consumer_group_offsets(
                targets, request_timeout=seconds
            )[group].result(),
        )
        for entry in changed.topic_partitions:
            if entry.error is not None:
                raise CommandFailed(
                    f"cannot reset {topic} partition {entry.partition}: {entry.error.str()}"
                )
    rows = [
        {
            "topic": topic,
            "partition": number,
            "from": before.get((topic, number)),
            "to": target[number],
        }
        for number in numbers
    ]
    if as_json:
        print_json(rows)
    else:
        headings = {"topic": "TOPIC", "partition": "PARTITION", "from": "FROM", "to": "TO"}
        print_table(rows, headings, empty="the topic has no partitions")
    if dry_run:
        print_note("nothing was changed (--dry-run)")


@app.command()
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP...", help="The groups.", autocompletion=completion.groups),
    ],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups with their offsets. Their consumers must be stopped."""
    cluster = Cluster(bootstrap)
    for group in groups:
        _describe(cluster, group, must_exist=False)  # waits until the coordinator answers
        _delete(cluster, group)
        print_note(f"deleted group {group}")


def _listing(cluster: Cluster) -> list[ConsumerGroupListing]:
    def request(admin: AdminClient, seconds: float) -> list[ConsumerGroupListing]:
        found = admin.list_consumer_groups(request_timeout=seconds).result()
        if found.errors:  # from some brokers
            raise KafkaException(found.errors[0])
        return list(found.valid)

    return cluster.ask("list groups", request)


def _describe(cluster: Cluster, group: str, *, must_exist: bool = True) -> ConsumerGroupDescription:
    description: ConsumerGroupDescription = cluster.ask(
        f"describe group {group!r}",
        lambda admin, seconds: admin.describe_consumer_groups([group], request_timeout=seconds)[
            group
        ].result(),
    )
    # For an unknown group Kafka returns the state Dead, not an error.
    if must_exist and description.state == ConsumerGroupState.DEAD:
        raise CommandFailed(f"there is no group {group!r}: see `zhumq group list`")
    return description


def _delete(cluster: Cluster, group: str) -> None:
    cluster.change(
        f"delete group {group!r}",
        lambda admin, seconds: admin.delete_consumer_groups([group], request_timeout=seconds)[
            group
        ].result(),
    )


def _offsets_with_lag(
    cluster: Cluster, group: str, holders: dict[tuple[str, int], str]
) -> list[dict[str, Any]]:
    """One row for each partition with a committed offset or a member."""
    committed = _committed(cluster, group)
    places = sorted(set(committed) | set(holders))
    latest: dict[tuple[str, int], int] = {}
    for topic in sorted({topic for topic, _ in places}):
        numbers = [number for name, number in places if name == topic]
        try:
            found = resolve_offsets(cluster, topic, numbers, Position(edge=LATEST))
        except CommandFailed:
            continue  # the topic was deleted, its offsets were not: show them without a lag
        latest |= {(topic, number): offset for number, offset in found.items()}
    rows: list[dict[str, Any]] = []
    for place in places:
        offset, end = committed.get(place), latest.get(place)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": offset,
                "latest": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": holders.get(place),
            }
        )
    return rows


def _committed(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    groups = [ConsumerGroupTopicPartitions(group)]
    listing = cluster.ask(
        f"read the offsets of {group!r}",
        lambda admin, seconds: admin.list_consumer_group_offsets(groups, request_timeout=seconds)[
            group
        ].result(),
    )
    return {
        (place.topic, place.partition): place.offset
        for place in listing.topic_partitions
        if place.offset >= 0
    }


def _state_name(state: Any) -> str:
    """`STABLE` and `PREPARING_REBALANCING` as Kafka's tools write them."""
    return "".join(part.capitalize() for part in state.name.split("_")) if state else "-"

"""`zhumq topic`: create, list, describe, alter, release and delete topics; delete their messages; explain their retention."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from zhumq.admin import settings as admin_settings
from zhumq.admin import topics as admin
from zhumq.admin.delete_records import delete_before, plan_deletion
from zhumq.admin.errors import AlreadyExists
from zhumq.admin.retention import kept_for
from zhumq.admin.subscriptions import release_topic
from zhumq.cli import completion
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    INT32_MAX,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
    parse_settings,
)
from zhumq.cli.output import headings, print_facts, print_json, print_note, print_table
from zhumq.cli.positions import parse_position
from zhumq.cli.retention import retention
from zhumq.model.replication_mode import Mode

app = typer.Typer(
    help="Create, list, describe, alter and delete topics, and explain their retention."
)
app.command()(retention)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=completion.topics)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A topic setting, such as retention.ms=60000."),
]


@app.command()
def create(
    name: NameArgument,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=INT32_MAX, help="Default: the broker's setting."),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=INT32_MAX, help="Default: the broker's setting."),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="The replication mode. Default: the broker's setting.")
    ] = None,
    settings: SetOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Create a topic."""
    connection = connect(bootstrap, security)
    chosen = parse_settings(settings or [])
    if mode is not None:
        chosen["replication.mode"] = mode
    try:
        admin.create_topic(
            connection,
            name,
            partitions=partitions or admin.BROKER_DEFAULT,
            replicas=replicas or admin.BROKER_DEFAULT,
            settings=chosen,
        )
    except AlreadyExists:
        if not if_not_exists:
            raise
        print_note(f"topic {name} exists already")
        return
    kept = kept_for(connection, name)
    print_note(f"created topic {name}" + (f": {kept}" if kept else ""))


@app.command("list")
def list_command(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the internal topics of the brokers.")
    ] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List the topics."""
    found = admin.list_topics(connect(bootstrap, security))
    rows = [asdict(each) for each in found if internal or not each.is_internal]
    columns = headings("topic partitions replicas")
    empty = "no topics yet: create one with `zhumq topic create NAME`"
    print_table(rows, columns, empty=empty, as_json=as_json)


@app.command()
def describe(
    name: NameArgument,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Show a topic's partitions, offsets and settings."""
    topic = admin.describe_topic(connect(bootstrap, security), name)
    print_note(topic.warning)
    document = asdict(topic)
    del document["warning"]
    if as_json:
        print_json(document)
        return
    claim = topic.point_to_point
    whose = {} if claim is None else {"point-to-point": f"group {claim.group} ({claim.mode})"}
    print_facts({"topic": name, "topic id": topic.topic_id, **whose, **topic.settings})
    rows = document["partitions"]
    for row in rows:
        if row["mode"] != row["wanted_mode"]:
            row["mode"] = f"{row['mode']} -> {row['wanted_mode']}"
    mode = "mode" if any(row["mode"] for row in rows) else ""
    columns = headings(f"partition leader replicas in_sync {mode} earliest latest messages")
    print_table(rows, columns, empty="the topic has no partitions")


@app.command()
def release(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Remove a group's point-to-point claim on a topic. The group must have no consumers."""
    connection = connect(bootstrap, security)
    admin.topic_partitions(connection, name)  # raises if there is no such topic
    group = release_topic(connection, name)
    print_note(f"topic {name} is no longer read point-to-point by group {group}")


@app.command()
def alter(
    name: NameArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=INT32_MAX, help="Raise the number of partitions to N."
        ),
    ] = None,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Reset a setting to its default."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Add partitions, or change settings."""
    if partitions is None and not settings and not unset:
        raise CommandFailed("nothing to alter: give --partitions N, --set KEY=VALUE or --unset KEY")
    changes = parse_settings(settings or [])
    connection = connect(bootstrap, security)
    admin.topic_partitions(connection, name)  # raises if there is no such topic
    if changes or unset:
        admin_settings.alter_topic_settings(connection, name, changes, unset or ())
    if partitions is not None:
        admin.add_partitions(connection, name, partitions)
    print_note(f"altered topic {name}")


@app.command("delete-records")
def delete_records(
    name: NameArgument,
    place: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="PLACE",
            help="latest (all messages), an offset, a time (2026-01-31T09:00:00Z) or @MILLISECONDS.",
        ),
    ],
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=INT32_MAX, help="Only this partition.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Delete the oldest messages of a topic. Asks first at a terminal."""
    position = parse_position(place, option="--before")
    connection = connect(bootstrap, security)
    changes = plan_deletion(connection, name, position, partition=partition)
    total = sum(each.deleted for each in changes)
    if not dry_run:
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Delete {total:,} messages of {name}?", abort=True, err=True)
        # What was shown, and not what has come meanwhile.
        changes = delete_before(connection, name, {each.partition: each.after for each in changes})
    rows = [
        {
            "partition": each.partition,
            "from": each.before,
            "to": each.after,
            "messages": each.deleted,
        }
        for each in changes
    ]
    columns = headings("partition from to messages")
    print_table(rows, columns, empty="the topic has no partitions", as_json=as_json)
    if dry_run:
        print_note("nothing was deleted (--dry-run)")


@app.command()
def delete(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="The topics.", autocompletion=completion.topics),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Delete topics with all their messages. Asks first at a terminal."""
    connection = connect(bootstrap, security)
    for name in names:
        admin.topic_partitions(connection, name)  # raises if there is no such topic
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} and all messages in it?", abort=True, err=True)
    for name in names:
        admin.delete_topic(connection, name)
        print_note(f"deleted topic {name}")

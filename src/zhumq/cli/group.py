"""`zhumq group`: list, describe, alter, reset and delete groups of Kafka clients and of subscriptions."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from zhumq.admin import groups as admin
from zhumq.admin.settings import alter_group_settings
from zhumq.cli import completion
from zhumq.cli.client import connect
from zhumq.cli.filter_option import parse_filter
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

app = typer.Typer(help="List, describe, alter, reset and delete groups.")

FILTER_SETTING = "zhumq.filter"

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=completion.groups)
]


@app.command("list")
def list_groups(
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List the groups."""
    found = admin.list_groups(connect(bootstrap, security))
    print_note(found.warning)
    rows = [asdict(each) for each in found.groups]
    columns = headings("group state type mode claims", claims="POINT-TO-POINT")
    empty = "no groups yet: `zhumq consume TOPIC --group NAME`"
    print_table(rows, columns, empty=empty, as_json=as_json)


@app.command()
def describe(
    group: GroupArgument,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Show a group's members, offsets and lag."""
    found = admin.describe_group(connect(bootstrap, security), group)
    print_note(found.warning)
    facts = asdict(found)
    del facts["warning"]
    fields = "topic partition committed latest lag"
    if found.mode is not None:
        fields += " in_flight consumers"
    else:
        fields += " member"
        del facts["mode"], facts["claims"]
        for row in facts["offsets"]:
            del row["in_flight"], row["consumers"]
    if as_json:
        print_json(facts)
        return
    del facts["coordinator"]
    members, offsets = facts.pop("members"), facts.pop("offsets")
    print_facts(facts)
    print_table(offsets, headings(fields), empty="no committed offsets")
    if members:
        sys.stdout.write("\n")
        print_table(members, headings("member client host static_id partitions"), empty="")


@app.command()
def alter(
    group: GroupArgument,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of a share group: zhumq.filter=\"key LIKE 'eu-%'\","
            " share.delivery.count.limit=3.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Reset a setting to its default."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Change settings of a share group, such as its filter."""
    if not settings and not unset:
        raise CommandFailed("nothing to alter: give --set KEY=VALUE or --unset KEY")
    changes = parse_settings(settings or [])
    parse_filter(changes.get(FILTER_SETTING, ""))
    alter_group_settings(connect(bootstrap, security), group, changes, unset or ())
    print_note(f"altered group {group}")


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
    security: SecurityOption = None,
) -> None:
    """Move a group's offsets. Its consumers must be stopped."""
    position = parse_position(place, option="--to")
    changes = admin.reset_offsets(
        connect(bootstrap, security), group, topic, position, partition=partition, dry_run=dry_run
    )
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "from": each.before,
            "to": each.after,
        }
        for each in changes
    ]
    columns = headings("topic partition from to")
    print_table(rows, columns, empty="the topic has no partitions", as_json=as_json)
    if dry_run:
        print_note("nothing was changed (--dry-run)")


@app.command()
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP...", help="The groups.", autocompletion=completion.groups),
    ],
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Only their offsets in this topic; the groups stay.",
            autocompletion=completion.topics,
        ),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Delete groups with their offsets, or their offsets in one topic. Consumers that read it must be stopped."""
    connection = connect(bootstrap, security)
    for group in groups:
        if topic is None:
            admin.delete_group(connection, group)
            print_note(f"deleted group {group}")
        else:
            partitions = admin.delete_offsets(connection, group, topic)
            numbers = ", ".join(map(str, partitions))
            print_note(f"deleted the offsets of group {group} in {topic}: partitions {numbers}")

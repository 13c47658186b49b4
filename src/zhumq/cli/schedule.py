"""`zhumq schedule`: list and cancel delayed messages."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from zhumq.admin import schedule as admin
from zhumq.admin.errors import NotFound
from zhumq.cli import completion
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_note, print_table
from zhumq.cli.positions import parse_time

app = typer.Typer(no_args_is_help=True, help="Delayed messages that are not due yet.")

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=completion.topics)
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id", metavar="ID", help="An id of `zhumq schedule list`, or its PARTITION:OFFSET."
    ),
]
PartitionOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Only this partition, not all.")
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Not due before 2026-01-31T09:00:00Z, or @MS."),
]
ToOption = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Due before this time.")]


@app.command("list")
def list_scheduled(
    topic: TopicArgument,
    message_id: IdOption = None,
    partition: PartitionOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    limit: Annotated[
        int, typer.Option("--max", metavar="N", min=1, max=admin.LIMIT_MAX, help="At most N.")
    ] = admin.LIMIT_DEFAULT,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List the delayed messages of a topic, the next one first."""
    found = admin.list_scheduled(
        connect(bootstrap, security),
        topic,
        message_id=message_id,
        partition=partition,
        from_ms=parse_time(from_, "--from"),
        to_ms=parse_time(to, "--to"),
        limit=limit,
    )
    rows = [
        {"id": each.id, "due": _time(each.due_ms), "scheduled": _time(each.scheduled_ms)}
        | asdict(each)
        for each in found.messages
    ]
    columns = headings("id due scheduled size_bytes")
    print_table(rows, columns, empty="no delayed messages", as_json=as_json)
    if found.has_more and not as_json:
        print_note(f"there are more than {limit}: see --max, --from and --to")


@app.command()
def cancel(
    topic: TopicArgument,
    message_id: IdOption = None,
    partition: PartitionOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    every: Annotated[bool, typer.Option("--all", help="All of the topic.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Delete delayed messages that are not due yet: one by its id, those of a time, or all."""
    if not every and message_id is None and from_ is None and to is None:
        raise CommandFailed("say what to cancel: --id, --from, --to or --all")
    count = admin.cancel_scheduled(
        connect(bootstrap, security),
        topic,
        message_id=message_id,
        partition=partition,
        from_ms=parse_time(from_, "--from"),
        to_ms=parse_time(to, "--to"),
    )
    if message_id is not None and not count:
        raise NotFound(
            f"topic {topic!r} has no delayed message {message_id} that is not due yet",
            f"`zhumq schedule list {topic}` shows those that it has",
        )
    print_note(f"cancelled {count} delayed messages")


def _time(stamp_ms: int) -> str:
    return datetime.fromtimestamp(stamp_ms / 1000, UTC).isoformat("T", "milliseconds")

"""`zhumq lookup`: find messages by key or tag."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from zhumq.admin import lookup as admin
from zhumq.admin.errors import NotFound
from zhumq.cli import completion
from zhumq.cli.client import connect
from zhumq.cli.messages import text_or_base64
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_json, print_note, print_table
from zhumq.cli.positions import parse_time

app = typer.Typer(help="Find messages by key or tag, newest first.")


@app.command()
def lookup(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=completion.topics),
    ],
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Messages with this key; it may be empty.")
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Messages with this tag.")] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Only the newest: the value of the key.")
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Not before 2026-01-31T09:00:00Z, or @MS."),
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Only this partition, not all.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--max", metavar="N", min=1, max=admin.LIMIT_MAX, help="At most N.")
    ] = admin.LIMIT_DEFAULT,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Find messages by key or tag, newest first. The topic needs index.keys=true."""
    if (key is None) == (tag is None):
        raise CommandFailed("give one of --key and --tag")
    found = admin.lookup(
        connect(bootstrap, security),
        topic,
        key=key,
        tag=tag,
        partition=partition,
        from_ms=parse_time(from_, "--from"),
        to_ms=parse_time(to, "--to"),
        limit=1 if last else limit,
    )
    if found.scanned:
        print_note(f"{found.scanned} offsets were scanned: the index does not have them yet")
    if not found.messages:
        what = f"key {key!r}" if tag is None else f"tag {tag!r}"
        raise NotFound(f"topic {topic!r} has no message with {what}")
    rows = [
        {
            "partition": each.partition,
            "offset": each.offset,
            "timestamp": each.timestamp_ms,
            "key": text_or_base64(each.key),
            "value": text_or_base64(each.value),
            "headers": [[name, text_or_base64(value)] for name, value in each.headers],
        }
        for each in found.messages
    ]
    if as_json:
        print_json(
            {"messages": rows, "scanned": found.scanned, "complete": found.is_complete or last}
        )
        return
    for row, each in zip(rows, found.messages, strict=True):
        moment = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC)
        row["time"] = moment.isoformat("T", "milliseconds")
    print_table(rows, headings("partition offset time key value"), empty="")
    if not found.is_complete and not last:
        print_note(f"these are the newest {len(rows)}, there may be older ones: see --max")

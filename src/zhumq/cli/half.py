"""`zhumq half`: list and show half messages, and decide on those that no producer decides on."""

import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from zhumq.admin import half_messages as admin
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_facts, print_json, print_note, print_table

app = typer.Typer(no_args_is_help=True, help="Half messages: pending, failed and given up.")

STATES = ("pending", "committed", "failed", "given-up")
LIST_MAX = 10_000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="An id of `zhumq half list`.")]


@app.command("list")
def list_half_messages(
    group: Annotated[str, typer.Option(metavar="NAME", help="Only of this producer group.")] = "",
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only pending, committed, failed or given-up ones; repeatable.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=LIST_MAX, help="The oldest so many.")
    ] = 100,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List half messages: those that no producer has decided on, and those that need an operator."""
    for each in state or ():
        if each not in STATES:
            raise CommandFailed(f"there is no state {each!r}: it is one of {', '.join(STATES)}")
    found = admin.list_half_messages(
        connect(bootstrap, security), group=group, states=tuple(state or ()), limit=limit
    )
    rows = [{**asdict(each), "age": _age(each.prepared_ms)} for each in found.messages]
    columns = headings("id group topic state age checks reason")
    print_table(rows, columns, empty="no half messages", as_json=as_json)
    if found.has_more and not as_json:
        print_note(f"there are more than {limit}: see --limit, --group and --state")


@app.command()
def show(
    message_id: IdArgument,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Show a half message with its body."""
    found = admin.show_half_message(connect(bootstrap, security), message_id)
    entry = found.entry
    body: dict[str, Any] = {}
    if found.has_body:
        body = {
            "key": _text(found.key),
            "value": _text(found.value),
            "headers": {name: _text(value) for name, value in found.headers},
        }
    if as_json:
        print_json(asdict(entry) | body)
        return
    print_facts(
        {
            "id": entry.id,
            "producer group": entry.group,
            "state": entry.state,
            "reason": entry.reason,
            "topic": entry.topic,
            "partition": entry.partition,
            "prepared": _time(entry.prepared_ms),
            "checks": entry.checks,
            "changed": _time(entry.changed_ms),
            "coordinator": entry.broker_id,
        }
        | body
    )


@app.command()
def commit(
    message_id: IdArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Commit a half message in place of its producer, also one that was given up or has failed."""
    admin.commit_half_message(connect(bootstrap, security), message_id)
    print_note(f"committed half message {message_id}")


@app.command()
def rollback(
    message_id: IdArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Roll back a half message in place of its producer."""
    admin.roll_back_half_message(connect(bootstrap, security), message_id)
    print_note(f"rolled back half message {message_id}")


def _age(prepared_ms: int) -> str:
    return str(timedelta(seconds=max(int(time.time() - prepared_ms / 1000), 0)))


def _time(stamp_ms: int) -> str:
    return datetime.fromtimestamp(stamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")

"""`zhumq session`: list the sessions of push consumers, and resume parked ones."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from zhumq.admin import sessions
from zhumq.cli.client import connect
from zhumq.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, SecurityOption
from zhumq.cli.output import headings, print_note, print_table

app = typer.Typer(no_args_is_help=True, help="Sessions of push consumers.")


@app.command("list")
def list_sessions(
    group: Annotated[str, typer.Option(metavar="NAME", help="Only of this group.")] = "",
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only active, retrying or parked ones.")
    ] = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List the sessions: active, retrying, or parked with the reason."""
    found = sessions.list_sessions(connect(bootstrap, security), group)
    rows = [asdict(session) for session in found if state in (None, session.state)]
    for row in rows:
        row["since"] = datetime.fromtimestamp(row["since_ms"] / 1000, UTC).isoformat("T", "seconds")
    columns = headings(
        "name mode topics state since attempt connected in_flight delivered redelivered reason",
        name="SESSION",
        attempt="TRIES",
        redelivered="AGAIN",
    )
    print_table(rows, columns, empty="no push consumers", as_json=as_json)


@app.command()
def resume(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="A name of `zhumq session list`.")],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Resume a parked session at its position."""
    sessions.resume_session(connect(bootstrap, security), name)
    print_note(f"resumed session {name}")

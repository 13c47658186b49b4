"""`zhumq session`: list the sessions of push consumers, and resume parked ones."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from zhumq.cli.client import check_reachable
from zhumq.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from zhumq.cli.output import print_json, print_note, print_table
from zhumq.cli.subscription import client_errors
from zhumq.client.admin import Admin

app = typer.Typer(no_args_is_help=True, help="Sessions of push consumers.")


@app.command("list")
def list_sessions(
    group: Annotated[str, typer.Option(metavar="NAME", help="Only of this group.")] = "",
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only active, retrying or parked ones.")
    ] = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """List the sessions: active, retrying, or parked with the reason."""
    check_reachable(bootstrap)
    with client_errors(), Admin(bootstrap) as admin:
        found = [each for each in admin.sessions(group) if state in (None, each.state)]
    rows = [asdict(session) | {"topics": list(session.topics)} for session in found]
    for row in rows:
        row["since"] = datetime.fromtimestamp(row["since_ms"] / 1000, UTC).isoformat("T", "seconds")
    if as_json:
        print_json(rows)
        return
    headings = {
        "name": "SESSION",
        "mode": "MODE",
        "topics": "TOPICS",
        "state": "STATE",
        "since": "SINCE",
        "attempt": "TRIES",
        "connected": "CONNECTED",
        "in_flight": "IN FLIGHT",
        "delivered": "DELIVERED",
        "redelivered": "AGAIN",
        "reason": "REASON",
    }
    print_table(rows, headings, empty="no push consumers")


@app.command()
def resume(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="A name of `zhumq session list`.")],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Resume a parked session at its position."""
    check_reachable(bootstrap)
    with client_errors(), Admin(bootstrap) as admin:
        admin.resume_session(name)
    print_note(f"resumed session {name}")

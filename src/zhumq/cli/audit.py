"""`zhumq audit`: read the audit log of a broker on this machine."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zhumq.cli.options import DEFAULT_DATA_DIR, CommandFailed

app = typer.Typer(no_args_is_help=True, help="The audit log: who did what.")

AUDIT_FILE: Final = "audit.log"
FOLLOW_SECONDS: Final = 0.25


@app.callback()
def audit() -> None:
    """The audit log: who did what to which resource, from where, allowed or denied."""


@app.command()
def tail(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="The data folder of the broker.")
    ] = Path(DEFAULT_DATA_DIR),
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another file of audit lines.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the newest lines.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then print new lines as they are written.")
    ] = False,
    denied: Annotated[bool, typer.Option("--denied", help="Only what was refused.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines as they are.")] = False,
) -> None:
    """Print the newest lines of the audit log."""
    path = file or data_dir / AUDIT_FILE
    if not path.is_file():
        raise CommandFailed(
            f"there is no audit log {path}: name the data folder with --data-dir, or the file with --file"
        )
    with path.open(encoding="ascii", errors="replace") as opened:
        for text in deque(_matching(opened, denied), maxlen=lines):
            _print(text, as_json)
        if not follow:
            return
        rest = opened
        while True:
            for text in _matching(rest, denied):
                _print(text, as_json)
            sys.stdout.flush()
            time.sleep(FOLLOW_SECONDS)
            if _is_rotated(path, rest):
                rest.close()
                rest = path.open(encoding="ascii", errors="replace")


def _matching(file: Any, denied: bool) -> Iterator[str]:
    # A line that is being written has no newline yet: the next turn reads it whole.
    while True:
        position = file.tell()
        text = file.readline()
        if not text.endswith("\n"):
            file.seek(position)
            return
        if not denied or '"allowed": false' in text:
            yield text.rstrip("\n")


def _is_rotated(path: Path, opened: Any) -> bool:
    try:
        return path.stat().st_ino != os.fstat(opened.fileno()).st_ino
    except FileNotFoundError:
        return False


def _print(text: str, as_json: bool) -> None:
    if not as_json:
        text = _readable(text)
    sys.stdout.write(text + "\n")


def _readable(text: str) -> str:
    """One line for people. Names stay escaped: a terminal must not obey what a client called itself."""
    try:
        event = json.loads(text)
        if "dropped" in event:
            return f"{event['time']}  {event['dropped']} more events"
        verdict = "allowed" if event["allowed"] else "DENIED "
        names = [json.dumps(event[each])[1:-1] for each in ("principal", "host", "action")]
        what = " ".join(
            part for part in (event["operation"], json.dumps(event["resource"])[1:-1]) if part
        )
        count = f"  x{event['count']}" if event["count"] > 1 else ""
        return f"{event['time']}  {verdict}  {'  '.join(names)}  {what}{count}"
    except (ValueError, KeyError, TypeError):
        return json.dumps(text)

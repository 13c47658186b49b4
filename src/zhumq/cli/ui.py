"""`zhumq ui`: topics, groups, brokers and the tail of a topic in the terminal."""

import sys

import typer

from zhumq.cli.client import check_reachable
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    SecurityOption,
)

app = typer.Typer()


@app.command()
def ui(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, config: SecurityOption = None) -> None:
    """Look at topics, groups with their lag, brokers, and the live tail of a topic, in the terminal.

    The keys are at the bottom of the screen. It changes nothing.
    """
    try:
        # Imported here: Textual is of the extra `ui`.
        from zhumq.ui.app import TerminalUi  # noqa: PLC0415
        from zhumq.ui.reader import Brokers  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        package = (missing.name or "textual").partition(".")[0]
        raise CommandFailed(f"`zhumq ui` needs {package}: pip install 'zhumq[ui]'") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailed(
            "`zhumq ui` needs a terminal; without one, see `zhumq topic list` and `zhumq group list`"
        )
    check_reachable(bootstrap, config)
    TerminalUi(Brokers(bootstrap=bootstrap, security=config)).run()

"""`zhumq dump-log`: what a segment, index or snapshot file holds, in the words of Kafka's tool."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def dump_log(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .log, .index, .timeindex or .snapshot file.")
    ],
) -> None:
    """Show what a file of a partition holds."""
    del file

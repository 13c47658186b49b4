"""`zhumq sql`: queries over topics and their archives, at a prompt, from the command line or from stdin."""

import importlib
import importlib.util
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zhumq.cli.client import check_reachable
from zhumq.cli.options import (
    CONFIG_VARIABLE,
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
)
from zhumq.client.security import ClientSecurity, read_properties

NEEDED_PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "fastavro", "yaml")
STDIN_CHARACTERS_MAX: Final = 1_000_000

app = typer.Typer()


class ResultFormat(StrEnum):
    """How a result is printed or written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    CHART = "chart"
    PARQUET = "parquet"


@app.command()
def sql(
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--execute", "-e", metavar="QUERY", help="Run this instead of a prompt. Repeatable."
        ),
    ] = None,
    format_: Annotated[
        ResultFormat, typer.Option("--format", help="How to print the result.")
    ] = ResultFormat.TABLE,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write it there; Parquet is a folder."),
    ] = None,
    archive: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=TABLE", help="The archive of a topic. Repeatable."),
    ] = None,
    archives: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            envvar="ZHUMQ_ARCHIVES",
            show_envvar=False,
            help="A folder with the archive of each topic under its name.",
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps", help="Go on where retention has deleted what the archive has not."
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="How many rows a table or a chart shows.")
    ] = 1000,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark's master, e.g. spark://host:7077.")
    ] = "local[*]",
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE.properties",
            envvar=CONFIG_VARIABLE,
            show_envvar=False,
            help="Kafka's client.properties with the security settings.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Query topics as tables, with their archives. Without -e: at a prompt, or from stdin.

    Exit code 1: a query failed. The next ones are not run.
    """  # fmt: skip
    for package in NEEDED_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise CommandFailed(
                f"`zhumq sql` needs Spark, and {package} is not installed: pip install 'zhumq[spark]'"
            )
    chosen = ResultFormat.JSON if as_json else format_
    if chosen is ResultFormat.PARQUET and output is None:
        raise CommandFailed("--format parquet needs a folder to write: --output FOLDER")
    if output is not None and output.exists():
        raise CommandFailed(f"--output: {output} exists already: name another")
    if output is not None and chosen in (ResultFormat.TABLE, ResultFormat.CHART):
        raise CommandFailed(f"--output is for json, csv and parquet, not for a {chosen}")
    text = _given(queries)
    if text is None and output is not None:
        raise CommandFailed("--output needs one query: -e QUERY")
    if text is None and importlib.util.find_spec("prompt_toolkit") is None:
        raise CommandFailed(
            "the prompt needs prompt_toolkit: pip install 'zhumq[sql]', or give a query with -e"
        )
    paths = _paths(archive or [])
    settings = read_properties(config) if config is not None else {}
    check_reachable(bootstrap, ClientSecurity.read(config) if config is not None else None)
    run: Any = importlib.import_module("zhumq.cli.sql_run")  # It imports Spark.
    run.run(
        text,
        run.SqlOptions(
            bootstrap=bootstrap, security=settings, master=master,
            archive_paths=paths, archives_folder=archives, allows_gaps=allow_gaps,
            format=chosen, output=output, limit=limit,
        ),
    )  # fmt: skip


def _given(queries: list[str] | None) -> str | None:
    """The statements to run; None for a prompt."""
    if queries:
        return ";\n".join(queries)
    if sys.stdin.isatty():
        if not sys.stdout.isatty():
            raise CommandFailed("the prompt needs a terminal: give a query with -e, or on stdin")
        return None
    text = sys.stdin.read(STDIN_CHARACTERS_MAX + 1)
    if len(text) > STDIN_CHARACTERS_MAX:
        raise CommandFailed(f"stdin has more than {STDIN_CHARACTERS_MAX} characters")
    if not text.strip():
        raise CommandFailed("stdin has no query: give one with -e, or begin in a terminal")
    return text


def _paths(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        topic, equals, path = pair.partition("=")
        if not equals or not topic.strip() or not path.strip():
            raise CommandFailed(f"--archive takes TOPIC=TABLE, not {pair!r}")
        found[topic.strip()] = path.strip()
    return found

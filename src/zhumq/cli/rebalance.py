"""`zhumq cluster rebalance`: previews and carries out moves of partitions to their place on the hash ring."""

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from zhumq.admin import reassignment
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_json, print_note, print_table
from zhumq.cli.progress_bar import progress_bar

AT_ONCE: Final = 20
OFF: Final = "off"
_RATE: Final = re.compile(r"([1-9][0-9]{0,14})([KMG]?)B?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def rebalance(
    without: Annotated[
        list[int] | None,
        typer.Option("--without", metavar="ID", help="A broker to empty."),
    ] = None,
    at_once: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="How many partitions move at the same time."),
    ] = AT_ONCE,
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Bytes a second that each broker sends to new replicas, such as 50M, while this command"
            f" runs. `{OFF}` removes the throttle that an interrupted command has left.",
        ),
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show the moves.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Move partitions to their place on the hash ring of the live brokers.

    A broker that has joined gets its share; --without empties a broker before it leaves. The command
    shows a preview first. A broker keeps its replica until the new replicas have caught up.
    """
    rate = None if throttle is None else parse_rate(throttle)
    with connect(bootstrap, security) as connection:
        plan = reassignment.plan_rebalancing(connection, without or [])
        if as_json:
            rows = [
                {
                    "topic": move.topic_partition.topic,
                    "partition": move.topic_partition.partition,
                    "before": list(move.before),
                    "after": list(move.after),
                }
                for move in plan.moves
            ]
            print_json(rows)
        else:
            _show(plan)
        if preview:
            return
        if throttle is not None and rate is None:
            reassignment.set_copy_rate(connection, None)
        if not plan.moves:
            return
        count = len(plan.moves)
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Move {count} partitions?", abort=True, err=True)
        bar = (TextColumn("moving"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with (
            reassignment.throttled(connection, rate),
            _throttle_note(rate),
            progress_bar(*bar, transient=False) as report,
        ):
            reassignment.run_moves(
                connection, plan.moves, at_once=at_once, progress=lambda done: report(done, count)
            )
        reassignment.elect_preferred_leaders(connection)
    print_note(f"partitions moved: {count}")


def parse_rate(text: str) -> int | None:
    """Bytes a second; None for `off`."""
    if text.lower() == OFF:
        return None
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise CommandFailed(f"--throttle takes bytes a second, such as 50M, or {OFF}; not {text!r}")
    return int(found[1]) * _FACTORS[found[2].upper()]


@contextlib.contextmanager
def _throttle_note(rate: int | None) -> Iterator[None]:
    """Say after an error or a Ctrl-C that the throttle stays."""
    try:
        yield
    except BaseException:
        if rate is not None:
            print_note(f"copies stay throttled until `zhumq cluster rebalance --throttle {OFF}`")
        raise


def _show(plan: reassignment.Plan) -> None:
    columns = headings(
        "broker before after fetches",
        before="REPLICAS NOW",
        after="REPLICAS THEN",
        fetches="TO FETCH",
    )
    print_table([asdict(each) for each in plan.brokers], columns, empty="no brokers")
    if plan.moves:
        copies = sum(move.copies for move in plan.moves)
        sys.stdout.write(f"\npartitions to move: {len(plan.moves)}, replicas to copy: {copies}\n")
    else:
        sys.stdout.write("\nno partition needs to move\n")

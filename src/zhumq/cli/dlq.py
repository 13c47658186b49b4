"""`zhumq dlq`: list, show and replay dead letters."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from zhumq.admin import dead_letters as admin
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
from zhumq.cli.output import headings, print_json, print_table
from zhumq.cli.progress_bar import progress_bar

PROGRESS_DEAD_LETTERS_MIN = 100  # fewer are replayed before a bar would be seen

app = typer.Typer(no_args_is_help=True, help="Messages that could not be delivered.")

TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="The topic, or its dead-letter topic.",
        autocompletion=completion.topics,
    ),
]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="Only the dead letters of this group.")
]


@app.command("list")
def list_dead_letters(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            help="Only of this topic, with reasons.",
            autocompletion=completion.topics,
        ),
    ] = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List dead-letter topics with counts; with a topic, its dead letters by group and reason."""
    connection = connect(bootstrap, security)
    rows: list[dict[str, Any]]
    if topic is None:
        counts = admin.count_dead_letters(connection)
        rows = [
            {"topic": name, "letters": count.left, "replayed": count.replayed}
            for name, count in counts.items()
        ]
    else:
        rows = [
            {
                "group": count.group,
                "reason": count.reason,
                "letters": count.left,
                "replayed": count.replayed,
            }
            for count in admin.count_reasons(connection, topic)
        ]
    before, after = ("topic", "replayed") if topic is None else ("group", "replayed reason")
    columns = headings(before) | {"letters": "DEAD LETTERS"} | headings(after)
    print_table(rows, columns, empty="no dead letters", as_json=as_json)


@app.command()
def show(
    topic: TopicArgument,
    group: GroupOption = None,
    limit: Annotated[
        int, typer.Option("--max", metavar="N", min=1, help="At most N, oldest first.")
    ] = 20,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Show dead letters with their origin, reason and content."""
    found = admin.read_dead_letters(connect(bootstrap, security), topic, group=group, limit=limit)
    rows = [_row(each) for each in found]
    fields = "from group deliveries time replayed reason key value"
    columns = {"letter": "DEAD LETTER"} | headings(fields)
    print_table(rows, columns, empty="no dead letters", as_json=as_json)


@app.command()
def replay(
    topic: TopicArgument,
    group: GroupOption = None,
    dead_letters: Annotated[
        list[str] | None,
        typer.Option("--letter", metavar="PARTITION@OFFSET", help="Only this one; repeatable."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were replayed before.")
    ] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Send dead letters back to the topics they came from, except those replayed before."""
    chosen = _chosen(dead_letters) if dead_letters else None
    connection = connect(bootstrap, security)
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with progress_bar(*columns, total_min=PROGRESS_DEAD_LETTERS_MIN) as report:
        count = admin.replay_dead_letters(
            connection, topic, group=group, offsets=chosen, again=again, progress=report
        )
    if as_json:
        print_json({"topic": topic, "replayed": count})
    else:
        typer.echo(f"replayed {count} messages of {topic}")


def _chosen(dead_letters: list[str]) -> dict[int, set[int]]:
    chosen: dict[int, set[int]] = {}
    for text in dead_letters:
        partition, at, offset = text.partition("@")
        if not at or not partition.isdecimal() or not offset.isdecimal():
            raise CommandFailed(f"--letter takes PARTITION@OFFSET, not {text!r}")
        chosen.setdefault(int(partition), set()).add(int(offset))
    return chosen


def _row(dead_letter: admin.DeadLetter) -> dict[str, Any]:
    story = dead_letter.story
    return {
        "letter": f"{dead_letter.partition}@{dead_letter.offset}",
        "from": f"{story.topic}-{story.partition}@{story.offset}",
        "topic": story.topic,
        "partition": story.partition,
        "offset": story.offset,
        "group": story.group,
        "deliveries": story.deliveries,
        "time": datetime.fromtimestamp(story.time_ms / 1000, UTC).isoformat("T", "seconds"),
        "replayed": dead_letter.replayed,
        "reason": story.reason,
        "key": text_or_base64(dead_letter.key),
        "value": text_or_base64(dead_letter.value),
        "headers": [[name, text_or_base64(value)] for name, value in dead_letter.headers],
    }

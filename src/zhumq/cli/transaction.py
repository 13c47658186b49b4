"""`zhumq transaction`: list, describe, commit and abort transactions, and find hanging ones."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from zhumq.admin import transactions as admin
from zhumq.cli import completion
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    INT32_MAX,
    INT64_MAX,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_facts, print_json, print_note, print_table

app = typer.Typer(no_args_is_help=True, help="List, describe and end transactions.")

SECONDS_MAX = INT32_MAX

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="In this topic.", autocompletion=completion.topics
    ),
]
PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition", metavar="N", min=0, max=INT32_MAX, help="In this partition of the topic."
    ),
]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only this state, e.g. Ongoing; repeatable."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", help="Only this producer; repeatable."),
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            "--older-than", metavar="SECONDS", min=0, max=SECONDS_MAX, help="Only open for longer."
        ),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only ids that match this expression.")
    ] = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List the transactional ids, with the age of their open transactions."""
    found = admin.list_transactions(
        connect(bootstrap, security),
        states=state or (),
        producer_ids=producer_id or (),
        older_than_ms=None if older_than is None else older_than * 1000,
        pattern=pattern,
    )
    rows = [{**asdict(each), "age": _age(each.age_ms)} for each in found]
    if as_json:
        print_json([asdict(each) for each in found])
        return
    columns = headings(
        "transactional_id state age producer_id is_two_phase coordinator", is_two_phase="TWO-PHASE"
    )
    print_table(rows, columns, empty="no transactional ids")


@app.command()
def describe(
    transactional_id: IdArgument,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Show the state of a transactional id, its producer, and the partitions of its transaction."""
    found = admin.describe_transaction(connect(bootstrap, security), transactional_id)
    facts: dict[str, Any] = asdict(found)
    if as_json:
        print_json(facts)
        return
    timeout = "none (two-phase)" if found.timeout_ms is None else f"{found.timeout_ms} ms"
    print_facts(
        {
            "transactional id": transactional_id,
            "state": found.state,
            "producer id": found.producer_id,
            "producer epoch": found.producer_epoch,
            "timeout": timeout,
            "started": _time(found.started_ms),
            "age": _age(found.age_ms),
            "coordinator": found.coordinator,
        }
    )
    print_table(facts["partitions"], headings("topic partition"), empty="no partitions")


@app.command("find-hanging")
def find_hanging(
    topic: TopicOption = None,
    partition: PartitionOption = None,
    broker: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=INT32_MAX, help="In the partitions that this broker leads."
        ),
    ] = None,
    older_than: Annotated[
        int,
        typer.Option(
            "--older-than",
            metavar="SECONDS",
            min=0,
            max=SECONDS_MAX,
            help="Without a message for longer: transaction.max.timeout.ms of the brokers.",
        ),
    ] = admin.MAX_TIMEOUT_MS // 1000,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end."""
    if partition is not None and topic is None:
        raise CommandFailed("--partition needs --topic")
    found = admin.find_hanging(
        connect(bootstrap, security),
        topic=topic,
        partition=partition,
        broker=broker,
        older_than_ms=older_than * 1000,
    )
    if as_json:
        print_json([asdict(each) for each in found])
        return
    rows = [{**asdict(each), "age": _age(each.age_ms)} for each in found]
    columns = headings("topic partition start_offset age producer_id producer_epoch")
    print_table(rows, columns, empty="no hanging transactions")


@app.command()
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The transactional id.")
    ] = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="N",
            min=0,
            max=INT64_MAX,
            help="The hanging transaction that starts here.",
        ),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Abort the open transaction of ID and fence its producer; or a hanging one in a partition."""
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        found = admin.abort_transaction(connect(bootstrap, security), transactional_id)
        print_note(f"aborted the transaction of {transactional_id}: {_words(found)}")
    elif transactional_id is None and None not in place:
        assert topic is not None
        assert partition is not None
        assert start_offset is not None
        admin.abort_hanging(connect(bootstrap, security), topic, partition, start_offset)
        print_note(f"aborted the transaction at offset {start_offset} of {topic}-{partition}")
    else:
        raise CommandFailed("give an ID, or --topic, --partition and --start-offset")


@app.command()
def commit(
    transactional_id: IdArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Commit the prepared transaction of a two-phase producer, and fence the producer."""
    found = admin.commit_prepared(connect(bootstrap, security), transactional_id)
    print_note(f"committed the transaction of {transactional_id}: {_words(found)}")


def _words(found: admin.TransactionDetails) -> str:
    pair = f"producer id {found.producer_id}, epoch {found.producer_epoch}"
    return f"{pair}, {len(found.partitions)} partitions"


def _age(age_ms: int | None) -> str | None:
    return None if age_ms is None else str(timedelta(seconds=age_ms // 1000))


def _time(stamp_ms: int | None) -> str | None:
    if stamp_ms is None:
        return None
    return datetime.fromtimestamp(stamp_ms / 1000, UTC).isoformat(timespec="milliseconds")

"""Runs `zhumq pipeline backfill`: says which offsets are read and what sinks get, asks, and writes them."""

import sys
from typing import Any, Final

import typer

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import headings, print_json, print_table
from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.cli.pipeline_options import StreamOptions
from zhumq.cli.pipeline_run import EXIT_INTERRUPTED, stop_on_signals
from zhumq.cli.pipeline_stream import brokers_for, checkpoints_for, load_stream
from zhumq.pipelines.backfill_files import Notes, alone
from zhumq.pipelines.backfill_note import Note, Order, open_note
from zhumq.pipelines.backfill_range import FROM, TO, parse_side
from zhumq.pipelines.backfilling import Backfilling, BackfillPlan
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.runner import pipeline_session
from zhumq.pipelines.stopping import PipelineFailed, StopRequest

LOG_FILE: Final = "backfill.log"  # of Spark: beside that of the running stream
COLUMNS: Final = headings("source topic partition first until messages")


def backfill_pipeline(
    word: str,
    options: StreamOptions,
    *,
    begin: str | None,
    end: str | None,
    sinks: list[str],
    allow_missing: bool,
    again: bool,
    replace: bool,
    abandon: bool,
    master: str,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Fill a range again, and return the exit code. Raises ZhumqError for exit code 1."""
    order = Order(
        begin=begin, end=end, sinks=tuple(dict.fromkeys(sinks)), again=again, replace=replace
    )
    if abandon and (order.has_range or sinks or again or replace or dry_run):
        raise CommandFailed(
            "--abandon is about the backfill that is not finished: give nothing else"
        )
    if as_json and not (yes or dry_run or abandon):
        raise CommandFailed("--json asks nothing: give --yes or --dry-run with it")
    stop = StopRequest()
    try:
        pipeline = load_stream(word, options)
        notes = Notes.of(options.state_dir, pipeline.name)
        with alone(options.state_dir, pipeline):
            # Before Spark starts: what is wrong with the order alone.
            open_note(notes.read(), order, pipeline.file)
            for text, option in ((begin, FROM), (end, TO)):
                if text is not None:
                    parse_side(text, option)
            with pipeline_session(
                f"{pipeline.name}.backfill",
                master=master,
                settings=pipeline.spark,
                log=options.state_dir / pipeline.name / LOG_FILE,
            ) as spark:
                backfilling = Backfilling(
                    spark=spark,
                    pipeline=pipeline,
                    brokers=brokers_for(pipeline, options),
                    notes=notes,
                    checkpoints=checkpoints_for(spark, pipeline, options),
                )
                if abandon:
                    _print_abandoned(backfilling.abandon(), as_json=as_json)
                    return 0
                plan = backfilling.plan(order, allow_missing=allow_missing)
                if not as_json:
                    _print(plan)
                if dry_run:
                    if as_json:
                        print_json(plan.document())
                    return 0
                if not yes:
                    names = ", ".join(plan.note.left)
                    typer.confirm(
                        f"Write these {plan.size:,} messages to {names}?", abort=True, err=True
                    )
                with stop_on_signals(stop):
                    note = backfilling.carry_out(plan, _silent if as_json else _say, stop)
                if as_json:
                    print_json(plan.document() | {"written": dict(note.written)})
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    except PipelineFailed as error:
        if not stop.asked.is_set():
            raise
        return print_error(error, EXIT_INTERRUPTED)
    return 0


def _print(plan: BackfillPlan) -> None:
    rows: list[dict[str, Any]] = [
        {
            "source": each.source,
            "topic": one.place.topic,
            "partition": one.place.partition,
            "first": one.first,
            "until": one.until,
            "messages": one.size,
        }
        for each in plan.ranges
        for one in each.partitions
    ]
    sys.stdout.flush()
    if plan.goes_on:
        sys.stdout.write(f"goes on with the backfill {plan.note.words()}\n")
    print_table(rows, COLUMNS, empty="")
    for name in plan.note.written:
        sys.stdout.write(f"{name}: has its rows\n")
    for each in plan.sinks:
        sys.stdout.write(f"{each.line()}\n")
        sys.stdout.writelines(f"{each.sink}: {edge}\n" for edge in each.edges)
    sys.stdout.writelines(f"warning: {each}\n" for each in plan.warnings)
    sys.stdout.write(f"up to {plan.size:,} messages\n")
    sys.stdout.flush()


def _print_abandoned(note: Note, *, as_json: bool) -> None:
    if as_json:
        print_json(note.document())
        return
    has = ", ".join(note.written) or "no sink"
    left = ", ".join(note.left) or "no sink"
    sys.stdout.write(
        f"gave up the backfill {note.words()}: {has} has its rows; {left} may have a part of them\n"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _silent(_line: str) -> None:
    """With --json, standard output is one document."""

"""Runs `zhumq pipeline reset`: says what is read again and what sinks get twice, asks, and forgets checkpoints."""

import sys
from typing import Final

import typer

from zhumq.admin.offsets import Position
from zhumq.cli.options import CommandFailed
from zhumq.cli.output import headings, print_json, print_table
from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.cli.pipeline_options import StreamOptions
from zhumq.cli.pipeline_stream import brokers_for, checkpoints_for, find_stream
from zhumq.cli.pipeline_trial import temporary_session
from zhumq.cli.positions import parse_position
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.resetting import ResetPlan, Resetting, stopped

COLUMNS: Final = headings("sink topic partition before after again left_out")


def reset_pipeline(
    word: str,
    options: StreamOptions,
    *,
    sinks: list[str],
    place: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Reset, and return the exit code. Raises ZhumqError for exit code 1."""
    position = None if place is None else _position(place)
    try:
        pipeline = find_stream(word, options)
        with stopped(options.state_dir, pipeline), temporary_session(pipeline) as spark:
            resetting = Resetting(
                spark=spark,
                pipeline=pipeline,
                brokers=brokers_for(pipeline, options),
                checkpoints=checkpoints_for(spark, pipeline, options),
            )
            plan = resetting.plan(sinks, position)
            _print(plan, as_json=as_json)
            if dry_run:
                return 0
            if not yes:
                names = ", ".join(each.sink for each in plan.sinks)
                typer.confirm(f"Reset {names} of {plan.pipeline}?", abort=True, err=True)
            resetting.carry_out(plan)
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    return 0


def _position(text: str) -> Position:
    position = parse_position(text, option="--to")
    if position.offset is not None:
        raise CommandFailed(
            f"--to takes earliest, latest, a time such as 2026-01-31T09:00:00Z, or @MILLISECONDS,"
            f" not {text!r}: an offset is of one partition"
        )
    return position


def _print(plan: ResetPlan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan.document())
        return
    rows = [
        {
            "sink": each.sink,
            "topic": one.place.topic,
            "partition": one.place.partition,
            "before": one.before,
            "after": one.after,
            "again": one.again,
            "left_out": one.left_out,
        }
        for each in plan.sinks
        for one in each.partitions
    ]
    sys.stdout.flush()
    if rows or not any(each.files or each.tables for each in plan.sinks):
        print_table(rows, COLUMNS, empty="the topics have no partitions")
    for each in plan.sinks:
        sys.stdout.write(f"{each.words()}\n")
    for name in plan.gone:
        sys.stdout.write(f"{name}: its checkpoint is set aside; the file has no such sink\n")
    if plan.aside is not None:
        sys.stdout.write(f"the old checkpoints are kept in {plan.aside}\n")
    sys.stdout.flush()

"""Runs `zhumq pipeline reset`: says what is read again and what sinks get twice, asks, and forgets checkpoints."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from zhumq.admin.offsets import Position
from zhumq.cli.options import CommandFailed
from zhumq.cli.output import headings, print_json, print_table
from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.cli.pipeline_trial import temporary_session
from zhumq.cli.positions import parse_position
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.library_files import NoSuchPipeline, find_pipeline
from zhumq.pipelines.resetting import ResetPlan, Resetting, stopped
from zhumq.pipelines.runner import brokers_of
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import StatusFile, checkpoints_path

COLUMNS: Final = headings("sink topic partition before after again left_out")


def reset_pipeline(
    word: str,
    values: Mapping[str, str],
    *,
    sinks: list[str],
    place: str | None,
    bootstrap: str | None,
    security: Mapping[str, str] | None,
    state_dir: Path,
    checkpoint_root: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Reset, and return the exit code. Raises ZhumqError for exit code 1."""
    position = None if place is None else _position(place)
    try:
        pipeline = _find(word, values, state_dir)
        brokers = brokers_of(pipeline, bootstrap=bootstrap, security=security)
        path = checkpoints_path(state_dir, pipeline.name, root=checkpoint_root)
        with stopped(state_dir, pipeline), temporary_session(pipeline) as spark:
            resetting = Resetting(
                spark=spark,
                pipeline=pipeline,
                brokers=brokers,
                checkpoints=Checkpoints(spark, path),
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


def _find(word: str, values: Mapping[str, str], state_dir: Path) -> Pipeline:
    """The pipeline of a file, or of the name of one that has run with the state folder."""
    try:
        pipeline = load_pipeline(find_pipeline(word), values)
    except NoSuchPipeline:
        status = StatusFile(state_dir, word).read()
        if status is None:
            raise CommandFailed(
                f"there is no file {word!r}, and no pipeline of that name has run with {state_dir}:"
                " see --state-dir"
            ) from None
        pipeline = load_pipeline(find_pipeline(status.file), values)
        if pipeline.name != word:
            raise CommandFailed(
                f"{status.file} is {pipeline.name!r} with these parameters, not {word!r}: give those"
                " of its run with --set"
            ) from None
    if not pipeline.is_stream:
        raise CommandFailed(
            f"{pipeline.file} has trigger: batch, so each run reads everything: there is no checkpoint"
        )
    return pipeline


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

"""Runs `zhumq pipeline upgrade`: says what a changed file means for the checkpoints that are there."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import headings, print_table
from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.cli.pipeline_trial import temporary_session
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.resetting import stopped
from zhumq.pipelines.runner import brokers_of
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import checkpoints_path
from zhumq.pipelines.upgrading import Upgrading

COLUMNS: Final = headings("sink outcome words", words="WHY")


def upgrade_pipeline(
    word: str,
    values: Mapping[str, str],
    *,
    bootstrap: str | None,
    security: Mapping[str, str] | None,
    state_dir: Path,
    checkpoint_root: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Upgrade, and return the exit code. Raises ZhumqError for exit code 1."""
    try:
        pipeline = load_pipeline(find_pipeline(word), values)
        if not pipeline.is_stream:
            raise CommandFailed(
                f"{pipeline.file} has trigger: batch, so each run reads everything: there is no checkpoint"
            )
        brokers = brokers_of(pipeline, bootstrap=bootstrap, security=security)
        path = checkpoints_path(state_dir, pipeline.name, root=checkpoint_root)
        with stopped(state_dir, pipeline), temporary_session(pipeline) as spark:
            upgrading = Upgrading(
                spark=spark,
                pipeline=pipeline,
                brokers=brokers,
                checkpoints=Checkpoints(spark, path),
            )
            layout, found = upgrading.plan()
            rows = [asdict(each) for each in found]
            print_table(rows, COLUMNS, empty="", as_json=as_json)
            sys.stdout.flush()
            if not dry_run:
                upgrading.carry_out(layout, found)
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    return 0

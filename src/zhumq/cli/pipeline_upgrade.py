"""Runs `zhumq pipeline upgrade`: says what a changed file means for the checkpoints that are there."""

import sys
from dataclasses import asdict
from typing import Final

from zhumq.cli.output import headings, print_table
from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.cli.pipeline_options import StreamOptions
from zhumq.cli.pipeline_stream import brokers_for, checkpoints_for, load_stream
from zhumq.cli.pipeline_trial import temporary_session
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.resetting import stopped
from zhumq.pipelines.upgrading import Upgrading

COLUMNS: Final = headings("sink outcome words", words="WHY")


def upgrade_pipeline(word: str, options: StreamOptions, *, dry_run: bool, as_json: bool) -> int:
    """Upgrade, and return the exit code. Raises ZhumqError for exit code 1."""
    try:
        pipeline = load_stream(word, options)
        with stopped(options.state_dir, pipeline), temporary_session(pipeline) as spark:
            upgrading = Upgrading(
                spark=spark,
                pipeline=pipeline,
                brokers=brokers_for(pipeline, options),
                checkpoints=checkpoints_for(spark, pipeline, options),
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

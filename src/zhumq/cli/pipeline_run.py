"""Runs `zhumq pipeline run`: one Spark session, the pipelines in turn, signals, exit codes."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import print_json
from zhumq.cli.pipeline_display import open_display
from zhumq.cli.pipeline_errors import EXIT_FAILED, EXIT_SPEC_INVALID, print_error
from zhumq.model.errors import ZhumqError
from zhumq.pipelines.connect import check_runs_on_connect, connect_session, is_connect
from zhumq.pipelines.document import SpecInvalid, read_document
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.runner import (
    RowsFound,
    RunOptions,
    pipeline_session,
    run_pipeline,
)
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import LOG_FILE, RunStatus
from zhumq.pipelines.stopping import PipelineFailed, StopRequest, is_alive
from zhumq.pipelines.timetable import Timetable

EXIT_ROWS_FOUND = 3
EXIT_INTERRUPTED = 130
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


def run_files(
    words: list[str],
    values: Mapping[str, str],
    *,
    master: str,
    bootstrap: str | None,
    security: Mapping[str, str] | None,
    state_dir: Path,
    checkpoint_root: str | None,
    as_json: bool,
    publish: bool = False,
    settings: Mapping[str, str] = NO_SETTINGS,
    once: bool = False,
) -> int:
    """Run the pipelines of these files. Returns the exit code; raises ZhumqError for exit code 1."""
    done: list[RunStatus] = []
    stop = StopRequest()
    try:
        pipelines = _load(words, values)
        if is_connect(master):
            for each in pipelines:
                check_runs_on_connect(each)
        of_files = {key: text for each in pipelines for key, text in each.spark.items()}
        scheduled = not once and _has_schedules(pipelines)
        options = RunOptions(
            state_dir=state_dir,
            master=master,
            bootstrap=bootstrap,
            security=security,
            checkpoint_root=checkpoint_root,
            publish=publish,
        )
        with (
            open_display(as_json=as_json) as display,
            _session(
                pipelines[0].name if len(pipelines) == 1 else "zhumq",
                options,
                settings={**of_files, **settings},
                log=state_dir / pipelines[0].name / LOG_FILE,
            ) as spark,
            stop_on_signals(stop),
        ):

            def run(pipeline: Pipeline) -> None:
                display.begin(pipeline.name, pipeline.description)
                status = run_pipeline(spark, pipeline, options, display, stop)
                if scheduled:  # for as long as the process lives: the last run of each
                    done[:] = [each for each in done if each.name != pipeline.name]
                done.append(status)

            if scheduled:
                timetable = Timetable(
                    pipelines=pipelines,
                    state_dir=state_dir,
                    run=run,
                    is_alive=lambda: is_alive(spark),
                    say=display.say,
                    stop=stop.asked,
                )
                return _end(timetable.follow(), done, as_json=as_json)
            for pipeline in pipelines:
                if not stop.asked.is_set():
                    run(pipeline)
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    except RowsFound as error:
        return print_error(error, EXIT_ROWS_FOUND)
    if as_json:
        print_json([status.document() for status in done])
    # A stop before the last pipeline is not a success of all of them.
    return 0 if len(done) == len(pipelines) else EXIT_INTERRUPTED


def _session(
    name: str, options: RunOptions, *, settings: Mapping[str, str], log: Path
) -> AbstractContextManager[SparkSession]:
    if not is_connect(options.master):
        return pipeline_session(name, master=options.master, settings=settings, log=log)
    if options.checkpoint_root is None:
        raise CommandFailed(
            f"{options.master} is Spark Connect, whose server keeps the checkpoints: give --checkpoints URL"
        )
    return connect_session(name, master=options.master, settings=settings)


def _has_schedules(pipelines: list[Pipeline]) -> bool:
    """Whether these run on their schedules, until a stop: all of them or none."""
    scheduled = [each.schedule is not None for each in pipelines]
    if any(scheduled) and not all(scheduled):
        other = pipelines[scheduled.index(False)]
        raise CommandFailed(
            f"{other.file} has no schedule, and others have: run them apart, or give --once"
        )
    return all(scheduled)


def _end(failed: Mapping[str, ZhumqError], done: list[RunStatus], *, as_json: bool) -> int:
    """The exit code after a stop: that of the last run of each pipeline."""
    if as_json:
        print_json([status.document() for status in done])
    for name, error in failed.items():
        print_error(PipelineFailed(f"{name}: the last run failed: {error}"), EXIT_FAILED)
    if any(not isinstance(error, RowsFound) for error in failed.values()):
        return EXIT_FAILED
    return EXIT_ROWS_FOUND if failed else 0


def _load(words: list[str], values: Mapping[str, str]) -> list[Pipeline]:
    loaded: list[Pipeline] = []
    used: set[str] = set()
    for word in words:
        path = find_pipeline(word)
        declared = read_document(path).fields().get("parameters")
        names = {name for name, _ in declared.fields()} if declared is not None else set()
        # With several files a value applies to those that have such a parameter.
        own = {name: text for name, text in values.items() if len(words) == 1 or name in names}
        used |= set(own)
        loaded.append(load_pipeline(path, own))
    unknown = sorted(set(values) - used)
    if unknown:
        raise CommandFailed(f"none of the files has a parameter {unknown[0]!r}")
    return loaded


@contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Let signals request a stop; PySpark's own Ctrl-C handler would abort the batch."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.ask()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

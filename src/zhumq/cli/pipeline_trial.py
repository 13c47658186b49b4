"""Runs `zhumq pipeline test` and `zhumq pipeline preview`: a Spark session on this machine that leaves nothing behind."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from zhumq.cli.output import print_json, print_table
from zhumq.cli.pipeline_errors import EXIT_FAILED, EXIT_SPEC_INVALID, print_error
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.case_runner import CaseResult, run_cases
from zhumq.pipelines.cases import read_cases
from zhumq.pipelines.document import SpecInvalid, read_document
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.preview import Preview, preview
from zhumq.pipelines.runner import brokers_of, pipeline_session
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import load_pipeline, with_values
from zhumq.pipelines.status import LOG_FILE

CELL_LENGTH_MAX: Final = 200


def run_tests(word: str, values: Mapping[str, str], *, tests: Path | None, as_json: bool) -> int:
    """Run the tests of a file, and return the exit code."""
    try:
        path = find_pipeline(word)
        pipeline = load_pipeline(path, values)
        cases = read_cases(pipeline, with_values(read_document(path), str(path), values), tests)
        with temporary_session(pipeline) as spark:
            results: list[CaseResult] = []
            for result in run_cases(spark, pipeline, cases):
                results.append(result)
                if not as_json:
                    _print_result(result)
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    failed = sum(bool(each.problems) for each in results)
    if as_json:
        print_json([asdict(each) for each in results])
    else:
        count = "1 test" if len(results) == 1 else f"{len(results)} tests"
        sys.stdout.write(f"{count}, {f'{failed} failed' if failed else 'all passed'}\n")
    return EXIT_FAILED if failed else 0


def preview_file(
    word: str,
    values: Mapping[str, str],
    *,
    rows: int,
    records: int,
    plans: bool,
    bootstrap: str | None,
    security: Mapping[str, str] | None,
    as_json: bool,
) -> int:
    """Show what the pipeline of a file would do, and return the exit code."""
    try:
        pipeline = load_pipeline(find_pipeline(word), values)
        brokers: Brokers = brokers_of(pipeline, bootstrap=bootstrap, security=security)
        found: list[Preview] = []
        with temporary_session(pipeline) as spark:
            for each in preview(spark, pipeline, brokers, rows=rows, records=records):
                found.append(each)
                if not as_json:
                    _print_preview(each, plans=plans)
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    if as_json:
        print_json([asdict(each) for each in found])
    return EXIT_FAILED if any(each.error is not None for each in found) else 0


@contextmanager
def temporary_session(pipeline: Pipeline) -> Iterator[SparkSession]:
    """A session on this machine, whose log is removed if it started."""
    folder = Path(tempfile.mkdtemp(prefix="zhumq-pipeline-"))
    settings = dict(pipeline.spark)
    with pipeline_session(
        pipeline.name, master="local[*]", settings=settings, log=folder / LOG_FILE
    ) as spark:
        # The log of a session that does not start stays: its error names it.
        try:
            yield spark
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _print_result(result: CaseResult) -> None:
    word = "FAILED" if result.problems else "ok"
    place = f" ({result.place})" if result.problems else ""
    lines = [f"{word:<7} {result.name}{place}", *(f"  {line}" for line in result.problems)]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _print_preview(each: Preview, *, plans: bool) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in each.columns.items())
    sys.stdout.write(f"{each.kind} {each.name}: {columns}\n")
    if each.read is not None:
        sys.stdout.write(f"  {each.read}\n")
    if each.error is not None:
        sys.stdout.write(f"  fails: {each.error}\n")
    elif not each.rows:
        sys.stdout.write("  no rows\n")
    else:
        shown = [{name: _cell(row[name]) for name in each.columns} for row in each.rows]
        sys.stdout.flush()
        print_table(shown, {name: name for name in each.columns}, empty="")
    if plans and each.plan is not None:
        sys.stdout.write(each.plan + "\n")
    sys.stdout.write("\n")
    sys.stdout.flush()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    text = value.decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)
    return text if len(text) <= CELL_LENGTH_MAX else text[: CELL_LENGTH_MAX - 1] + "…"

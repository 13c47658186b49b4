"""Runs `zhumq pipeline check`: reads pipeline files and their tests, and names the line of a mistake."""

import sys
from collections.abc import Mapping

from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.pipelines.cases import find_cases
from zhumq.pipelines.document import SpecInvalid, read_document
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.spec_reader import load_pipeline, with_values


def check_files(words: list[str], values: Mapping[str, str]) -> int:
    """Read each file, print its first mistake, and return the exit code."""
    code = 0
    for word in words:
        path = find_pipeline(word)
        try:
            pipeline = load_pipeline(path, values)
            tests = find_cases(pipeline, with_values(read_document(path), str(path), values), None)
        except SpecInvalid as error:
            code = print_error(error, EXIT_SPEC_INVALID)
            continue
        parts = (
            (len(pipeline.sources), "source"),
            (len(pipeline.steps), "step"),
            (len(pipeline.sinks), "sink"),
            (len(tests), "test"),
        )
        counted = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in parts)
        sys.stdout.write(f"{path}: no mistake found in {counted}\n")
    return code

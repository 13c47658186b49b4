"""Runs `zhumq pipeline graph`: the drawing of a pipeline file, without Spark."""

import sys
from collections.abc import Mapping
from pathlib import Path

from zhumq.cli.options import CommandFailed
from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.graph import draw, graph_of
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.spec_reader import load_pipeline


def draw_file(word: str, values: Mapping[str, str], *, output: Path | None) -> int:
    """Write the drawing, and return the exit code."""
    try:
        drawing = draw(graph_of(load_pipeline(find_pipeline(word), values)))
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    if output is None:
        sys.stdout.write(drawing)
        return 0
    try:
        output.write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error.strerror}") from None
    return 0

"""Lines of the log as JSON and in a rotated file, and what happens where the file cannot be written."""

import json
import logging
import os
from pathlib import Path

import pytest

from zhumq.host.log_output import (
    EXCEPTION_CHARACTERS_MAX,
    MESSAGE_CHARACTERS_MAX,
    TEXT_FORMAT,
    JsonFormatter,
    RotatedFileHandler,
)
from zhumq.host.rotated_file import RotatedFile

BYTES_MAX = 4096


def handler_of(path: Path, formatter: logging.Formatter, files: int = 3) -> RotatedFileHandler:
    handler = RotatedFileHandler(RotatedFile(path=path, bytes_max=BYTES_MAX, files=files))
    handler.setFormatter(formatter)
    return handler


def record(message: str, *arguments: object, failure: Exception | None = None) -> logging.LogRecord:
    """What a logger gives to its handlers. Pytest cannot show every text that a client can send, so no logger has it."""
    information = (type(failure), failure, None) if failure is not None else None
    return logging.LogRecord(
        "tests.logs", logging.WARNING, __file__, 1, message, arguments, information
    )


def test_a_line_of_json_has_what_programs_search_for(tmp_path: Path) -> None:
    handler = handler_of(tmp_path / "x.log", JsonFormatter({"broker": 7}))
    handler.handle(record("no room for %s", "topic\nwith a line and \udcff\u2028"))
    handler.handle(record("failed", failure=ValueError("the reason")))
    first, second = (json.loads(line) for line in (tmp_path / "x.log").read_bytes().splitlines())
    assert first["message"] == "no room for topic\nwith a line and \udcff\u2028"
    assert (first["level"], first["logger"], first["broker"]) == (
        "WARNING",
        "tests.logs",
        7,
    )
    assert first["time"].endswith("Z")
    assert len(first["time"]) == len("2026-11-18T15:00:00.000Z")
    assert "exception" not in first
    assert second["exception"] == "ValueError: the reason"


def test_a_line_has_a_bound(tmp_path: Path) -> None:
    handler = handler_of(tmp_path / "x.log", JsonFormatter({}))
    handler.handle(record("x" * 100_000, failure=ValueError("y" * 100_000)))
    line = json.loads((tmp_path / "x.log").read_text())
    assert len(line["message"]) == MESSAGE_CHARACTERS_MAX
    assert len(line["exception"]) == EXCEPTION_CHARACTERS_MAX


def test_a_text_that_no_encoding_has_is_written_escaped(tmp_path: Path) -> None:
    handler = handler_of(tmp_path / "x.log", logging.Formatter("%(message)s"))
    handler.handle(record("a\udcffb"))
    assert (tmp_path / "x.log").read_text() == "a\\udcffb\n"


def test_the_files_of_a_log_take_a_bounded_part_of_the_disk(tmp_path: Path) -> None:
    handler = handler_of(tmp_path / "x.log", logging.Formatter(TEXT_FORMAT))
    for number in range(1000):
        handler.handle(record("line %d", number))
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == ["x.log", "x.log.1", "x.log.2"]
    assert all(path.stat().st_size <= BYTES_MAX for path in found)
    kept = [line for path in reversed(found) for line in path.read_text().splitlines()]
    assert [int(line.rpartition(" ")[2]) for line in kept] == list(range(1000))[-len(kept) :]


def test_lines_that_the_disk_refuses_go_to_stderr_and_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "away"
    handler = handler_of(folder / "x.log", logging.Formatter("%(message)s"))
    handler.handle(record("one"))
    handler.handle(record("two"))
    folder.mkdir()
    handler.handle(record("three"))
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].startswith(f"zhumq: cannot write the log {folder / 'x.log'}: No such file")
    assert errors[1:] == ["one", "two"]
    assert (folder / "x.log").read_text().splitlines() == [
        "the log is written again; 2 lines are missing here, and went to stderr",
        "three",
    ]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "x")
    with pytest.raises(OSError, match="x"):
        RotatedFile(path=tmp_path / "x", bytes_max=BYTES_MAX, files=1).check()

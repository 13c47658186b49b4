"""The log of a program: lines of text or of JSON, on stderr or in a file that is rotated."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from zhumq.host.rotated_file import RotatedFile

TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# A client can make a broker log long names: a line has a bound.
MESSAGE_CHARACTERS_MAX: Final = 8 * 1024
EXCEPTION_CHARACTERS_MAX: Final = 16 * 1024


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII: no text of a client can begin a line of its own."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        """`fields` are part of every line, such as the id of the broker."""
        super().__init__()
        self._fields = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat("T", "milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            **self._fields,
            "message": record.getMessage()[:MESSAGE_CHARACTERS_MAX],
        }
        if record.exc_info:
            # The end of a traceback names the error.
            line["exception"] = self.formatException(record.exc_info)[-EXCEPTION_CHARACTERS_MAX:]
        return json.dumps(line)


class RotatedFileHandler(logging.Handler):
    """Appends lines to a rotated file. While the file cannot be written, lines go to stderr, and the file
    says later how many it lacks."""

    def __init__(self, file: RotatedFile) -> None:
        super().__init__()
        self._file = file
        self._lines_missing = 0

    def emit(self, record: logging.LogRecord) -> None:
        # A log line that cannot be written is never a reason to stop: the base class reports what fails here.
        try:
            self._write(self.format(record))
        except Exception:
            self.handleError(record)

    def _write(self, line: str) -> None:
        data = _encode(line)
        try:
            if self._lines_missing:
                self._file.append(_encode(self._note()))
                self._lines_missing = 0
            self._file.append(data)
        except OSError as reason:
            self._lines_missing += 1
            if self._lines_missing == 1:
                sys.stderr.write(
                    f"zhumq: cannot write the log {self._file.path}: {reason.strerror}: its lines follow here\n"
                )
            sys.stderr.write(f"{line}\n")

    def _note(self) -> str:
        return self.format(
            logging.makeLogRecord(
                {
                    "name": __name__,
                    "levelno": logging.WARNING,
                    "levelname": logging.getLevelName(logging.WARNING),
                    "msg": "the log is written again; %d lines are missing here, and went to stderr",
                    "args": (self._lines_missing,),
                }
            )
        )


def set_up_log(
    level: str, *, file: RotatedFile | None, is_json: bool, fields: Mapping[str, object]
) -> None:
    """Send what the program logs to `file`, or to stderr. Raises OSError if the file cannot be opened."""
    if file is not None:
        file.check()
    handler: logging.Handler = (
        RotatedFileHandler(file) if file is not None else logging.StreamHandler(sys.stderr)
    )
    handler.setFormatter(JsonFormatter(fields) if is_json else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def _encode(line: str) -> bytes:
    return f"{line}\n".encode(errors="backslashreplace")

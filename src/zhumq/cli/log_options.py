"""Options of the log, which the programs that run for long share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from zhumq.cli.options import CommandFailed
from zhumq.host.log_output import set_up_log
from zhumq.host.rotated_file import RotatedFile

BYTES_MAX_DEFAULT: Final = 50 << 20
BYTES_MAX_LEAST: Final = 64 << 10
FILES_DEFAULT: Final = 5
FILES_MOST: Final = 1_000


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


LevelOption = Annotated[LogLevel, typer.Option("--log-level", help="The level of the log.")]
FormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", help="Lines of text, or one JSON object a line for programs."),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--log-file", metavar="FILE", help="Write the log to this file, which is rotated."
    ),
]
BytesOption = Annotated[
    int | None,
    typer.Option(
        "--log-max-bytes",
        metavar="N",
        min=BYTES_MAX_LEAST,
        help="With --log-file: the size at which it is rotated.",
        show_default=str(BYTES_MAX_DEFAULT),
    ),
]
FilesOption = Annotated[
    int | None,
    typer.Option(
        "--log-files",
        metavar="N",
        min=1,
        max=FILES_MOST,
        help="With --log-file: the most files, the current one and rotated ones.",
        show_default=str(FILES_DEFAULT),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a program writes its log."""

    level: LogLevel
    format: LogFormat
    file: RotatedFile | None

    @classmethod
    def of(
        cls,
        level: LogLevel,
        format_: LogFormat,
        *,
        file: Path | None,
        bytes_max: int | None,
        files: int | None,
    ) -> "LogOptions":
        """Raises CommandFailed for options that would have no effect."""
        for name, value in (("--log-max-bytes", bytes_max), ("--log-files", files)):
            if file is None and value is not None:
                raise CommandFailed(f"{name} is about the file of the log: give --log-file as well")
        if file is None:
            return cls(level=level, format=format_, file=None)
        rotated = RotatedFile(
            path=file,
            bytes_max=bytes_max if bytes_max is not None else BYTES_MAX_DEFAULT,
            files=files if files is not None else FILES_DEFAULT,
        )
        return cls(level=level, format=format_, file=rotated)

    def set_up(self, fields: Mapping[str, object]) -> None:
        """Begin to log; `fields` are part of every line of JSON. Raises CommandFailed."""
        try:
            set_up_log(
                self.level.upper(),
                file=self.file,
                is_json=self.format is LogFormat.JSON,
                fields=fields,
            )
        except OSError as reason:
            raise CommandFailed(
                f"--log-file {reason.filename}: {reason.strerror}: give a file in a folder that exists"
                " and that this user may write to"
            ) from None

    def of_child(self, name: str) -> "LogOptions":
        """For a process beside this one: two processes do not rotate one file, so it has its own."""
        if self.file is None:
            return self
        path = self.file.path
        own = path.with_name(f"{path.stem}-{name}{path.suffix}")
        return replace(self, file=replace(self.file, path=own))

    def arguments(self) -> list[str]:
        """The options of a command line."""
        found = ["--log-level", self.level, "--log-format", self.format]
        if self.file is not None:
            found += ["--log-file", str(self.file.path)]
            found += ["--log-max-bytes", str(self.file.bytes_max)]
            found += ["--log-files", str(self.file.files)]
        return found

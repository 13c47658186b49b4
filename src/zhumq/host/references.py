"""Reads what settings refer to: environment variables, and files up to a limit."""

import os
import stat
from pathlib import Path

from zhumq.model.secret_references import REFERENCED_BYTES_MAX, ReferencedFile


class SystemReferences:
    """The environment and the files of this machine, for `resolve_references`."""

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def file(self, path: str) -> ReferencedFile:
        with open(path, "rb") as file:
            return ReferencedFile(
                content=file.read(REFERENCED_BYTES_MAX + 1),
                is_open_to_others=_is_open_to_others(os.fstat(file.fileno())),
            )


def is_open_to_others(path: Path) -> bool:
    """Whether a user other than the owner may read or write the file. Raises OSError."""
    return _is_open_to_others(path.stat())


def _is_open_to_others(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))

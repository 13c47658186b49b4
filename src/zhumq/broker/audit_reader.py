"""Reads the audit log of this broker from its end: the lines that pass a filter, a bounded number of bytes at a time."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from zhumq.host.rotated_file import RotatedFile
from zhumq.security.audit import AuditFilter

CHUNK_BYTES: Final = 64 * 1024
SCANNED_BYTES_MAX: Final = 4 * 1024 * 1024  # by one call


class Place(NamedTuple):
    """Where a line begins: the inode of its file, which a rotation does not change, and the position in it."""

    file: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLine:
    """A line as it was written, and where it is."""

    place: Place
    event: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """Lines, newest first. `next` is where the next call goes on; None: there is nothing before."""

    lines: tuple[FoundLine, ...]
    next: Place | None
    oldest_time: str  # of all lines that were looked at


class AuditReader:
    """The file of the audit log and those that it was rotated to."""

    def __init__(self, file: RotatedFile, *, scanned_bytes_max: int = SCANNED_BYTES_MAX) -> None:
        self._file = file
        self._scanned_bytes_max = scanned_bytes_max

    def read(self, before: Place | None, limit: int, selection: AuditFilter) -> FoundLines:
        """The newest lines before a place that pass the filter. Blocks. Raises OSError."""
        found: list[FoundLine] = []
        oldest_time = ""
        scanned = 0
        last: Place | None = None
        for place, raw in self._lines_before(before):
            if len(found) == limit or scanned >= self._scanned_bytes_max:
                return FoundLines(lines=tuple(found), next=last, oldest_time=oldest_time)
            scanned += len(raw)
            last = place
            event = _parse(raw)
            if event is None:
                continue
            oldest_time = str(event.get("time", oldest_time))
            if selection.passes(event):
                found.append(FoundLine(place=place, event=event))
        return FoundLines(lines=tuple(found), next=None, oldest_time=oldest_time)

    def _lines_before(self, before: Place | None) -> Iterator[tuple[Place, bytes]]:
        """Every line with its place, the newest first. If the file of the place is gone, there are none."""
        is_begun = before is None
        seen: set[int] = (
            set()
        )  # A rotation while this reads shows a file again under its next name.
        for number in range(self._file.files):
            try:
                with _open(self._file.rotated(number)) as file:
                    status = os.fstat(file.fileno())
                    if status.st_ino in seen:
                        continue
                    seen.add(status.st_ino)
                    end = status.st_size
                    if before is not None and status.st_ino == before.file:
                        is_begun = True
                        end = min(end, before.position)
                    if is_begun:
                        for position, raw in _lines_backwards(file, end):
                            yield Place(status.st_ino, position), raw
            except FileNotFoundError:
                continue


def _open(path: Path) -> IO[bytes]:
    return path.open("rb", buffering=0)


def _lines_backwards(file: IO[bytes], end: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file before a position, the last one first. What has no newline yet is left out."""
    rest = b""  # the beginning of what was read, whose line begins further ahead
    is_whole = False  # whether what is behind `rest` ends with a newline
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        file.seek(start)
        data = _read_exactly(file, end - start) + rest
        lines = data.split(b"\n")
        position = start + len(data)
        for index in range(len(lines) - 1, 0, -1):
            position -= len(lines[index])
            if is_whole and lines[index]:
                yield position, lines[index]
            is_whole = True
            position -= 1  # the newline before it
        rest = lines[0]
        end = start
    if is_whole and rest:
        yield 0, rest


def _read_exactly(file: IO[bytes], count: int) -> bytes:
    parts = []
    while count > 0 and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _parse(raw: bytes) -> dict[str, Any] | None:
    """The event of a line; None: a disk or a person has damaged it."""
    try:
        event = json.loads(raw)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None

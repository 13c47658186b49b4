"""The history of a chaos run: what clients did and saw, in order."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, Self, TextIO

BUFFER_BYTES: Final = 1 << 16


class Phase(StrEnum):
    """The state of an operation. A client that cannot know the outcome records INFO, never FAIL."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"  # certainly without effect
    INFO = "info"  # may have had an effect, or may still have one


class Action(StrEnum):
    """The kind of an operation."""

    SEND = "send"
    POLL = "poll"  # only its OK is recorded, with what was read
    LAST_POLL = "last-poll"  # the same, by the last reader, after the cluster is healed
    ASSIGN = "assign"  # reading starts at this offset, or at the committed offset
    REVOKE = "revoke"  # the process stops reading these partitions
    SUBSCRIBE = "subscribe"
    COMMIT = "commit"
    COMMITTED = "committed"  # fetches committed offsets
    # Of transactions. The group of the operation is the transactional id.
    INIT = "init"  # the process takes over the transactional id
    BEGIN = "begin"  # a transaction that is going to write these values
    CONSUMED = "consumed"  # the open transaction of the process consumes these values
    END = "end"  # invoked with what is asked for as a note: commit or abort; answered with the outcome
    LAST_STABLE = (
        "last-stable"  # the last stable offset of a partition, and as its value the high watermark
    )


class Entry(NamedTuple):
    """One partition's part of an operation. What is unknown or does not apply is None."""

    partition: str
    offset: int | None = None
    value: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One line of the history. Lines are in real-time order."""

    process: int  # one client; a client that is replaced gets a new number
    phase: Phase
    action: Action
    entries: tuple[Entry, ...] = ()
    time_ms: int = 0
    group: str = ""
    note: str = ""


class HistoryDamaged(Exception):
    """A line of a history file cannot be read."""


class Recorder:
    """Writes the history to a file. Thread-safe; lines are in the order of the calls."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._next_process = 0
        self._next_value = 0

    @classmethod
    def create(cls, path: Path) -> Self:
        return cls(open(path, "w", buffering=BUFFER_BYTES))

    def now_ms(self) -> int:
        """Milliseconds since the history began."""
        return int((time.monotonic() - self._started) * 1_000)

    def new_process(self) -> int:
        with self._lock:
            self._next_process += 1
            return self._next_process

    def new_value(self) -> int:
        """A value that no other producer sends."""
        with self._lock:
            self._next_value += 1
            return self._next_value

    def write(
        self,
        process: int,
        phase: Phase,
        action: Action,
        entries: Iterable[Entry] = (),
        *,
        group: str = "",
        note: str = "",
    ) -> int:
        """Append a line and return its time."""
        parts = tuple(entries)
        with self._lock:
            # The clock is read under the lock, so that times never decrease from line to line.
            time_ms = self.now_ms()
            operation = Operation(
                process=process,
                phase=phase,
                action=action,
                entries=parts,
                time_ms=time_ms,
                group=group,
                note=note,
            )
            self._file.write(encode(operation))
        return time_ms

    def close(self) -> None:
        with self._lock:
            self._file.close()


def encode(operation: Operation) -> str:
    """One JSON line."""
    line: dict[str, object] = {
        "process": operation.process,
        "phase": operation.phase,
        "action": operation.action,
        "time": operation.time_ms,
        "entries": operation.entries,
    }
    if operation.group:
        line["group"] = operation.group
    if operation.note:
        line["note"] = operation.note
    return json.dumps(line, separators=(",", ":")) + "\n"


def decode(line: str) -> Operation:
    """The operation in a line. Raises HistoryDamaged."""
    try:
        fields = json.loads(line)
        return Operation(
            process=fields["process"],
            phase=Phase(fields["phase"]),
            action=Action(fields["action"]),
            entries=tuple(Entry(*each) for each in fields["entries"]),
            time_ms=fields["time"],
            group=fields.get("group", ""),
            note=fields.get("note", ""),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryDamaged(f"not a line of a history ({error!r}): {line[:120]!r}") from error


def read_history(path: Path) -> Iterator[Operation]:
    """The operations in a file, one at a time. Raises HistoryDamaged."""
    with open(path) as file:
        for line in file:
            yield decode(line)

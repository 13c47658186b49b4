"""The status of a pipeline's last run: a small file beside its checkpoints, and a lock."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from zhumq.model.errors import ZhumqError
from zhumq.model.sizes import size_text

STATE_DIR_DEFAULT: Final = "zhumq-pipelines"
STATUS_FILE: Final = "status.json"
LOCK_FILE: Final = "lock"
LOG_FILE: Final = "spark.log"
CHECKPOINTS_FOLDER: Final = "checkpoints"


class PipelineBusy(ZhumqError):
    """Another process runs this pipeline."""


class State(StrEnum):
    """The state of a run."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"  # read everything
    STOPPED = "stopped"  # ended after a stop request
    FAILED = "failed"
    LOST = "lost"  # its process ended without writing a final state


ACTIVE: Final = frozenset({State.STARTING, State.RUNNING, State.STOPPING})


@dataclass(slots=True, kw_only=True)
class SinkProgress:
    """What one sink has done in this run."""

    name: str
    query: str | None = None  # the id of its streaming query
    batch: int | None = None  # the last finished one
    batches: int = 0
    rows_in: int = 0
    rows_out: int | None = None  # None if Spark does not report it
    lag: int | None = None
    batch_ms: int | None = None
    rate: int | None = None  # rows a second of the last batch
    # Over the partitions, as the JVM connector's minOffsetsBehindLatest and its like.
    offsets_behind_min: int | None = None
    offsets_behind_max: int | None = None
    offsets_behind_avg: float | None = None
    bytes_behind: int | None = None  # estimated by the bytes of the rows that were read
    state_rows: int | None = None  # of stateful steps
    state_bytes: int | None = None
    watermark: str | None = None  # as Spark reports it
    error: str | None = None  # of a sink that fails, and will be tried again or was given up
    # Of each rule, as `step.rule`: how many rows broke it.
    counts: dict[str, int] = field(default_factory=dict)
    # Of each parse step, what the newest messages have that its schema has not.
    changes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ReadProgress:
    """What one read for several sinks has read in this run."""

    source: str
    sinks: list[str]
    rows: int = 0
    bytes: int = 0  # of keys and values

    def add(self, *, rows: int, size: int) -> None:
        self.rows += rows
        self.bytes += size

    def words(self) -> str:
        """What the shared read has saved."""
        times = len(self.sinks)
        return (
            f"one read of {self.source} for {times} sinks: {self.rows:,} rows"
            f" ({size_text(self.bytes)}) read instead of {self.rows * times:,}"
            f" ({size_text(self.bytes * times)})"
        )


@dataclass(slots=True, kw_only=True)
class TableProgress:
    """The table that one step enriches rows from, as a stream has it."""

    source: str
    rows: int = 0
    reads: int = 0
    read_at: str | None = None  # when the reading of its rows began
    failures: int = 0  # readings that failed, so that the rows of an earlier one went on
    error: str | None = None  # of the last reading

    def words(self) -> str:
        """What the step has of its table, and why it has nothing newer."""
        text = f"{self.rows:,} rows of {self.source}, read at {self.read_at}"
        return text if self.error is None else f"{text}; it cannot be read now: {self.error}"


@dataclass(slots=True, kw_only=True)
class RunStatus:
    """The status of one run of a pipeline."""

    name: str
    file: str
    state: State
    pid: int
    started_at: str
    updated_at: str
    bootstrap: str
    master: str
    sinks: dict[str, SinkProgress] = field(default_factory=dict)
    reads: list[ReadProgress] = field(default_factory=list)  # those for several sinks
    tables: dict[str, TableProgress] = field(default_factory=dict)  # by their enrich steps
    error: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The rows that broke each rule, by the sink that has read furthest: every sink reads the same rows."""
        found: dict[str, int] = {}
        for sink in self.sinks.values():
            for name, count in sink.counts.items():
                found[name] = max(count, found.get(name, 0))
        return dict(sorted(found.items()))

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"counts": self.counts}


def timestamp() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="milliseconds")


class StatusFile:
    """The folder of one pipeline: `<state dir>/<name>/`."""

    def __init__(self, state_dir: Path, name: str) -> None:
        self.folder = state_dir / name
        self.path = self.folder / STATUS_FILE

    def write(self, status: RunStatus) -> None:
        status.updated_at = timestamp()
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(status.document(), indent=2) + "\n")
        temporary.replace(self.path)

    def read(self) -> RunStatus | None:
        """The last run, or None if there was none. A run whose process has ended is LOST."""
        try:
            document = json.loads(self.path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise ZhumqError(f"{self.path} is damaged: {error}") from None
        document.pop("counts", None)  # the sinks have them
        sinks = {name: SinkProgress(**each) for name, each in document.pop("sinks").items()}
        reads = [ReadProgress(**each) for each in document.pop("reads", [])]
        tables = {name: TableProgress(**each) for name, each in document.pop("tables", {}).items()}
        known = {"reads": reads, "sinks": sinks, "tables": tables}
        status = RunStatus(**{**document, **known, "state": State(document["state"])})
        if status.state in ACTIVE and not self.is_locked():
            status.state = State.LOST
        return status

    def is_locked(self) -> bool:
        try:
            with (self.folder / LOCK_FILE).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def locked(self, name: str = LOCK_FILE, doing: str = "is running") -> Iterator[None]:
        """Hold a lock of the pipeline, or raise PipelineBusy. The lock ends with the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = os.read(descriptor, 32).decode(errors="replace").strip()
                raise PipelineBusy(
                    f"the pipeline {self.folder.name!r} {doing} already (process {other}):"
                    " stop it first, or give this one another name"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)


def checkpoints_path(state_dir: Path, name: str, *, root: str | None) -> str:
    """Where the checkpoints of a pipeline are; `root` is another place, such as a shared file system."""
    if root is not None:
        return f"{root.rstrip('/')}/{name}"
    return str((state_dir / name / CHECKPOINTS_FOLDER).absolute())


def known_runs(state_dir: Path) -> list[RunStatus]:
    """The last run of each pipeline that has run with this state folder."""
    if not state_dir.is_dir():
        return []
    found = (StatusFile(state_dir, each.name).read() for each in sorted(state_dir.iterdir()))
    return [status for status in found if status is not None]

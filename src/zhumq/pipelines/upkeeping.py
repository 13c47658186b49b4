"""Keeps up the Delta tables of a pipeline on their schedules, one at a time, while it runs."""

import importlib
import importlib.util
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from zhumq.pipelines.delta_layout import DeltaFailed
from zhumq.pipelines.schedule import Due, Occasions
from zhumq.pipelines.spec import MergeSink, Pipeline, TableSink, TableUpkeep
from zhumq.pipelines.status import StatusFile
from zhumq.pipelines.timetable import UPKEEP_FILE, Notes, missed_words, wall_ms

CLOSE_SECONDS_MAX: Final = 120.0  # that the end of a run waits for an upkeep
PACKAGE: Final = "deltalake"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Table:
    name: str  # of the sink
    path: str
    upkeep: TableUpkeep
    occasions: Occasions


@dataclass(slots=True, kw_only=True)
class Upkeeper:
    """The upkeep of the tables of one run. What a killed one leaves, the next one removes."""

    pipeline: str
    notes: Notes
    say: Callable[[str], None]
    now_ms: Callable[[], int] = wall_ms
    tables: list[_Table] = field(default_factory=list)
    _thread: threading.Thread | None = None

    @classmethod
    def of(cls, pipeline: Pipeline, state_dir: Path, say: Callable[[str], None]) -> "Upkeeper":
        """The upkeep that a file asks for. Raises SpecInvalid if a package is missing."""
        notes = Notes(StatusFile(state_dir, pipeline.name).folder / UPKEEP_FILE)
        made = cls(pipeline=pipeline.name, notes=notes, say=say)
        for sink in pipeline.sinks:
            if isinstance(sink, TableSink | MergeSink) and sink.upkeep is not None:
                made.add(sink.name, sink.path, sink.upkeep)
        return made

    def add(self, name: str, path: str, upkeep: TableUpkeep) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise upkeep.mark.wrong(f"needs {PACKAGE}: pip install 'zhumq[delta]'")
        occasions = self.notes.open(name, upkeep.schedule, self.now_ms())
        self.tables.append(_Table(name, path, upkeep, occasions))

    def tick(self) -> None:
        """Begin the upkeep that has been due for longest, if none is under way."""
        if self._thread is not None and self._thread.is_alive():
            return
        found = self._due()
        if found is not None:
            self._thread = threading.Thread(
                target=self._keep_up, args=found, name=f"upkeep {found[0].name}", daemon=True
            )
            self._thread.start()

    def finish(self) -> None:
        """Do everything that is due: the run has come to its end."""
        self.close()
        while (found := self._due()) is not None:
            self._keep_up(*found)

    def close(self) -> None:
        """Wait for the upkeep that is under way."""
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS_MAX)

    def _due(self) -> tuple[_Table, Due] | None:
        now_ms = self.now_ms()
        due = [
            (table, found)
            for table in self.tables
            if isinstance(found := table.occasions.decide(now_ms), Due)
        ]
        return min(due, key=lambda each: each[1].at_ms, default=None)

    def _keep_up(self, table: _Table, due: Due) -> None:
        # Loaded here: only files that ask for it need the package.
        keep_up = importlib.import_module("zhumq.pipelines.delta_upkeep").keep_up
        where = f"{self.pipeline}: upkeep of {table.path}"
        if due.missed:
            self.say(f"{where}: {missed_words(due.missed)}; it is done once")
        try:
            if _exists(table.path):
                for each in keep_up(
                    table.path,
                    older_than_ms=table.upkeep.older_than_ms,
                    deletes_older_than_ms=table.upkeep.deletes_older_than_ms,
                    expiry=table.upkeep.expiry,
                ):
                    expired = f", {each.expired} days expired" if each.expired else ""
                    self.say(
                        f"{self.pipeline}: kept up {each.table}: {each.files} files now,"
                        f" {each.merged} merged, {each.removed} removed,"
                        f" {each.forgotten} deletes forgotten{expired}"
                    )
        except (DeltaFailed, OSError) as error:
            self.say(f"{where} failed, and is tried at its next time: {error}")
        except Exception:
            # The rows that the run writes do not depend on it, and delta-rs has errors of several trees.
            logger.exception("%s failed", where)
            self.say(f"{where} failed, and is tried at its next time: see the log")
        table.occasions.finish(due)
        try:
            self.notes.write(table.name, table.occasions.done_ms)
        except OSError as error:
            self.say(f"{where} is not noted, and may be done again: {error}")


def _exists(path: str) -> bool:
    """Whether a first batch has made the table."""
    return (Path(path.removeprefix("file://").removeprefix("file:")) / "_delta_log").is_dir()

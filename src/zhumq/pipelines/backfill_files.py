"""The notes of a pipeline's backfills on disk, and the lock that lets one of them run at a time."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.backfill_note import Note
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.status import PipelineBusy, StatusFile

FOLDER: Final = "backfills"
LOCK_FILE: Final = "backfill.lock"


@dataclass(frozen=True, slots=True)
class Notes:
    """The folder with the notes of a pipeline's backfills, in the order of their begin."""

    folder: Path

    @staticmethod
    def of(state_dir: Path, pipeline: str) -> "Notes":
        return Notes(state_dir / pipeline / FOLDER)

    def read(self) -> list[Note]:
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(Note.of(json.loads(path.read_text())))
            except (ValueError, TypeError, KeyError) as error:
                raise ZhumqError(f"{path} is damaged: {error}") from None
        return found

    def write(self, note: Note) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f"{note.name}.tmp"
        with temporary.open("w") as file:
            json.dump(note.document(), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / f"{note.name}.json")


@contextmanager
def alone(state_dir: Path, pipeline: Pipeline) -> Iterator[None]:
    """Let no other backfill of the pipeline run. Its stream has another lock. Raises PipelineBusy."""
    try:
        with StatusFile(state_dir, pipeline.name).locked(LOCK_FILE, doing="is being backfilled"):
            yield
    except PipelineBusy as error:
        raise PipelineBusy(f"{str(error).partition(':')[0]}: wait for its end") from None

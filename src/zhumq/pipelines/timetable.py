"""Runs pipelines at the times of their schedules, one after the other, and notes which times are done."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.schedule import Due, Occasions, Schedule, Wait
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.status import PipelineBusy, StatusFile

NOTES_FILE: Final = "schedule.json"
UPKEEP_FILE: Final = "upkeep.json"
LOCK_FILE: Final = "schedule.lock"
# A clock that is set while this process waits is noticed after this time.
WAIT_SECONDS_MAX: Final = 10.0
PIPELINE: Final = "pipeline"


class Stop(Protocol):
    """An event that ends the waiting."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def shown(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms / 1000, tz=UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Notes:
    """A small file with the newest time of each schedule that was dealt with."""

    path: Path

    def open(self, name: str, schedule: Schedule, now_ms: int) -> Occasions:
        """The occasions of a schedule. Those before its first start are none; it begins with the next one."""
        done_ms = self._read().get(name)
        if done_ms is None:
            done_ms = schedule.newest(now_ms)
            self.write(name, done_ms)
        return Occasions(schedule=schedule, done_ms=done_ms)

    def write(self, name: str, done_ms: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps({**self._read(), name: done_ms}, indent=2) + "\n")
        temporary.replace(self.path)

    def _read(self) -> dict[str, int]:
        try:
            found = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(type(each) is int for each in found.values()):
            raise ZhumqError(
                f"{self.path} is damaged: delete it, and its schedules begin with their next times"
            )
        return found


@dataclass(slots=True, kw_only=True)
class Timetable:
    """The pipelines of one process, each with a schedule. One of them runs at a time."""

    pipelines: Sequence[Pipeline]
    state_dir: Path
    run: Callable[[Pipeline], object]
    is_alive: Callable[[], bool]  # whether Spark can run anything still
    say: Callable[[str], None]
    stop: Stop
    now_ms: Callable[[], int] = wall_ms
    _failed: dict[str, ZhumqError] = field(default_factory=dict)

    def follow(self) -> dict[str, ZhumqError]:
        """Run until a stop is requested; returns the pipelines whose last run failed, and why.

        Raises SpecInvalid for a file that is wrong, and PipelineBusy if a process has these schedules.
        """
        with self._locked():
            now_ms = self.now_ms()
            waiting = {
                each.name: (each, self._notes(each).open(PIPELINE, each.schedule, now_ms))
                for each in self.pipelines
                if each.schedule is not None
            }
            for name, (_, occasions) in waiting.items():
                self._announce(name, occasions)
            while not self.stop.is_set():
                self._step(list(waiting.values()))
        return self._failed

    def _step(self, waiting: Sequence[tuple[Pipeline, Occasions]]) -> None:
        """Run what has been due for longest, or wait for a while."""
        now_ms = self.now_ms()
        soonest_ms: int | None = None
        due: list[tuple[int, Pipeline, Occasions, Due]] = []
        for pipeline, occasions in waiting:
            match occasions.decide(now_ms):
                case Due() as found:
                    due.append((found.at_ms, pipeline, occasions, found))
                case Wait(until_ms=until_ms):
                    soonest_ms = until_ms if soonest_ms is None else min(soonest_ms, until_ms)
        if due:
            _, pipeline, occasions, found = min(due, key=lambda each: each[0])
            self._run(pipeline, occasions, found)
        elif soonest_ms is not None:
            self.stop.wait(min(WAIT_SECONDS_MAX, max(0.001, (soonest_ms - now_ms) / 1000)))

    def _run(self, pipeline: Pipeline, occasions: Occasions, due: Due) -> None:
        name = pipeline.name
        if due.missed:
            self.say(f"{name}: {missed_words(due.missed)}; it runs once")
        try:
            self.run(pipeline)
            self._failed.pop(name, None)
        except SpecInvalid:
            raise
        except PipelineBusy as error:
            self.say(f"{name}: left out, {error}")
        except ZhumqError as error:
            if not self.is_alive():
                raise
            self._failed[name] = error
            self.say(f"{name}: failed: {error}")
        if self.stop.is_set():
            return  # It may have ended before its end: the next start does this time again.
        occasions.finish(due)
        self._notes(pipeline).write(PIPELINE, occasions.done_ms)
        self._announce(name, occasions)

    def _announce(self, name: str, occasions: Occasions) -> None:
        match occasions.decide(self.now_ms()):
            case Wait(until_ms=until_ms):
                self.say(f"{name}: runs next at {shown(until_ms)}")
            case Due():
                pass

    def _notes(self, pipeline: Pipeline) -> Notes:
        return Notes(StatusFile(self.state_dir, pipeline.name).folder / NOTES_FILE)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            for each in self.pipelines:
                files = StatusFile(self.state_dir, each.name)
                stack.enter_context(files.locked(LOCK_FILE, "is run on its schedule"))
            yield


def missed_words(missed: int) -> str:
    return "one time was missed" if missed == 1 else f"{missed:,} times were missed"

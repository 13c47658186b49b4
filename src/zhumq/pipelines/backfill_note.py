"""The note of a backfill: what it writes, which sinks have it, and which note an order is about. Pure."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.backfill_range import RangesDocument, overlap
from zhumq.pipelines.spec import Pipeline

# Names of the writers that backfills are for their sinks. Never changed: sinks know their batches by it.
_WRITERS: Final = uuid.UUID("6f0a5f0e-3a51-5f0b-9d53-6d0d6b1c0c85")


class BackfillRefused(ZhumqError):
    """A backfill that cannot be done as it was ordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a command asks for. Without a range it is about the backfill that is not finished."""

    begin: str | None
    end: str | None
    sinks: tuple[str, ...]  # none: all
    again: bool = False
    replace: bool = False

    @property
    def has_range(self) -> bool:
        return self.begin is not None or self.end is not None

    def is_of(self, note: "Note") -> bool:
        asked = (self.begin, self.end, set(self.sinks), self.replace)
        return asked == (note.begin, note.end, set(note.asked), note.replace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One backfill. It is written before the first sink is, and again when a sink has its rows."""

    name: str  # of its file
    pipeline: str
    begin: str  # as it was given
    end: str
    asked: tuple[str, ...]  # sinks that were named; none: all
    sinks: tuple[str, ...]
    ranges: RangesDocument
    read_by: Mapping[str, tuple[str, ...]]  # sink: its sources
    number: int  # how often the same was done before, with --again
    allow_missing: bool
    replace: bool  # instead of the rows of these offsets that are there
    shapes: Mapping[str, Mapping[str, Any]]  # of the sinks and their steps, to know them again
    begun_at: str
    written: Mapping[str, int | None]  # sink: rows; None: it had them, and this note did not know
    done_at: str | None = None
    given_up: bool = False

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(document: Mapping[str, Any]) -> "Note":
        lists = {name: tuple(document[name]) for name in ("asked", "sinks")}
        read_by = {sink: tuple(each) for sink, each in document["read_by"].items()}
        return Note(**{**document, **lists, "read_by": read_by})

    @property
    def is_open(self) -> bool:
        return self.done_at is None

    @property
    def left(self) -> tuple[str, ...]:
        """The sinks that it has still to write."""
        return tuple(name for name in self.sinks if name not in self.written)

    def ranges_for(self, sink: str) -> RangesDocument:
        return {source: self.ranges[source] for source in self.read_by[sink]}

    def writer_for(self, sink: str) -> str:
        return writer_of(self.pipeline, sink, self.ranges_for(sink), self.number)

    def with_written(self, sink: str, rows: int | None) -> "Note":
        return replace(self, written={**self.written, sink: rows})

    def ended(self, now: str, *, given_up: bool = False) -> "Note":
        return replace(self, done_at=now, given_up=given_up)

    def words(self) -> str:
        named = f" for {', '.join(self.asked)}" if self.asked else ""
        return f"from {self.begin} to {self.end}{named}, begun at {self.begun_at}"


def writer_of(pipeline: str, sink: str, ranges: RangesDocument, number: int) -> str:
    """The name under which a sink knows the rows of a backfill: the same for the same offsets."""
    text = json.dumps([pipeline, sink, ranges, number], sort_keys=True)
    return str(uuid.uuid5(_WRITERS, text))


def open_note(notes: Sequence[Note], order: Order, file: str) -> Note | None:
    """The backfill that an order goes on with; None: a new one. Raises BackfillRefused."""
    found = next((each for each in notes if each.is_open), None)
    if found is None:
        if not order.has_range:
            raise BackfillRefused(
                f"no backfill of {file} is unfinished: give --from and --to for a new one"
            )
        if order.begin is None or order.end is None:
            raise BackfillRefused("a backfill needs both --from and --to")
        return None
    if order.has_range and not order.is_of(found):
        raise BackfillRefused(
            f"the backfill {found.words()} is not finished. First finish it: zhumq pipeline backfill"
            f" {file}; or give it up: zhumq pipeline backfill {file} --abandon"
        )
    return found


def number_of(notes: Sequence[Note], order: Order, sinks: Mapping[str, RangesDocument]) -> int:
    """How often sinks have had a backfill of these offsets. Raises BackfillRefused if they may not have it again."""
    same = [
        (each, sink)
        for each in notes
        for sink, ranges in sinks.items()
        if sink in each.sinks and each.ranges_for(sink) == ranges
    ]
    if not same:
        return 0
    had = [(each, sink) for each, sink in same if sink in each.written]
    if had and not order.again:
        last, _ = had[-1]
        names = ", ".join(dict.fromkeys(sink for _, sink in had))
        raise BackfillRefused(
            f"{names}: the backfill {last.words()} has written the rows of these offsets: to write them"
            " once more, as after a change of the file, give --again; or leave sinks out with --sink"
        )
    # A backfill that was given up may have written a part, under its own name, and by another file.
    return 1 + max(each.number for each, _ in same)


def overlaps(notes: Sequence[Note], sinks: Mapping[str, RangesDocument]) -> list[str]:
    """Lines about earlier backfills that have written some of the same messages."""
    found = []
    for each in notes:
        counts = {
            sink: overlap(ranges, each.ranges_for(sink))
            for sink, ranges in sinks.items()
            if sink in each.written
        }
        names = [sink for sink, count in counts.items() if count]
        if names:
            found.append(
                f"{', '.join(names)} had up to {max(counts.values()):,} of these messages by the backfill"
                f" {each.words()}"
            )
    return found


def check_unchanged(
    note: Note,
    shapes: Mapping[str, Mapping[str, Any]],
    read_by: Mapping[str, tuple[str, ...]],
    pipeline: Pipeline,
) -> None:
    """Raise BackfillRefused if the file writes other rows than those that the backfill began with."""
    changed = [
        sink
        for sink in note.left
        if shapes.get(sink) != note.shapes[sink] or read_by.get(sink) != note.read_by[sink]
    ]
    if changed:
        raise BackfillRefused(
            f"{pipeline.file} has changed since the backfill {note.words()}: {', '.join(changed)} would get"
            " other rows than those that it may have by now. Undo the change, or give the backfill up:"
            f" zhumq pipeline backfill {pipeline.file} --abandon"
        )

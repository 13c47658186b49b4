"""The checkpoints of one pipeline: how far each sink has read, where one begins after a reset, and the reset itself."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import SparkSession

from zhumq.pipelines.folder import Folder
from zhumq.pipelines.read_checkpoint import (
    FOLDER_PREFIX,
    MEMBERS,
    Members,
    OffsetsDocument,
    ReadCheckpoint,
    behind_name,
    has_own_checkpoint,
)
from zhumq.pipelines.shapes import Shape
from zhumq.spark.ranges import Offsets, from_json, is_of_topics

# Beside the folders of sinks and of shared reads, whose names have no dot and do not begin so.
ASIDE_PREFIX: Final = "reset-"
_JOURNAL: Final = "reset.json"
_STARTS: Final = "starts.json"
_SHAPES: Final = "shapes.json"
_METADATA: Final = "metadata"
_OFFSETS_FROM_LINE: Final = (
    2  # of Spark's file of a batch: before are the format and facts of the batch
)
_NO_OFFSET: Final = "-"

Start = Mapping[str, OffsetsDocument]  # by the name of the source


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a sink has read, and where that is kept."""

    folder: str  # of its own query, or of the read that it shares
    shares: str | None  # the source of that read
    writer: str | None  # the name under which the sink knows its batches; None: it has none yet
    next_offsets: Offsets | None  # of topics; None: no batch is finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What a reset changes: written down before it is carried out, so that a crash cannot leave half of it."""

    moves: tuple[tuple[str, str], ...]  # names in the folder of the checkpoints
    documents: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        return {"moves": [list(each) for each in self.moves], "documents": dict(self.documents)}

    @staticmethod
    def of(document: Mapping[str, Any]) -> "Reset":
        return Reset(
            moves=tuple((source, target) for source, target in document["moves"]),
            documents=document["documents"],
        )


@dataclass(slots=True)
class Checkpoints:
    """The folder with the checkpoints of one pipeline."""

    spark: SparkSession
    path: str
    _folder: Folder = field(init=False)

    def __post_init__(self) -> None:
        self._folder = Folder(self.spark, self.path)

    def names(self) -> list[str]:
        """What was not set aside: the folders of sinks, as `table`, and of shared reads, as `read-records`."""
        return [
            name
            for name in self._folder.names("")
            if "." not in name and not name.startswith(ASIDE_PREFIX)
        ]

    def is_new(self) -> bool:
        """Whether no run has kept anything here, not even what a reset has set aside."""
        return not self._folder.names("")

    def sinks(self) -> list[str]:
        """Every sink that a checkpoint knows, also those that the file has no more."""
        found = {name for name in self.names() if not name.startswith(FOLDER_PREFIX)}
        for members in self.reads().values():
            found.update(members.sinks, members.left)
        return sorted(found)

    def starts(self) -> dict[str, Start]:
        """Where sinks begin that have no checkpoint, by their names; of others the file says it."""
        found = self._folder.read_document(_STARTS)
        return {} if found is None else dict(found)

    def shapes(self) -> dict[str, Shape]:
        """What the sinks were like in the last run that they were part of."""
        found = self._folder.read_document(_SHAPES) or {}
        return {name: Shape.of(each) for name, each in found.items()}

    def write_shapes(self, shapes: Mapping[str, Shape]) -> None:
        """Note what sinks are like. Those of other sinks stay."""
        known = self.shapes() | dict(shapes)
        document = {name: each.document() for name, each in known.items()}
        self._folder.write_document(_SHAPES, document)

    def has_own(self, sink: str) -> bool:
        """Whether a query of this sink alone has begun."""
        return has_own_checkpoint(self.spark, self.inside(sink))

    def has_finished(self, sink: str) -> bool:
        """Whether a query of this sink alone has finished a batch, so that its state counts."""
        return ReadCheckpoint(self.spark, self.inside(sink)).last_committed() is not None

    def read_of(self, source: str) -> ReadCheckpoint:
        """The checkpoint of the shared read of a source, which may not have begun."""
        return ReadCheckpoint(self.spark, self.inside(f"{FOLDER_PREFIX}{source}"))

    def place_of(self, sink: str) -> Place | None:
        """How far a sink has read; None if it has not begun."""
        query = self._query_of(sink)
        if query is not None:
            return Place(folder=sink, shares=None, writer=query, next_offsets=self._read_by(sink))
        for source, members in self.reads().items():
            if sink not in members.sinks:
                continue
            name = f"{FOLDER_PREFIX}{source}"
            behind = self.read_of(source).behind([sink])
            query = self._query_of(name)
            return Place(
                folder=name,
                shares=source,
                writer=None if query is None else str(uuid.uuid5(uuid.UUID(query), sink)),
                next_offsets=from_json(behind[sink].next_offsets)
                if sink in behind
                else self._read_by(name),
            )
        return None

    def sharing(self, source: str) -> tuple[str, ...]:
        """The sinks of the shared read of a source."""
        members = self.reads().get(source)
        return () if members is None else members.sinks

    def reset_of(self, sinks: Sequence[str], starts: Mapping[str, Start], aside: str) -> Reset:
        """A reset of some sinks. A read goes on for those that share it and are not reset."""
        moves = [(name, f"{aside}/{name}") for name in sinks if self._folder.exists(name)]
        documents: dict[str, Any] = {}
        for source, members in self.reads().items():
            name, checkpoint = f"{FOLDER_PREFIX}{source}", self.read_of(source)
            kept = tuple(each for each in members.sinks if each not in sinks)
            left = tuple(each for each in members.left if each not in sinks)
            if (kept, left) == (members.sinks, members.left):
                continue
            if not kept:
                moves.append((name, f"{aside}/{name}"))
                continue
            for sink in checkpoint.behind(set(members.sinks) - set(kept)):
                document = f"{name}/{behind_name(sink)}"
                moves.append((document, f"{aside}/{document}"))
            documents[f"{name}/{MEMBERS}"] = Members(sinks=kept, left=left).document()
            documents[f"{aside}/{name}/{MEMBERS}"] = members.document()
        before = self.starts()
        after = {name: each for name, each in before.items() if name not in sinks} | dict(starts)
        if after != before:
            documents[_STARTS] = after
            documents |= {f"{aside}/{_STARTS}": before} if before else {}
        return Reset(moves=tuple(moves), documents=documents)

    def decide(self, reset: Reset) -> None:
        """Write down what a reset changes. From here on only its end is left: `finish_reset`."""
        self._folder.write_document(_JOURNAL, reset.document())

    def finish_reset(self) -> bool:
        """Carry out a reset that was decided on; each run begins with it. Returns whether there was one."""
        found = self._folder.read_document(_JOURNAL)
        if found is None:
            return False
        reset = Reset.of(found)
        for source, target in reset.moves:
            if self._folder.exists(source) and not self._folder.exists(target):
                self._folder.move(source, target)
        for name, document in reset.documents.items():
            self._folder.write_document(name, document)
        self._folder.remove(_JOURNAL)
        return True

    def batch_under_way(self, folder: str) -> tuple[Offsets | None, Offsets] | None:
        """Where the batch begins and ends that a query has begun and not finished; None if there is none.

        Of its first batch Spark does not note the beginning.
        """
        checkpoint = ReadCheckpoint(self.spark, self._folder.inside(folder))
        done, begun = checkpoint.last_committed(), checkpoint.last_begun()
        if begun is None or begun == done:
            return None
        until = self._end_of(folder, begun)
        return None if until is None else (self._read_by(folder), until)

    def inside(self, name: str) -> str:
        """The address of a name, for Spark."""
        return self._folder.inside(name)

    def shown(self, name: str) -> str:
        """The address of a name, for people."""
        return self.inside(name).removeprefix("file:")

    def reads(self) -> dict[str, Members]:
        """The shared reads that have begun, by their sources."""
        found = {}
        for name in self.names():
            source = name.removeprefix(FOLDER_PREFIX)
            if source != name and (members := self.read_of(source).members()) is not None:
                found[source] = members
        return found

    def _query_of(self, folder: str) -> str | None:
        """The id of the query that has begun in a folder."""
        raw = self._folder.read(f"{folder}/{_METADATA}")
        return None if raw is None else str(json.loads(raw)["id"])

    def _read_by(self, folder: str) -> Offsets | None:
        """The offsets behind the last batch that a query has finished, of all topics that it reads.

        Empty if it reads files alone; None if it has finished none.
        """
        batch = ReadCheckpoint(self.spark, self._folder.inside(folder)).last_committed()
        return None if batch is None else self._end_of(folder, batch)

    def _end_of(self, folder: str, batch: int) -> Offsets | None:
        """The offsets behind a batch of a query; None if it has not begun it."""
        raw = self._folder.read(f"{folder}/offsets/{batch}")
        if raw is None:
            return None
        found: Offsets = {}
        for line in raw.decode().splitlines()[_OFFSETS_FROM_LINE:]:
            if line == _NO_OFFSET:
                continue
            document = json.loads(line)
            if is_of_topics(document):
                found |= from_json(document)
        return found


def aside_now() -> str:
    """The name of the folder for what a reset of this moment sets aside."""
    return f"{ASIDE_PREFIX}{datetime.now(tz=UTC):%Y%m%dT%H%M%S%f}Z"

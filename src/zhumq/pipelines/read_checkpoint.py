"""The checkpoint of a shared read: its sinks, where each of its batches ends, and which sinks are behind."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import SparkSession

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.folder import Folder
from zhumq.spark.ranges import TOPIC_ID_KEY

# Beside Spark's own files. No sink is named so, as their names have no hyphen.
FOLDER_PREFIX: Final = "read-"
_SINKS: Final = "sinks"
MEMBERS: Final = f"{_SINKS}/members.json"

OffsetsDocument = Mapping[str, Mapping[str, Any]]


class CheckpointUnfit(ZhumqError):
    """A checkpoint that does not fit to the sinks of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The sinks that a read began with, and those of them that were missing in a later run."""

    sinks: tuple[str, ...]
    left: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {"sinks": list(self.sinks), "left": list(self.left)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What a sink writes under the number of a batch. It is repeated as it is until it is written."""

    batch: int
    until: OffsetsDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A sink that is behind the others: it has everything before `next_offsets`."""

    next_offsets: OffsetsDocument
    pending: Range | None

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"next_offsets": self.next_offsets}
        if self.pending is not None:
            found["pending"] = {"batch": self.pending.batch, "until": self.pending.until}
        return found

    @staticmethod
    def of(document: Mapping[str, Any]) -> "Behind":
        pending = document.get("pending")
        return Behind(
            next_offsets=document["next_offsets"],
            pending=None if pending is None else Range(**pending),
        )


@dataclass(slots=True)
class ReadCheckpoint:
    """The folder of the checkpoint of one shared read."""

    spark: SparkSession
    path: str
    _folder: Folder = field(init=False)

    def __post_init__(self) -> None:
        self._folder = Folder(self.spark, self.path)

    def members(self) -> Members | None:
        """None: no read has begun here."""
        found = self._folder.read_document(MEMBERS)
        return (
            None
            if found is None
            else Members(sinks=tuple(found["sinks"]), left=tuple(found["left"]))
        )

    def write_members(self, members: Members) -> None:
        self._folder.write_document(MEMBERS, members.document())

    def behind(self, sinks: Iterable[str]) -> dict[str, Behind]:
        """Those of the sinks that are behind."""
        found = {name: self._folder.read_document(behind_name(name)) for name in sinks}
        return {name: Behind.of(each) for name, each in found.items() if each is not None}

    def write_behind(self, sink: str, behind: Behind) -> None:
        self._folder.write_document(behind_name(sink), behind.document())

    def remove_behind(self, sink: str) -> None:
        self._folder.remove(behind_name(sink))

    def end_of(self, batch: int) -> OffsetsDocument | None:
        """Where a batch of the query ends, as Spark noted it before it began; None if there is no such batch."""
        raw = self._folder.read(f"offsets/{batch}")
        if raw is None:
            return None
        # Its lines: the version of the format, facts of the batch, and the end offset of its only source.
        lines = raw.decode().splitlines()
        found = json.loads(lines[-1])
        if not isinstance(found, dict):
            raise CheckpointUnfit(f"{self.path}/offsets/{batch} has no offsets of a topic")
        return found

    def last_committed(self) -> int | None:
        """The newest batch that the query has finished."""
        return self._newest("commits")

    def last_begun(self) -> int | None:
        """The newest batch of which the query has noted the end, before it began it."""
        return self._newest("offsets")

    def _newest(self, folder: str) -> int | None:
        numbers = [int(name) for name in self._folder.names(folder) if name.isdigit()]
        return max(numbers, default=None)


def has_own_checkpoint(spark: SparkSession, path: str) -> bool:
    """Whether a query of one sink has begun in this folder."""
    return Folder(spark, path).exists("metadata")


def rows_between(first: OffsetsDocument, until: OffsetsDocument) -> int:
    """How many offsets lie between two ends."""
    return sum(
        max(0, int(end) - int(first.get(topic, {}).get(partition, 0)))
        for topic, partitions in until.items()
        for partition, end in partitions.items()
        if partition != TOPIC_ID_KEY
    )


def behind_name(sink: str) -> str:
    """The document of a sink that is behind, in the folder of its read."""
    return f"{_SINKS}/{sink}.json"

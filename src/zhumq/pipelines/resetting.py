"""Plans and carries out the reset of a pipeline: its sinks forget how far they have read, and begin elsewhere."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from zhumq.admin.offsets import EARLIEST, Position
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints, Place, Reset, Start, aside_now
from zhumq.pipelines.functions import make_importable
from zhumq.pipelines.jdbc_rows import shown
from zhumq.pipelines.repeats import end_query, repeats_of
from zhumq.pipelines.sharing import sources_for
from zhumq.pipelines.sinks import SinkContext, all_sinks, prepare
from zhumq.pipelines.spec import (
    FilesSource,
    JdbcSource,
    Pipeline,
    Sink,
    TopicSink,
    TopicSource,
    is_read_whole,
)
from zhumq.pipelines.starts import offsets_at, start_of
from zhumq.pipelines.status import PipelineBusy, StatusFile
from zhumq.pipelines.topics import check_broker, reads_topics
from zhumq.pipelines.views import Views, build_views
from zhumq.spark.ranges import Offsets


class NothingToReset(ZhumqError):
    """A reset that would change nothing, or that names a sink that does not exist."""


class NoSuchBeginning(ZhumqError):
    """A position that a source does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReset:
    """Where a sink continues in one partition, before a reset and after it."""

    place: TopicPartition
    before: int | None  # None: it has read nothing
    after: int

    @property
    def again(self) -> int:
        """How many offsets are read a second time. Compacted topics have fewer messages."""
        return 0 if self.before is None else max(0, self.before - self.after)

    @property
    def left_out(self) -> int:
        """How many offsets the sink never reads."""
        return 0 if self.before is None else max(0, self.after - self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReset:
    """What a reset means for one sink."""

    sink: str
    partitions: tuple[PartitionReset, ...]
    files: tuple[str, ...]  # the folders whose files it has read, and reads again
    tables: tuple[str, ...]  # of databases, whose rows it has read, and reads again
    repeats: str  # what becomes of the rows that the sink has
    leaves: str | None  # the source whose shared read goes on without it

    @property
    def again(self) -> int:
        return sum(each.again for each in self.partitions)

    @property
    def left_out(self) -> int:
        return sum(each.left_out for each in self.partitions)

    def words(self) -> str:
        """What happens, in a sentence."""
        again = [f"up to {self.again:,} messages"] if self.again else []
        again += [f"all files that are in {path}" for path in self.files]
        again += [f"all rows that are in {name}" for name in self.tables]
        parts = [
            f"{' and '.join(again)} are read again; it {self.repeats}"
            if again
            else f"no {'message' if self.partitions else 'file'} is read again"
        ]
        if self.left_out:
            parts.append(f"{self.left_out:,} messages that it has not read are left out")
        if self.leaves is not None:
            parts.append(f"it leaves the shared read of {self.leaves}, and reads on its own")
        return f"{self.sink}: {'; '.join(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """A reset before it is carried out."""

    pipeline: str
    sinks: tuple[SinkReset, ...]
    gone: tuple[str, ...]  # sinks of earlier files, whose checkpoints are set aside, too
    aside: str | None  # where the old checkpoints go; None: there are none
    reset: Reset
    writers: tuple[tuple[Sink, str], ...]

    def document(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "aside": self.aside,
            "gone": list(self.gone),
            "sinks": [
                {
                    "sink": each.sink,
                    "repeats": each.repeats,
                    "leaves": each.leaves,
                    "files": list(each.files),
                    "tables": list(each.tables),
                    "partitions": [
                        {"topic": one.place.topic, "partition": one.place.partition,
                         "before": one.before, "after": one.after, "again": one.again,
                         "left_out": one.left_out}
                        for one in each.partitions
                    ],
                }
                for each in self.sinks
            ],
        }  # fmt: skip


@contextmanager
def stopped(state_dir: Path, pipeline: Pipeline) -> Iterator[None]:
    """Keep a pipeline from running. Raises PipelineBusy if it does."""
    try:
        with StatusFile(state_dir, pipeline.name).locked():
            yield
    except PipelineBusy as error:
        words = str(error).partition(":")[0]
        raise PipelineBusy(f"{words}: stop it first, with Ctrl-C or SIGTERM") from None


@dataclass(slots=True, kw_only=True)
class Resetting:
    """Resets of one pipeline that does not run."""

    spark: SparkSession
    pipeline: Pipeline
    brokers: Brokers
    checkpoints: Checkpoints

    def plan(self, names: Sequence[str], position: Position | None) -> ResetPlan:
        """What a reset would do, of all sinks if none is named. Changes nothing but what a crash has left undone."""
        self.checkpoints.finish_reset()
        sinks = {sink.name: sink for sink in all_sinks(self.pipeline)}
        for name in names:
            if name not in sinks:
                raise NothingToReset(
                    f"{self.pipeline.file} has no sink {name!r}; it has {', '.join(sinks)}"
                )
        chosen = {name: sinks[name] for name in sinks if not names or name in names}
        known = self.checkpoints.sinks()
        gone = () if names else tuple(name for name in known if name not in sinks)
        if position is None and not gone and not any(name in known for name in chosen):
            raise NothingToReset(
                f"{' and '.join(chosen)} of {self.pipeline.name} have no checkpoint in"
                f" {self.checkpoints.shown('')}: there is nothing to reset"
            )
        _check_beginning(self.pipeline, chosen, position)
        if reads_topics(self.pipeline) or any(isinstance(x, TopicSink) for x in chosen.values()):
            check_broker(self.brokers)
        return self._planned(chosen, gone, position)

    def _planned(
        self, chosen: dict[str, Sink], gone: tuple[str, ...], position: Position | None
    ) -> ResetPlan:
        make_importable(self.spark, self.pipeline)
        views = build_views(self.spark, self.pipeline, self.brokers, group=None)
        resets: list[SinkReset] = []
        starts: dict[str, Start] = {}
        writers: list[tuple[Sink, str]] = []
        for name, sink in chosen.items():
            place = self.checkpoints.place_of(name)
            after = {
                source.name: offsets_at(source, self.brokers, position)
                for source in sources_for(self.pipeline, name)
                if isinstance(source, TopicSource)
            }
            if position is not None and after:
                starts[name] = start_of(after)
            if place is not None and place.writer is not None:
                writers.append((sink, place.writer))
            merged = {
                each: offset for offsets in after.values() for each, offset in offsets.items()
            }
            resets.append(self._of(sink, place, merged, views, set(chosen)))
        aside = aside_now()
        reset = self.checkpoints.reset_of([*chosen, *gone], starts, aside)
        is_kept = bool(reset.moves) or any(name.startswith(aside) for name in reset.documents)
        return ResetPlan(
            pipeline=self.pipeline.name,
            sinks=tuple(resets),
            gone=gone,
            aside=self.checkpoints.shown(aside) if is_kept else None,
            reset=reset,
            writers=tuple(writers),
        )

    def _of(
        self, sink: Sink, place: Place | None, after: Offsets, views: Views, chosen: set[str]
    ) -> SinkReset:
        found = place.next_offsets if place is not None else None
        before = found or {}
        partitions = tuple(
            PartitionReset(place=each, before=before.get(each), after=offset)
            for each, offset in sorted(after.items())
        )
        repeats = "gets nothing twice: it has read nothing"
        if found is not None:
            repeats = repeats_of(sink, prepare(sink, views.rows_of(sink)), self._context())
        leaves = place.shares if place is not None else None
        if leaves is not None and chosen.issuperset(self.checkpoints.sharing(leaves)):
            leaves = None
        unplaced = [] if found is None else _unplaced_for(self.pipeline, sink.name)
        return SinkReset(
            sink=sink.name,
            partitions=partitions,
            files=tuple(each.path for each in unplaced if isinstance(each, FilesSource)),
            tables=tuple(shown(each) for each in unplaced if isinstance(each, JdbcSource)),
            repeats=repeats,
            leaves=leaves,
        )

    def carry_out(self, plan: ResetPlan) -> None:
        """Reset. A crash leaves the pipeline as it was, or as it is to be: its next run does the rest."""
        context = self._context()
        for sink, writer in plan.writers:
            end_query(sink, writer, context)
        self.checkpoints.decide(plan.reset)
        self.checkpoints.finish_reset()

    def _context(self) -> SinkContext:
        return SinkContext(
            spark=self.spark,
            brokers=self.brokers,
            trigger=self.pipeline.trigger,
        )


def _unplaced_for(pipeline: Pipeline, sink: str) -> list[FilesSource | JdbcSource]:
    """The sources of a sink whose rows have no offsets."""
    return [
        each
        for each in sources_for(pipeline, sink)
        if isinstance(each, FilesSource | JdbcSource) and not is_read_whole(each)
    ]


def _check_beginning(pipeline: Pipeline, sinks: Iterable[str], position: Position | None) -> None:
    """Files and rows have no offsets: a query without a checkpoint reads all of them."""
    if position in (None, EARLIEST):
        return
    for sink in sinks:
        for source in _unplaced_for(pipeline, sink):
            if isinstance(source, JdbcSource):
                raise NoSuchBeginning(
                    f"the sink {sink} reads the rows of {source.name}, which have no offsets: a reset reads"
                    f" all rows of {shown(source)} again, without --to or with --to earliest. To leave some"
                    " out, give a query: jdbc: SELECT ... WHERE ..."
                )
            raise NoSuchBeginning(
                f"the sink {sink} reads the files of {source.name}, which have no offsets: a reset reads"
                f" all files that are in {source.path} again, without --to or with --to earliest. To leave"
                " some out, move them out of the folder first"
            )

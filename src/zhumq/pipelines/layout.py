"""How the sinks of a stream read, by the file, by Spark's plans, and by the checkpoints that are there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints, Start
from zhumq.pipelines.functions import code_of
from zhumq.pipelines.join_plan import check_joins
from zhumq.pipelines.read_checkpoint import CheckpointUnfit, Members
from zhumq.pipelines.shapes import Shape, shape_of
from zhumq.pipelines.sharing import Reads, able_to_share, alone
from zhumq.pipelines.sinks import all_sinks, check_files, prepare
from zhumq.pipelines.spec import Pipeline, Sink
from zhumq.pipelines.state_in_plan import kept_state, state_in
from zhumq.pipelines.views import build_views

NONE: Final = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The reads of a run, and what keeps it from going on."""

    reads: Reads
    members: Mapping[str, Members]  # of shared reads that begin or lose sinks, by their source
    shapes: Mapping[str, Shape]  # of each sink
    refused: Mapping[str, str]  # sinks that cannot go on from their checkpoint: why, and what to do

    def keep(self, checkpoints: Checkpoints) -> None:
        """Note the layout beside the checkpoints. Raises CheckpointUnfit if a sink would lose its place."""
        if self.refused:
            raise CheckpointUnfit("; ".join(self.refused.values()))
        for source, members in self.members.items():
            checkpoints.read_of(source).write_members(members)
        checkpoints.write_shapes(self.shapes)


def layout_of(
    spark: SparkSession, pipeline: Pipeline, brokers: Brokers, checkpoints: Checkpoints
) -> Layout:
    """How the sinks of a stream read. Changes nothing. Raises SpecInvalid."""
    views = build_views(spark, pipeline, brokers, group=None)
    sinks = {sink.name: sink for sink in all_sinks(pipeline)}
    check_joins(pipeline, views.frames, pipeline.sinks)
    rows = {name: prepare(sink, views.rows_of(sink)) for name, sink in sinks.items()}
    for name, sink in sinks.items():
        check_files(sink, rows[name], spark)
    deciding = _Deciding(
        pipeline=pipeline,
        sinks=sinks,
        rows=rows,
        checkpoints=checkpoints,
        starts=checkpoints.starts(),
    )
    return deciding.layout()


@dataclass(slots=True, kw_only=True)
class _Deciding:
    pipeline: Pipeline
    sinks: Mapping[str, Sink]
    rows: Mapping[str, DataFrame]
    checkpoints: Checkpoints
    starts: Mapping[str, Start]
    own: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    members: dict[str, Members] = field(default_factory=dict)

    def layout(self) -> Layout:
        by_file = able_to_share(self.pipeline)
        self.own |= by_file.own
        shared: dict[str, tuple[str, ...]] = {}
        for source in (each.name for each in self.pipeline.sources):
            names = by_file.shared.get(source, ())
            if len(names) < 2 and self.checkpoints.read_of(source).members() is None:
                self.own |= dict.fromkeys(names, alone(source))
                continue
            able = self._able(names)
            together = self._together(source, able)
            self.own |= {
                name: f"it came, or was reset, when the read of {source} had begun"
                if together
                else alone(source)
                for name in able
                if name not in together
            }
            if together:
                shared[source] = together
        self._refuse_reads_without_source()
        code = code_of(self.pipeline)
        shapes = {
            name: shape_of(self.pipeline, sink, kept_state(self.rows[name]), code)
            for name, sink in self.sinks.items()
        }
        shapes |= self._states_of_unknown_meaning(shapes)
        self._refuse_changed_state(shapes)
        # In the order of the file.
        own = {name: self.own[name] for name in self.sinks if name in self.own}
        return Layout(
            reads=Reads(shared=shared, own=own),
            members=self.members,
            shapes=shapes,
            refused=self.refused,
        )

    def _able(self, names: Sequence[str]) -> list[str]:
        """Those of the sinks that can share a read by their plans and checkpoints."""
        able = []
        for name in names:
            state = state_in(self.rows[name])
            if state is not None:
                self.own[name] = state
            elif self.checkpoints.has_own(name):
                self.own[name] = (
                    f"it goes on from its own checkpoint {self.checkpoints.shown(name)};"
                    " to share a read, reset all sinks"
                )
            else:
                able.append(name)
        return able

    def _together(self, source: str, able: Sequence[str]) -> tuple[str, ...]:
        """The sinks of a shared read."""
        known = self.checkpoints.read_of(source).members()
        if known is None:
            # A reset may let sinks begin at different offsets.
            alike = [name for name in able if self.starts.get(name) == self.starts.get(able[0])]
            if len(alike) < 2:
                return ()
            self.members[source] = Members(sinks=tuple(alike))
            return tuple(alike)
        for name in known.sinks:
            if name in self.sinks and name not in able:
                self._refuse(
                    name,
                    f"the sink {name} was written by the shared read of {source} until now, and can no"
                    f" longer be ({self.own.get(name, 'it reads another source')}): its place is in"
                    f" {self._place(source)}",
                )
        for name in known.left:
            if name in self.sinks:
                self._refuse(
                    name,
                    f"the sink {name} was left out of an earlier run, and lacks what the shared read of"
                    f" {source} has read meanwhile",
                )
        gone = tuple(name for name in known.sinks if name not in self.sinks)
        if gone:
            kept = tuple(name for name in known.sinks if name in self.sinks)
            self.members[source] = Members(sinks=kept, left=(*known.left, *gone))
        return tuple(name for name in able if name in known.sinks)

    def _refuse_reads_without_source(self) -> None:
        sources = {each.name for each in self.pipeline.sources}
        reads = self.checkpoints.reads()
        # Earlier versions let sinks begin again under a new name: these have their place there.
        placed = {
            name
            for source, members in reads.items()
            if source in sources
            for name in (*members.sinks, *members.left)
        }
        for source, members in reads.items():
            for name in (*members.sinks, *members.left) if source not in sources else ():
                if name in self.sinks and name not in placed and not self.checkpoints.has_own(name):
                    self._refuse(
                        name,
                        f"the sink {name} was written by the shared read of {source}, and the file has"
                        f" no source of that name: its place is in {self._place(source)}",
                    )

    def _states_of_unknown_meaning(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Those whose state is older than the notes. It must not be taken for what the file says now."""
        before = self.checkpoints.shapes()
        return {
            name: replace(shape, state=None)
            for name, shape in shapes.items()
            if self.checkpoints.has_finished(name)
            and (name not in before or before[name].state is None)
        }

    def _refuse_changed_state(self, shapes: Mapping[str, Shape]) -> None:
        before = self.checkpoints.shapes()
        for name, shape in shapes.items():
            known = before.get(name)
            if known is None or known.state is None or shape.state is None:
                continue
            if known.state == shape.state or not self.checkpoints.has_finished(name):
                continue
            self._refuse(
                name,
                f"the state of the sink {name} in {self.checkpoints.shown(name)} is made of"
                f" {', '.join(known.state) or NONE}, and now would be of"
                f" {', '.join(shape.state) or NONE}",
            )

    def _refuse(self, name: str, words: str) -> None:
        self.refused.setdefault(
            name,
            f"{words}. Undo the change; or let the sink begin anew: zhumq pipeline reset"
            f" {self.pipeline.file} --sink {name}",
        )

    def _place(self, source: str) -> str:
        return self.checkpoints.read_of(source).path.removeprefix("file:")

"""What a changed file means for the checkpoints of its pipeline, sink by sink."""

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import SparkSession

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints, Place
from zhumq.pipelines.functions import make_importable
from zhumq.pipelines.layout import Layout, layout_of
from zhumq.pipelines.sharing import sources_for
from zhumq.pipelines.sinks import all_sinks
from zhumq.pipelines.spec import Pipeline, TopicSource
from zhumq.pipelines.starts import partitions_of
from zhumq.pipelines.topics import check_broker, reads_topics


class UpgradeRefused(ZhumqError):
    """Sinks that cannot go on from their checkpoints."""


class Outcome(StrEnum):
    """What becomes of a sink."""

    GOES_ON = "goes on"
    BEGINS = "begins"
    LEAVES = "leaves"  # the file has it no more
    NEEDS_RESET = "needs a reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUpgrade:
    """What a changed file means for one sink."""

    sink: str
    outcome: Outcome
    words: str


@dataclass(slots=True, kw_only=True)
class Upgrading:
    """The upgrade of one pipeline that does not run."""

    spark: SparkSession
    pipeline: Pipeline
    brokers: Brokers
    checkpoints: Checkpoints

    def plan(self) -> tuple[Layout, list[SinkUpgrade]]:
        """What becomes of each sink. Changes nothing but what a crash has left undone. Raises SpecInvalid."""
        self.checkpoints.finish_reset()
        if reads_topics(self.pipeline):
            check_broker(self.brokers)
        make_importable(self.spark, self.pipeline)
        layout = layout_of(self.spark, self.pipeline, self.brokers, self.checkpoints)
        names = [sink.name for sink in all_sinks(self.pipeline)]
        found = [self._of(name, layout) for name in names]
        found += [self._without(name) for name in self.checkpoints.sinks() if name not in names]
        return layout, found

    def carry_out(self, layout: Layout, found: list[SinkUpgrade]) -> None:
        """Note the new layout, so that the next run goes on. Raises UpgradeRefused."""
        refused = [each.sink for each in found if each.outcome is Outcome.NEEDS_RESET]
        if refused:
            options = " ".join(f"--sink {name}" for name in refused)
            raise UpgradeRefused(
                f"{self.pipeline.name} cannot go on as it is: {', '.join(refused)}. Undo these changes, or:"
                f" zhumq pipeline reset {self.pipeline.file} {options}"
            )
        layout.keep(self.checkpoints)

    def _of(self, name: str, layout: Layout) -> SinkUpgrade:
        place = self.checkpoints.place_of(name)
        how = layout.reads.of(name) or ""
        if name in layout.refused:
            words = layout.refused[name]
            return SinkUpgrade(sink=name, outcome=Outcome.NEEDS_RESET, words=words)
        if place is None:
            return SinkUpgrade(sink=name, outcome=Outcome.BEGINS, words=f"it {how}")
        topics = self._topics(name, place)
        if topics.gone:
            words = (
                f"its checkpoint {self.checkpoints.shown(place.folder)} is of"
                f" {', '.join(topics.gone)}, which it no longer reads"
            )
            return SinkUpgrade(sink=name, outcome=Outcome.NEEDS_RESET, words=words)
        parts = [how, *self._changes(name, layout)]
        if topics.new:
            parts.append(f"reads {', '.join(topics.new)} from the first offset")
        return SinkUpgrade(sink=name, outcome=Outcome.GOES_ON, words=f"it {'; '.join(parts)}")

    def _changes(self, name: str, layout: Layout) -> list[str]:
        before = self.checkpoints.shapes().get(name)
        shape, parts = layout.shapes[name], []
        if shape.state is None:
            parts.append("has a state, if any, that is older than zhumq's notes: Spark checks it")
        if before is None:
            return parts
        steps = shape.changed_steps(before)
        if steps:
            parts.append(
                f"applies {', '.join(steps)} as changed to what it reads from now on, and its rows stay"
            )
        code = shape.changed_code(before)
        if code:
            parts.append(
                f"has other code in {', '.join(code)}: of a state that it keeps, Spark checks the types of"
                " columns, and not what they mean"
            )
        if shape.sink != before.sink:
            parts.append("is written as changed from now on, and its rows stay where they are")
        return parts

    def _topics(self, name: str, place: Place) -> "_Topics":
        """The topics that its sources and its checkpoint do not have in common."""
        if place.next_offsets is None:
            return _Topics(gone=(), new=())
        read = {
            each.topic
            for source in sources_for(self.pipeline, name)
            if isinstance(source, TopicSource)
            for each in partitions_of(source, self.brokers)
        }
        known = {each.topic for each in place.next_offsets}
        return _Topics(gone=tuple(sorted(known - read)), new=tuple(sorted(read - known)))

    def _without(self, name: str) -> SinkUpgrade:
        place = self.checkpoints.place_of(name)
        if place is not None and place.shares is None:
            words = (
                f"its checkpoint {self.checkpoints.shown(place.folder)} stays: a sink of this name would"
                " go on from it"
            )
        else:
            words = "it leaves its shared read: to come back, it has to be reset"
        return SinkUpgrade(sink=name, outcome=Outcome.LEAVES, words=words)


@dataclass(frozen=True, slots=True)
class _Topics:
    gone: tuple[str, ...]
    new: tuple[str, ...]

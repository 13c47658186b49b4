"""Plans and carries out a backfill: a past range of the topics again, in batches beside the running stream."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from zhumq.admin.offsets import EARLIEST, LATEST
from zhumq.model.errors import ZhumqError
from zhumq.pipelines.backfill_files import Notes
from zhumq.pipelines.backfill_note import (
    BackfillRefused,
    Note,
    Order,
    check_unchanged,
    number_of,
    open_note,
    overlaps,
)
from zhumq.pipelines.backfill_range import (
    FROM,
    TO,
    Side,
    SourceFacts,
    SourceRange,
    as_document,
    not_read_before,
    parse_side,
    ranges_of,
    still_gone,
)
from zhumq.pipelines.backfill_sinks import (
    SinkBackfill,
    Way,
    chosen_sinks,
    edges_of,
    replacing,
    way_of,
)
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import one_line
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.delta_replacing import Replacing
from zhumq.pipelines.delta_table import DeltaTable
from zhumq.pipelines.failures import FailurePlaces, with_advice
from zhumq.pipelines.functions import code_of, make_importable
from zhumq.pipelines.repeats import end_query
from zhumq.pipelines.shapes import fingerprint, shape_of
from zhumq.pipelines.sharing import sources_for, steps_for
from zhumq.pipelines.sinks import (
    SinkContext,
    all_sinks,
    archive_table,
    check_target,
    prepare,
    rows_of_batch,
    write_batch,
    write_once,
)
from zhumq.pipelines.spec import (
    ConsoleSink,
    Pipeline,
    Sink,
    TableSink,
    TopicSink,
    TopicSource,
    Trigger,
    TriggerKind,
)
from zhumq.pipelines.spec_errors import spec_errors
from zhumq.pipelines.starts import offsets_at_each, options_between, partitions_of
from zhumq.pipelines.state_in_plan import check_supported, parts_with_state, shuffles
from zhumq.pipelines.status import timestamp
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.pipelines.topics import check_broker, make_topics
from zhumq.pipelines.views import Views, build_views
from zhumq.spark.ranges import OffsetRange, recreated_topics

BATCH: Final = 0  # a backfill is one batch of a writer of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """A backfill before it is carried out."""

    note: Note
    goes_on: bool  # it was begun before
    ranges: tuple[SourceRange, ...]
    sinks: tuple[SinkBackfill, ...]
    warnings: tuple[str, ...]
    views: Views

    @property
    def size(self) -> int:
        return sum(each.size for each in self.ranges)

    def document(self) -> dict[str, Any]:
        return {
            "pipeline": self.note.pipeline,
            "from": self.note.begin,
            "to": self.note.end,
            "goes_on": self.goes_on,
            "messages": self.size,
            "ranges": [
                {"source": each.source, "topic": one.place.topic, "partition": one.place.partition,
                 "first": one.first, "until": one.until}
                for each in self.ranges
                for one in each.partitions
            ],
            "sinks": [
                {"sink": each.sink, "way": str(each.way), "words": each.words,
                 "edges": list(each.edges)}
                for each in self.sinks
            ],
            "written": dict(self.note.written),
            "warnings": list(self.warnings),
        }  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Backfilling:
    """Backfills of one pipeline, which may run."""

    spark: SparkSession
    pipeline: Pipeline
    brokers: Brokers
    notes: Notes
    checkpoints: Checkpoints  # of the stream: looked at, and never changed

    def plan(self, order: Order, *, allow_missing: bool = False) -> BackfillPlan:
        """What a backfill would do. Changes nothing. Raises BackfillRefused, RangeInvalid, SpecInvalid."""
        known = self.notes.read()
        noted = open_note(known, order, self.pipeline.file)
        asked = order.sinks if noted is None else noted.asked
        sinks = chosen_sinks(self.pipeline, all_sinks(self.pipeline), asked)
        shapes = {each.name: _shape(self.pipeline, each) for each in sinks}
        if noted is not None:
            read_by = {each.name: self._topics_for(each.name) for each in sinks}
            check_unchanged(noted, shapes, read_by, self.pipeline)
            sinks = [each for each in sinks if each.name in noted.left]
        check_broker(self.brokers)
        make_importable(self.spark, self.pipeline)
        needed = self._needed_for(sinks)
        kept = self._states_in(needed)
        if noted is None:
            ranges = self._new_ranges(needed, order)
        else:
            allow_missing |= noted.allow_missing
            ranges = self._noted_ranges(needed, noted)
        warnings = _check(ranges, allow_missing=allow_missing)
        if noted is None and not any(each.size for each in ranges):
            raise BackfillRefused("no message is in the range")
        views = self._views_of(needed, ranges, allow_missing=allow_missing)
        is_replacing = order.replace if noted is None else noted.replace
        found = [self._way_of(each, views, kept, is_replacing=is_replacing) for each in sinks]
        warnings += self._read_later(found, ranges)
        if noted is None:
            written = [each.sink for each in found if each.way is not Way.LEFT_OUT]
            note = self._new_note(order, written, ranges, known, shapes, allow_missing)
            warnings += overlaps(
                known,
                {
                    each.sink: note.ranges_for(each.sink)
                    for each in found
                    if each.sink in written
                    and not each.is_idempotent
                    and each.way is not Way.REPLACE
                },
            )
        else:
            note = noted
        return BackfillPlan(
            note=note,
            goes_on=noted is not None,
            ranges=tuple(ranges),
            sinks=tuple(found),
            warnings=tuple(warnings),
            views=views,
        )

    def carry_out(self, plan: BackfillPlan, say: Callable[[str], None], stop: StopRequest) -> Note:
        """Write the sinks, one after the other. After a kill or a failure the same call does the rest."""
        note, context = plan.note, self._context()
        sinks = self._sinks()
        left = [(sinks[each.sink], each.way) for each in plan.sinks if each.sink in note.left]
        for sink, _ in left:
            check_target(sink, prepare(sink, plan.views.rows_of(sink)), context)
        self.notes.write(note)
        make_topics(self.brokers, [each.topic for each, _ in left if isinstance(each, TopicSink)])
        for sink, way in left:
            began = time.monotonic()
            try:
                with stop.cancelling(self.spark):
                    if stop.asked.is_set():
                        raise PipelineFailed("a stop was asked for")
                    rows = self._write(sink, way, plan, context)
            except (ZhumqError, PySparkException, Py4JError) as error:
                raise self._failed(sink, error, context, stop) from error
            note = note.with_written(sink.name, rows)
            if not note.left:
                note = note.ended(timestamp())
            self.notes.write(note)
            seconds = time.monotonic() - began
            words = "has had its rows" if rows is None else f"{rows:,} rows in {seconds:.1f} s"
            counts = plan.views.counters.take(plan.views.rows_of(sink)) if rows is not None else {}
            more = "".join(f", {name} {count:,}" for name, count in counts.items() if count)
            say(f"{sink.name}: {words}{more}")
        return note

    def abandon(self) -> Note:
        """Give up the backfill that is not finished: end what it has left open, and write no more of it."""
        note = open_note(
            self.notes.read(), Order(begin=None, end=None, sinks=()), self.pipeline.file
        )
        assert note is not None, "an order without a range is about an open note"
        sinks, context = self._sinks(), self._context()
        for name in note.left:
            if name in sinks:
                end_query(sinks[name], note.writer_for(name), context)
        note = note.ended(timestamp(), given_up=True)
        self.notes.write(note)
        return note

    def _sinks(self) -> dict[str, Sink]:
        return {sink.name: sink for sink in all_sinks(self.pipeline)}

    def _topics_for(self, sink: str) -> tuple[str, ...]:
        """The sources of a sink that have offsets."""
        sources = sources_for(self.pipeline, sink)
        return tuple(each.name for each in sources if isinstance(each, TopicSource))

    def _needed_for(self, sinks: Sequence[Sink]) -> Pipeline:
        """The pipeline with the sources and the steps that the rows of these sinks come through."""
        names = [each.name for each in sinks if not isinstance(each, ConsoleSink)]
        read = {source.name for name in names for source in sources_for(self.pipeline, name)}
        return replace(
            self.pipeline,
            sources=tuple(each for each in self.pipeline.sources if each.name in read),
            steps=steps_for(self.pipeline, names),
        )

    def _states_in(self, pipeline: Pipeline) -> dict[str, Counter[str]]:
        """The parts of the plan of each view, as a stream, that keep a state."""
        views = build_views(self.spark, pipeline, self.brokers, group=None)
        return {name: parts_with_state(frame) for name, frame in views.frames.items()}

    def _new_ranges(self, pipeline: Pipeline, order: Order) -> list[SourceRange]:
        assert order.begin is not None
        assert order.end is not None
        begin, end = parse_side(order.begin, FROM), parse_side(order.end, TO)
        facts = [self._facts(each, begin, end) for each in _topics_of(pipeline)]
        return ranges_of(facts, begin, end)

    def _facts(self, source: TopicSource, begin: Side, end: Side) -> SourceFacts:
        sides = [side.position for side in (begin, end) if side.position is not None]
        found, ids = offsets_at_each(source, self.brokers, [EARLIEST, LATEST, *sides])
        earliest, latest, *at = found
        return SourceFacts(
            source=source.name,
            first=at[0] if begin.position is not None else {},
            until=at[-1] if end.position is not None else {},
            earliest=earliest,
            latest=latest,
            topic_ids=ids,
        )

    def _noted_ranges(self, pipeline: Pipeline, note: Note) -> list[SourceRange]:
        """The ranges of a backfill that goes on, with what was deleted since."""
        ranges = []
        for source in _topics_of(pipeline):
            noted = SourceRange.of(source.name, note.ranges[source.name])
            (earliest,), ids = offsets_at_each(source, self.brokers, [EARLIEST])
            lost = recreated_topics(noted.topic_ids, ids)
            lost += [str(each.place) for each in noted.partitions if each.place not in earliest]
            if lost:
                raise BackfillRefused(
                    f"{', '.join(lost)}: gone, or another topic by now, since the backfill {note.words()}:"
                    f" zhumq pipeline backfill {self.pipeline.file} --abandon"
                )
            ranges.append(replace(noted, gone=still_gone(noted, earliest)))
        return ranges

    def _views_of(
        self, pipeline: Pipeline, ranges: Sequence[SourceRange], *, allow_missing: bool
    ) -> Views:
        """The views of the pipeline as a batch of these ranges. Raises SpecInvalid for what only a stream has."""
        by_source = {each.source: each for each in ranges}
        batch = replace(
            pipeline,
            trigger=Trigger(kind=TriggerKind.BATCH),
            sources=tuple(
                self._over(each, by_source[each.name], allow_missing=allow_missing)
                if isinstance(each, TopicSource)
                else each
                for each in pipeline.sources
            ),
        )
        views = build_views(self.spark, batch, self.brokers, group=None)
        for step in batch.steps:
            with spec_errors(step.mark):
                check_supported(views.frames[step.name])
        return views

    def _over(self, source: TopicSource, given: SourceRange, *, allow_missing: bool) -> TopicSource:
        first, until = given.first, given.until
        if not until:
            # Another source has messages in the range: of this one, nothing is read.
            place = partitions_of(source, self.brokers)[0]
            first = until = {place: 0}
        options = options_between(source, first, until)
        if allow_missing:
            options = {x: y for x, y in options.items() if x.lower() != "failondataloss"}
            options["failOnDataLoss"] = "false"
        return replace(source, options=options)

    def _way_of(
        self, sink: Sink, views: Views, kept: Mapping[str, Counter[str]], *, is_replacing: bool
    ) -> SinkBackfill:
        if isinstance(sink, ConsoleSink):
            return way_of(sink, (), shuffles=False)
        rows = prepare(sink, views.rows_of(sink))
        if isinstance(sink, TableSink):
            rows = rows_of_batch(sink, rows)
        if is_replacing:
            way = replacing(sink, rows.columns)
        else:
            exchanges = isinstance(sink, TopicSink) and shuffles(rows)
            way = way_of(sink, rows.columns, shuffles=exchanges)
        return replace(way, edges=edges_of(self.pipeline, sink, kept))

    def _read_later(
        self, sinks: Sequence[SinkBackfill], ranges: Sequence[SourceRange]
    ) -> list[str]:
        """Lines about sinks that get rows twice because their stream comes to these messages later."""
        lines = []
        for each in sinks:
            place = self.checkpoints.place_of(each.sink)
            if each.is_idempotent or each.way is Way.LEFT_OUT or place is None:
                continue
            read_by = {x.name for x in sources_for(self.pipeline, each.sink)}
            own = [one for one in ranges if one.source in read_by]
            count = not_read_before(own, place.next_offsets or {})
            if count:
                lines.append(
                    f"{each.sink}: its stream has not read up to {count:,} of these messages yet, and will"
                    " write them, too"
                )
        return lines

    def _new_note(
        self,
        order: Order,
        sinks: Sequence[str],
        ranges: Sequence[SourceRange],
        known: Sequence[Note],
        shapes: Mapping[str, Mapping[str, Any]],
        allow_missing: bool,
    ) -> Note:
        document = as_document(ranges)
        read_by = {name: self._topics_for(name) for name in sinks}
        of_sinks = {name: {x: document[x] for x in read_by[name]} for name in sinks}
        now = datetime.now(tz=UTC)
        return Note(
            name=f"{now:%Y%m%dT%H%M%S%f}Z",
            pipeline=self.pipeline.name,
            begin=order.begin or "",
            end=order.end or "",
            asked=order.sinks,
            sinks=tuple(sinks),
            ranges=document,
            read_by=read_by,
            number=number_of(known, order, of_sinks),
            allow_missing=allow_missing,
            replace=order.replace,
            shapes={name: shapes[name] for name in sinks},
            begun_at=now.isoformat(timespec="seconds"),
            written={},
        )

    def _write(self, sink: Sink, way: Way, plan: BackfillPlan, context: SinkContext) -> int | None:
        rows = prepare(sink, plan.views.rows_of(sink))
        writer = plan.note.writer_for(sink.name)
        # The exactly-once sink of topics takes the group for the id of a run.
        self.spark.sparkContext.setJobGroup(uuid.uuid4().hex, f"backfill of {sink.name}")
        if way is Way.ONCE:
            return write_batch(sink, rows, context, writer=writer, batch=BATCH)
        if isinstance(sink, TableSink):
            rows = rows_of_batch(sink, rows)
            sink = replace(sink, batch_sql=None)
            ranges = [
                OffsetRange(place=one.place, first_offset=one.first, until_offset=one.until)
                for each in plan.ranges
                for one in each.partitions
            ]
            if way is Way.FILL:
                return archive_table(sink, context.spark).fill(rows, query=writer, ranges=ranges)
            if way is Way.REPLACE:
                table = DeltaTable(self.spark, sink.path, partition_by=sink.partition_by)
                return Replacing(
                    table=table, rows=rows, ranges=ranges, query=writer, batch=BATCH
                ).carry_out()
        return write_once(sink, rows, context, run=writer)

    def _failed(
        self,
        sink: Sink,
        error: ZhumqError | PySparkException | Py4JError,
        context: SinkContext,
        stop: StopRequest,
    ) -> PipelineFailed:
        todo = f"to go on: zhumq pipeline backfill {self.pipeline.file}"
        if stop.asked.is_set():
            return PipelineFailed(f"stopped before {sink.name} had its rows; {todo}")
        if isinstance(error, ZhumqError):
            return PipelineFailed(f"sink {sink.name}: {one_line(str(error))}; {todo}")
        words = with_advice(context.explain(error), self.pipeline, sink, None)
        return PipelineFailed(f"sink {sink.name}: {words}; {todo}")

    def _context(self) -> SinkContext:
        return SinkContext(
            spark=self.spark,
            brokers=self.brokers,
            trigger=self.pipeline.trigger,
            explain=FailurePlaces(self.pipeline).explain,
        )


def _topics_of(pipeline: Pipeline) -> list[TopicSource]:
    return [each for each in pipeline.sources if isinstance(each, TopicSource)]


def _shape(pipeline: Pipeline, sink: Sink) -> dict[str, Any]:
    """What the rows of a sink are made of, and how Spark divides them into tasks."""
    options = {
        each.name: each.options
        for each in sources_for(pipeline, sink.name)
        if isinstance(each, TopicSource)
    }
    return shape_of(pipeline, sink, (), code_of(pipeline)).document() | {
        "sources": fingerprint(options)
    }


def _check(ranges: Sequence[SourceRange], *, allow_missing: bool) -> list[str]:
    """Lines about what is missing in the ranges. Raises BackfillRefused if it may not be."""
    gone = [each.words() for one in ranges for each in one.gone]
    if gone and not allow_missing:
        raise BackfillRefused(f"{'; '.join(gone)}: --allow-missing takes what is there")
    return gone + [
        f"{each.place} is read up to offset {each.first} alone: an open transaction begins there"
        for one in ranges
        for each in one.held
    ]

"""One streaming query that reads a topic once and writes each micro-batch to several sinks."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType

from zhumq.client.errors import ClusterFailed
from zhumq.model.errors import ZhumqError
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import one_line
from zhumq.pipelines.failures import offset_words, with_advice
from zhumq.pipelines.message_schemas import MessageSchema
from zhumq.pipelines.progress import QueryProgress
from zhumq.pipelines.read_checkpoint import (
    Behind,
    OffsetsDocument,
    Range,
    ReadCheckpoint,
    rows_between,
)
from zhumq.pipelines.sharing import steps_for, views_that_are_read
from zhumq.pipelines.sinks import (
    QUERY_PROPERTY,
    BatchFailed,
    SinkContext,
    cause_named,
    prepare,
    triggered,
    write_batch,
)
from zhumq.pipelines.spec import Pipeline, Sink, TopicSource, is_read_whole
from zhumq.pipelines.starts import options_between
from zhumq.pipelines.status import ReadProgress
from zhumq.pipelines.views import Tables, Views, build_steps, new_session, read_whole
from zhumq.spark.cluster_client import EARLIEST, ClusterClient
from zhumq.spark.ranges import TOPIC_ID_KEY, from_json

RETRY_SECONDS_MIN: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
CLOSE_SECONDS_MAX: Final = 120.0  # that the end of a run waits for a sink that catches up
GROUP_SECONDS_MAX: Final = 5.0  # that a sink waits for the group that shows its lag
logger = logging.getLogger(__name__)
_FAILURES: Final = (ZhumqError, PySparkException, Py4JError)


def retry_seconds(tries: int) -> float:
    """How long to wait after so many tries that failed."""
    return min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2.0 ** (tries - 1))


class SharedRead:
    """A batch is the sinks' in turn. One that fails falls behind, and catches up beside the others.

    A sink writes a range of offsets under the number of a batch, and repeats it unchanged until it is
    written. So whatever dies, each row is in each sink once: the range is Spark's own batch, or noted
    in the checkpoint before it is tried for the first time.
    """

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        source: TopicSource,
        sinks: Mapping[str, tuple[Sink, QueryProgress]],
        brokers: Brokers,
        context: SinkContext,
        checkpoint: ReadCheckpoint,
        progress: ReadProgress,
        say: Callable[[str], None],
        tries_max: int,
        tables: Tables | None,
    ) -> None:
        self._pipeline = replace(pipeline, steps=steps_for(pipeline, sinks.keys()))
        self._viewed = views_that_are_read(self._pipeline)
        self._tables = tables
        self._schemas: dict[str, MessageSchema] = {}  # of its steps, as they were when it began
        self._source = source
        self._sinks = sinks
        self._brokers = brokers
        self._context = context
        self._checkpoint = checkpoint
        self._progress = progress
        self._say = say
        self._tries_max = tries_max
        self._lock = threading.Lock()  # of what follows
        self._behind = checkpoint.behind(sinks)
        self._finished = checkpoint.last_committed()
        self._tries: dict[str, int] = {}
        self._due_at: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._thread: threading.Thread | None = None
        self._query_id = ""

    def start(self, rows: DataFrame) -> StreamingQuery:
        """Start the query over the rows of the source."""

        def write(batch: DataFrame, number: int) -> None:
            with cause_named(self._context):
                self._write(batch, number)

        name = f"read of {self._source.name}"
        writer = triggered(rows, name, self._context, checkpoint=self._checkpoint.path)
        query = writer.foreachBatch(write).start()
        self._query_id = str(query.id)
        return query

    @property
    def errors(self) -> dict[str, str]:
        """Of the sinks that are behind, why."""
        with self._lock:
            return dict(self._errors)

    def is_settled(self) -> bool:
        """Whether no sink is behind that will be tried again in this run."""
        with self._lock:
            return not any(
                self._tries.get(name, 0) < self._tries_max
                for name in self._behind
                if self._has_to_catch_up(name)
            )

    def lag_of(self, sink: str) -> int:
        """How many more records a sink is behind than the read."""
        with self._lock:
            behind = self._behind.get(sink)
            if behind is None or self._finished is None:
                return 0
            end = self._checkpoint.end_of(self._finished)
            return 0 if end is None else rows_between(behind.next_offsets, end)

    def size_of(self, lag: int | None) -> int | None:
        """The bytes of so many records, estimated by those that were read in this run."""
        read = self._progress
        return None if lag is None or not read.rows else lag * read.bytes // read.rows

    def catch_up(self) -> None:
        """Begin to write what the next sink lacks whose time has come, if none is being written."""
        if self._thread is not None and self._thread.is_alive():
            return
        now = time.monotonic()
        with self._lock:
            due = [
                name
                for name in self._behind
                if self._has_to_catch_up(name)
                and self._tries.get(name, 0) < self._tries_max
                and self._due_at.get(name, 0.0) <= now
            ]
        if due and self._query_id:
            sink, progress = self._sinks[due[0]]
            self._thread = threading.Thread(
                target=self._catch_up, args=(sink, progress), name=f"catch up {due[0]}", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Wait for the sink that catches up."""
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS_MAX)

    def _write(self, batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
        assert query is not None, "Spark sets the query id of a batch"
        self._query_id = query
        names = self._taking_part(number)
        rows = batch.persist()
        try:
            # Reads the batch, once, so that a failure of the read is not one of a sink.
            count, size = _measured(rows)
            failed: dict[str, str] = {}
            if count:
                views = self._views(batch.sparkSession, rows)
                for name in names:
                    try:
                        self._write_sink(*self._sinks[name], views, number)
                    except _FAILURES as error:
                        failed[name] = self._words(error)
            if failed:
                start = self._start_of(number, rows)
                failed = {
                    name: self._with_advice(words, name, start, self._end_of(number))
                    for name, words in failed.items()
                }
                if len(failed) == len(names):
                    raise BatchFailed("; ".join(f"sink {name}: {x}" for name, x in failed.items()))
                for name, words in failed.items():
                    self._fall_behind(name, number, start, words)
        finally:
            rows.unpersist()
        with self._lock:
            self._finished = number
        self._progress.add(rows=count, size=size)

    def _taking_part(self, number: int) -> list[str]:
        """The sinks of a batch: those that have everything before it."""
        with self._lock:
            start = self._checkpoint.end_of(number - 1) if self._behind else None
            taken_back = []
            for name, behind in list(self._behind.items()):
                if behind.pending is None and start is not None and behind.next_offsets == start:
                    self._checkpoint.remove_behind(name)
                    del self._behind[name]
                    self._errors.pop(name, None)
                    taken_back.append(name)
            names = [name for name in self._sinks if name not in self._behind]
        for name in taken_back:
            self._show_lag(name, None)
        return names

    def _views(self, session: SparkSession, rows: DataFrame) -> Views:
        sources = {
            each.name: read_whole(session, each) if is_read_whole(each) else rows
            for each in self._pipeline.sources
            if each.name == self._source.name or (is_read_whole(each) and each.name in self._viewed)
        }
        return build_steps(
            session, self._pipeline, sources, self._brokers, self._tables, self._schemas
        )

    def _write_sink(self, sink: Sink, progress: QueryProgress, views: Views, batch: int) -> None:
        rows = prepare(sink, views.rows_of(sink))
        writer = str(uuid.uuid5(uuid.UUID(self._query_id), sink.name))
        written = write_batch(sink, rows, self._context, writer=writer, batch=batch)
        if written is not None:
            progress.count(written)
            progress.add_counts(views.counters.take(rows))
            progress.add_changes(views.counters.changes)

    def _start_of(self, number: int, rows: DataFrame) -> OffsetsDocument:
        """Where a batch begins. Of the first one Spark keeps no note: its first rows tell."""
        start = self._checkpoint.end_of(number - 1)
        if start is not None:
            return start
        end = self._end_of(number)
        found: dict[str, dict[str, int]] = {
            topic: {each: int(at) for each, at in ends.items() if each != TOPIC_ID_KEY}
            for topic, ends in end.items()
        }
        firsts = rows.groupBy("topic", "partition").agg(F.min("offset").alias("first")).collect()
        for row in firsts:
            found[row["topic"]][str(row["partition"])] = int(row["first"])
        return found

    def _end_of(self, number: int) -> OffsetsDocument:
        end = self._checkpoint.end_of(number)
        if end is None:
            raise BatchFailed(f"{self._checkpoint.path} has no offsets of batch {number}")
        return end

    def _fall_behind(self, name: str, number: int, start: OffsetsDocument, words: str) -> None:
        behind = Behind(next_offsets=start, pending=Range(batch=number, until=self._end_of(number)))
        with self._lock:
            self._checkpoint.write_behind(name, behind)
            self._behind[name] = behind
        self._show_lag(name, behind)
        self._failed(name, words)

    def _failed(self, name: str, words: str) -> None:
        with self._lock:
            tries = self._tries[name] = self._tries.get(name, 0) + 1
            self._errors[name] = words
            wait = retry_seconds(tries)
            self._due_at[name] = time.monotonic() + wait
        after = f"tried again in {wait:.0f} s" if tries < self._tries_max else "given up"
        self._say(
            f"sink {name} failed ({tries} of {self._tries_max}), {after}: {words}; it is behind the others"
        )

    def _show_lag(self, name: str, behind: Behind | None) -> None:
        """Show how far behind a sink is as a group of its own, which ends when it is with the others again."""
        group = f"{self._pipeline.name}.{name}"
        try:
            with ClusterClient(
                self._brokers.bootstrap,
                retry_seconds_max=GROUP_SECONDS_MAX,
                security=self._brokers.security(),
            ) as client:
                if behind is None:
                    client.delete_group(group)
                else:
                    client.commit_offsets(group, from_json(behind.next_offsets))
        except ClusterFailed as error:
            logger.warning("the group %s does not show the lag of its sink: %s", group, error)

    def _has_to_catch_up(self, name: str) -> bool:
        """Whether a sink that is behind can be written; else the next batch has it again."""
        behind = self._behind[name]
        if behind.pending is not None or self._finished is None:
            return behind.pending is not None
        end = self._checkpoint.end_of(self._finished)
        return end is not None and rows_between(behind.next_offsets, end) > 0

    def _catch_up(self, sink: Sink, progress: QueryProgress) -> None:
        try:
            spark = self._context.spark
            # The exactly-once sink of topics takes the group for the id of a run.
            spark.sparkContext.setJobGroup(uuid.uuid4().hex, f"{sink.name} catches up")
            while (behind := self._next_range(sink.name)) is not None:
                assert behind.pending is not None
                session = new_session(spark)
                rows = self._rows_between(session, behind.next_offsets, behind.pending.until)
                self._write_sink(sink, progress, self._views(session, rows), behind.pending.batch)
                done = Behind(next_offsets=behind.pending.until, pending=None)
                with self._lock:
                    self._checkpoint.write_behind(sink.name, done)
                    self._behind[sink.name] = done
                    self._tries.pop(sink.name, None)
                    self._errors.pop(sink.name, None)
                self._show_lag(sink.name, done)
        except _FAILURES as error:
            words = self._words(error)
            with self._lock:
                behind = self._behind.get(sink.name)
            if behind is not None and behind.pending is not None:
                first, until = behind.next_offsets, behind.pending.until
                words = self._with_advice(words, sink.name, first, until)
            self._failed(sink.name, words)

    def _words(self, error: ZhumqError | PySparkException | Py4JError) -> str:
        return (
            one_line(str(error)) if isinstance(error, ZhumqError) else self._context.explain(error)
        )

    def _with_advice(
        self, words: str, name: str, first: OffsetsDocument, until: OffsetsDocument
    ) -> str:
        sink, _ = self._sinks[name]
        reading = offset_words(from_json(first), from_json(until))
        return with_advice(words, self._pipeline, sink, reading)

    def _next_range(self, name: str) -> Behind | None:
        """What a sink writes next, noted before it is tried; None if it has all of the finished batches."""
        with self._lock:
            behind = self._behind.get(name)
            if behind is None:
                return None  # The query has taken it back.
            if behind.pending is None and self._has_to_catch_up(name):
                assert self._finished is not None
                pending = Range(batch=self._finished, until=self._end_of(self._finished))
                behind = Behind(next_offsets=behind.next_offsets, pending=pending)
                self._checkpoint.write_behind(name, behind)
                self._behind[name] = behind
            return None if behind.pending is None else behind

    def _rows_between(
        self, session: SparkSession, first: OffsetsDocument, until: OffsetsDocument
    ) -> DataFrame:
        """The rows between two ends, in tasks as those of the query."""
        ends, begun = from_json(until), from_json(first)
        starts = {place: begun.get(place, EARLIEST) for place in ends}
        options = options_between(self._source, starts, ends)
        return session.read.format("zhumq").options(**self._brokers.options(), **options).load()


def _measured(rows: DataFrame) -> tuple[int, int]:
    """How many rows there are, and the bytes of their keys and values."""
    kept: Sequence[str] = [
        field.name
        for field in rows.schema.fields
        if field.name in ("key", "value") and isinstance(field.dataType, BinaryType)
    ]
    size = F.lit(0).cast("long")
    for name in kept:
        size = size + F.coalesce(F.octet_length(name), F.lit(0))
    (row,) = rows.agg(F.count(F.lit(1)).alias("rows"), F.sum(size).alias("bytes")).collect()
    return int(row["rows"]), int(row["bytes"] or 0)

"""Runs the streaming queries of a pipeline: starts them, follows them, tries again, stops them between batches."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Start
from zhumq.pipelines.failures import offset_words, with_advice
from zhumq.pipelines.progress import QueryProgress
from zhumq.pipelines.read_checkpoint import FOLDER_PREFIX, ReadCheckpoint
from zhumq.pipelines.refreshed_tables import RefreshedTables
from zhumq.pipelines.shared_read import SharedRead, retry_seconds
from zhumq.pipelines.sharing import Reads
from zhumq.pipelines.sinks import SinkContext, prepare, start
from zhumq.pipelines.spec import EnrichStep, Pipeline, Sink, TopicSource, TriggerKind
from zhumq.pipelines.starts import beginning_at
from zhumq.pipelines.status import (
    ReadProgress,
    RunStatus,
    SinkProgress,
    State,
    TableProgress,
)
from zhumq.pipelines.stopping import POLL_SECONDS, PipelineFailed, StopRequest
from zhumq.pipelines.views import Views, build_views
from zhumq.spark.ranges import Offsets

CHANGES_MAX: Final = 100  # of messages, that one run prints
STOP_SECONDS_MAX: Final = 120.0  # how long a batch may take to finish after a stop request
# How often a sink is tried that fails, before it is given up for this run.
TRIES_MAX: Final = {TriggerKind.AVAILABLE_NOW: 3, TriggerKind.INTERVAL: 10}


@dataclass(slots=True, kw_only=True)
class _Feed:
    """A streaming query with the sinks that it writes to."""

    name: str
    folder: str  # of its checkpoint
    begin: Callable[[], StreamingQuery]
    sinks: Mapping[str, QueryProgress]
    shared: SharedRead | None = None
    query: StreamingQuery
    tries: int = 0
    due_at: float | None = None  # when it is started again after a failure
    is_over: bool = False  # it has come to its end, or was given up
    error: str | None = None
    batches: int = 0  # at the last failure

    def last_batch(self) -> int:
        progress = self.query.lastProgress
        return -1 if progress is None else int(progress["batchId"])


class StreamCheckpoints(Protocol):
    """The checkpoints of a run's queries, as far as the run uses them."""

    @property
    def path(self) -> str: ...

    def finish_reset(self) -> bool: ...

    def starts(self) -> Mapping[str, Start]: ...

    def inside(self, name: str) -> str: ...

    def batch_under_way(self, folder: str) -> tuple[Offsets | None, Offsets] | None: ...

    def read_of(self, source: str) -> ReadCheckpoint: ...


@dataclass(slots=True, kw_only=True)
class StreamRun:
    """The streaming part of one run."""

    spark: SparkSession
    pipeline: Pipeline
    sinks: Sequence[Sink]
    brokers: Brokers
    context: SinkContext
    checkpoints: StreamCheckpoints
    reads: Callable[[], Reads]  # decided when a reset is over
    status: RunStatus
    report: Callable[[], None]
    say: Callable[[str], None]
    stop: StopRequest
    tick: Callable[[], None]  # called now and then while the queries run
    tries_max: int | None = None
    _feeds: list[_Feed] = field(default_factory=list)
    _views: list[Views] = field(default_factory=list)
    _starts: Mapping[str, Start] = field(default_factory=dict)  # of sinks after a reset
    _tables: RefreshedTables | None = None  # None without a step that enriches
    _reported: Mapping[str, TableProgress] = field(default_factory=dict)
    _logged: set[str] = field(default_factory=set)  # changes of messages

    def carry_out(self) -> None:
        """Run to the end, or until it is stopped. Raises PipelineFailed for sinks that have failed."""
        for sink in self.sinks:
            self.status.sinks[sink.name] = SinkProgress(name=sink.name)
        if self.checkpoints.finish_reset():
            self.say(f"{self.pipeline.name}: carried out a reset that was interrupted")
        self._starts = self.checkpoints.starts()
        steps = [each for each in self.pipeline.steps if isinstance(each, EnrichStep)]
        self.status.tables = {each.name: TableProgress(source=each.table) for each in steps}
        if steps:
            self._tables = RefreshedTables(
                spark=self.spark,
                pipeline=self.pipeline,
                checkpoints=self.checkpoints.path,
                progress=self.status.tables,
                say=lambda line: self.say(f"{self.pipeline.name}: {line}"),
            )
        try:
            self._run()
            self._summarize()
            self._raise_failures()
        finally:
            if self._tables is not None:
                self._tables.close()
            for views in self._views:
                views.close()

    def _run(self) -> None:
        begins = self._plan()
        try:
            for begin in begins:
                self._feeds.append(begin())
            self.status.state = State.RUNNING
            self.report()
            self._watch()
        finally:
            for feed in self._feeds:
                if feed.query.isActive:
                    feed.query.stop()
                if feed.shared is not None:
                    feed.shared.close()

    def _tries_max(self) -> int:
        return self.tries_max or TRIES_MAX[self.pipeline.trigger.kind]

    def _plan(self) -> list[Callable[[], _Feed]]:
        """Every query is analysed before one is started."""
        by_name = {sink.name: sink for sink in self.sinks}
        reads = self.reads()
        for line in reads.words():
            self.say(f"{self.pipeline.name}: {line}")
        planned: list[Callable[[], _Feed]] = []
        for source, names in reads.shared.items():
            planned.append(self._shared(source, [by_name[name] for name in names]))
        planned += [self._own(by_name[name]) for name in reads.own]
        return planned

    def _own(self, sink: Sink) -> Callable[[], _Feed]:
        """A sink that reads the topics on its own, and has its own lag."""
        group = self._group_of(sink.name)
        views = self._views_for(sink.name, group)
        rows = prepare(sink, views.rows_of(sink))
        progress = QueryProgress(self.status.sinks[sink.name])

        def begin() -> StreamingQuery:
            return start(
                sink,
                rows,
                self.context,
                checkpoint=self.checkpoints.inside(sink.name),
                count=progress.count,
            )

        return lambda: self._started(sink.name, sink.name, begin, {sink.name: progress})

    def _shared(self, name: str, sinks: Sequence[Sink]) -> Callable[[], _Feed]:
        source = next(each for each in self.pipeline.sources if each.name == name)
        assert isinstance(source, TopicSource)
        is_first = any(sink.name == self.sinks[0].name for sink in sinks)
        group = self.pipeline.name if is_first else f"{self.pipeline.name}.{FOLDER_PREFIX}{name}"
        rows: DataFrame = self._views_for(sinks[0].name, group).frames[name]
        progresses = {sink.name: QueryProgress(self.status.sinks[sink.name]) for sink in sinks}
        read = ReadProgress(source=name, sinks=[sink.name for sink in sinks])
        self.status.reads.append(read)
        shared = SharedRead(
            pipeline=self.pipeline,
            source=source,
            sinks={sink.name: (sink, progresses[sink.name]) for sink in sinks},
            brokers=self.brokers,
            context=self.context,
            checkpoint=self.checkpoints.read_of(name),
            progress=read,
            say=self.say,
            tries_max=self._tries_max(),
            tables=self._tables,
        )
        return lambda: self._started(
            f"read of {name}",
            f"{FOLDER_PREFIX}{name}",
            lambda: shared.start(rows),
            progresses,
            shared,
        )

    def _views_for(self, sink: str, group: str) -> Views:
        begun = beginning_at(self.pipeline, self._starts.get(sink), self.brokers)
        views = build_views(self.spark, begun, self.brokers, group=group, tables=self._tables)
        self._views.append(views)
        return views

    def _group_of(self, name: str) -> str:
        own = self.pipeline.name
        return own if name == self.sinks[0].name else f"{own}.{name}"

    def _started(
        self,
        name: str,
        folder: str,
        begin: Callable[[], StreamingQuery],
        sinks: Mapping[str, QueryProgress],
        shared: SharedRead | None = None,
    ) -> _Feed:
        query = begin()
        for progress in sinks.values():
            progress.sink.query = str(query.id)
        return _Feed(name=name, folder=folder, begin=begin, sinks=sinks, shared=shared, query=query)

    def _watch(self) -> None:
        """Follow the queries until all have ended or a stop is requested.

        A sink that fails is tried again, each time later, and never stops another one.
        """
        while any(not feed.is_over or _is_catching_up(feed) for feed in self._feeds):
            self._update()
            self.tick()
            for feed in self._feeds:
                self._try_again(feed)
                if feed.shared is not None:
                    feed.shared.catch_up()
            if self.stop.asked.is_set():
                self._finish()
                break
            self.stop.asked.wait(POLL_SECONDS)
        self._update()
        # A stop may come with the first batch behind a failure.
        for feed in self._feeds:
            if not feed.is_over and feed.due_at is None and feed.query.exception() is None:
                _forget_if_recovered(feed)

    def _try_again(self, feed: _Feed) -> None:
        """Start a query again that has failed, when its time has come."""
        if feed.is_over:
            return
        now = time.monotonic()
        if feed.query.isActive:
            _forget_if_recovered(feed)
            return
        if feed.due_at is not None:
            if now >= feed.due_at:
                feed.due_at = None
                try:
                    feed.query = feed.begin()
                except PySparkException as error:
                    self._note_failure(feed, error)
            return
        failure = feed.query.exception()
        if failure is None:
            feed.error = None
            feed.is_over = True
        else:
            self._note_failure(feed, failure)

    def _note_failure(self, feed: _Feed, failure: PySparkException) -> None:
        feed.tries += 1
        feed.error = self._words_of(feed, failure)
        feed.batches = next(iter(feed.sinks.values())).sink.batches
        is_last = feed.tries >= self._tries_max()
        wait = retry_seconds(feed.tries)
        feed.is_over = is_last
        feed.due_at = None if is_last else time.monotonic() + wait
        if self._tries_max() > 1:
            after = "given up" if is_last else f"tried again in {wait:.0f} s"
            what = feed.name if feed.shared is not None else f"sink {feed.name}"
            self.say(f"{what} failed ({feed.tries} of {self._tries_max()}), {after}: {feed.error}")

    def _words_of(self, feed: _Feed, failure: PySparkException) -> str:
        """The cause with its step, the offsets that were read, and what to do."""
        words = self.context.explain(failure)
        if feed.shared is not None and words.startswith("sink "):
            return words  # The read has explained the failure of each of its sinks.
        own = None if feed.shared is not None else next(iter(feed.sinks))
        batch = self.checkpoints.batch_under_way(feed.folder)
        sink = next((each for each in self.sinks if each.name == own), None)
        reading = None if batch is None else offset_words(*batch)
        return with_advice(words, self.pipeline, sink, reading)

    def _update(self) -> None:
        changed = False
        for feed in self._feeds:
            errors = feed.shared.errors if feed.shared is not None else {}
            for name, progress in feed.sinks.items():
                behind = feed.shared.lag_of(name) if feed.shared is not None else 0
                last = feed.query.lastProgress
                changed |= progress.update(last, partial(_recent, feed.query), behind=behind)
                if feed.shared is not None:
                    progress.sink.bytes_behind = feed.shared.size_of(progress.sink.lag)
                self._log_changes(progress.sink)
                error = errors.get(name, feed.error)
                if progress.sink.error != error:
                    progress.sink.error = error
                    changed = True
        tables = {name: replace(each) for name, each in self.status.tables.items()}
        changed |= tables != self._reported
        self._reported = tables
        if changed:
            self.report()

    def _log_changes(self, sink: SinkProgress) -> None:
        """Each change of messages once, whichever sinks have them."""
        for line in change_lines(self.pipeline, sink):
            if line not in self._logged and len(self._logged) < CHANGES_MAX:
                self._logged.add(line)
                self.say(line)

    def _finish(self) -> None:
        """Stop each query between two batches, or at the deadline."""
        self.status.state = State.STOPPING
        self.report()
        before = {feed.name: feed.last_batch() for feed in self._feeds}
        deadline = time.monotonic() + STOP_SECONDS_MAX
        waiting = list(self._feeds)
        while waiting:
            late = time.monotonic() > deadline or self.stop.hurried.is_set()
            for feed in list(waiting):
                idle = not feed.query.isActive or not feed.query.status["isTriggerActive"]
                if idle or late or feed.last_batch() > before[feed.name]:
                    feed.query.stop()
                    waiting.remove(feed)
            self.stop.hurried.wait(POLL_SECONDS if waiting else 0)

    def _summarize(self) -> None:
        for read in self.status.reads:
            if read.rows:
                self.say(f"{self.pipeline.name}: {read.words()}")

    def _raise_failures(self) -> None:
        """A sink whose query was stopped while it failed has failed, too."""
        errors: dict[str, str] = {}
        for feed in self._feeds:
            failure = feed.query.exception()
            error = feed.error if failure is None else self._words_of(feed, failure)
            if feed.shared is not None:
                errors |= feed.shared.errors
            if error is not None:
                errors[feed.name] = error
        words = [
            error if name.startswith("read of ") else f"sink {name}: {error}"
            for name, error in errors.items()
        ]
        if words:
            raise PipelineFailed("; ".join(words))


def change_lines(pipeline: Pipeline, sink: SinkProgress) -> list[str]:
    """What is new in the messages of steps, as lines for people."""
    return [
        f"{pipeline.name}: messages of the step {step} have changed: {words}"
        for step, words in sink.changes.items()
    ]


def _forget_if_recovered(feed: _Feed) -> None:
    """A batch that is finished behind a failure ends it."""
    if feed.error is not None and next(iter(feed.sinks.values())).sink.batches > feed.batches:
        feed.error, feed.tries = None, 0


def _is_catching_up(feed: _Feed) -> bool:
    return feed.shared is not None and not feed.shared.is_settled()


def _recent(query: StreamingQuery) -> Sequence[Any]:
    return query.recentProgress

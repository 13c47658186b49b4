"""Runs a pipeline: starts its queries, follows their progress, stops them cleanly, reports the result."""

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.streaming.query import StreamingQuery

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import explain, one_line
from zhumq.pipelines.progress import QueryProgress
from zhumq.pipelines.sinks import SinkContext, dead_letter_sink, prepare, start, write_once
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    EmptySink,
    Pipeline,
    PythonStep,
    Sink,
    TopicSink,
    TopicSource,
    TriggerKind,
)
from zhumq.pipelines.status import (
    CHECKPOINTS_FOLDER,
    RunStatus,
    SinkProgress,
    State,
    StatusFile,
    timestamp,
)
from zhumq.pipelines.topics import check_broker, make_topics, retention_ms_of
from zhumq.pipelines.views import Views, build_views, function_errors, load_function
from zhumq.spark.options import DEFAULT_BOOTSTRAP
from zhumq.spark.security_options import PREFIX, security_options
from zhumq.spark.session import spark_session

POLL_SECONDS: Final = 0.2
STOP_SECONDS_MAX: Final = 120.0  # how long a batch may take to finish after a stop request
FINDINGS_SHOWN_MAX: Final = 20
FINDINGS_KEPT_MAX: Final = 10_000  # in the report, to limit memory
STOPPED_EARLY: Final = "was stopped before its end; its result is incomplete"


class PipelineFailed(ZhumqError):
    """A run that failed."""


class RowsFound(ZhumqError):
    """A view that must be empty has rows: the data is wrong, not the run."""


class Display(Protocol):
    """Shows the progress and the results of a run."""

    def update(self, status: RunStatus) -> None: ...

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None: ...

    def say(self, line: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run that do not depend on the pipeline."""

    state_dir: Path
    master: str = "local[*]"
    bootstrap: str | None = None  # overrides the one in the file; so does `security`
    security: Mapping[str, str] | None = None
    checkpoint_root: str | None = None  # on a shared file system of a cluster, e.g. hdfs://...


@dataclass(slots=True)
class StopRequest:
    """A signal handler calls ask(): once to stop after the batch, twice to stop at once."""

    asked: threading.Event = field(default_factory=threading.Event)
    hurried: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        if self.asked.is_set():
            self.hurried.set()
        self.asked.set()

    @contextmanager
    def cancelling(self, spark: SparkSession) -> Iterator[None]:
        """Cancel Spark's jobs as soon as a stop is requested: a batch run cannot be continued later."""
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                if self.asked.wait(POLL_SECONDS):
                    spark.sparkContext.cancelAllJobs()
                    # A query may start another job after the cancellation.
                    over.wait(POLL_SECONDS)

        watcher = threading.Thread(target=watch, name="stop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


@contextmanager
def pipeline_session(
    name: str, *, master: str, settings: Mapping[str, str], log: Path
) -> Iterator[SparkSession]:
    """A session whose JVM writes to a log file, not to the terminal.

    Raises PipelineFailed if Spark does not start.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    own_stderr = os.dup(2)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.dup2(descriptor, 2)
        spark = spark_session(name, master=master, settings=settings)
    except (PySparkException, Py4JError) as error:
        raise PipelineFailed(
            f"Spark does not start with the master {master!r}: {explain(error)} (see {log})"
        ) from None
    finally:
        os.dup2(own_stderr, 2)
        os.close(own_stderr)
        os.close(descriptor)
    try:
        yield spark
    finally:
        spark.stop()


def run_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    options: RunOptions,
    display: Display,
    stop: StopRequest | None = None,
) -> RunStatus:
    """Run to the end, or until it is stopped. Raises PipelineFailed, RowsFound, SpecInvalid."""
    files = StatusFile(options.state_dir, pipeline.name)
    with files.locked():
        bootstrap = options.bootstrap or pipeline.bootstrap or DEFAULT_BOOTSTRAP
        now = timestamp()
        status = RunStatus(
            name=pipeline.name, file=pipeline.file, state=State.STARTING, pid=os.getpid(),
            started_at=now, updated_at=now, bootstrap=bootstrap, master=options.master,
        )  # fmt: skip
        given = pipeline.security if options.security is None else options.security
        settings = security_options({f"{PREFIX}{name}": text for name, text in given.items()})
        brokers = Brokers(bootstrap=bootstrap, settings=settings)
        run = _Run(spark, pipeline, options, brokers, files, display, status, stop or StopRequest())
        try:
            run.carry_out()
        except BaseException as error:
            status.state = State.FAILED
            status.error = one_line(str(error)) or type(error).__name__
            run.report()
            raise
    return status


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        options: RunOptions,
        brokers: Brokers,
        files: StatusFile,
        display: Display,
        status: RunStatus,
        stop: StopRequest,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._brokers = brokers
        self._files = files
        self._display = display
        self._status = status
        self._stop = stop
        self._checkpoints = (
            f"{options.checkpoint_root.rstrip('/')}/{pipeline.name}"
            if options.checkpoint_root
            else str((files.folder / CHECKPOINTS_FOLDER).absolute())
        )
        self._context = SinkContext(
            spark=spark,
            brokers=brokers,
            trigger=pipeline.trigger,
            show=self._show,
        )

    def carry_out(self) -> None:
        self.report()
        self._make_importable()
        self._prepare_topics()
        try:
            if self._pipeline.is_stream:
                self._stream()
            else:
                with self._stop.cancelling(self._spark):
                    self._batch()
        except (PySparkException, Py4JError) as error:
            if not self._pipeline.is_stream and self._stop.asked.is_set():
                raise PipelineFailed(STOPPED_EARLY) from None
            raise PipelineFailed(explain(error)) from error
        self._status.state = State.STOPPED if self._stop.asked.is_set() else State.DONE
        self.report()
        self._print_report()

    def report(self) -> None:
        self._files.write(self._status)
        self._display.update(self._status)

    def _make_importable(self) -> None:
        """Make modules beside the pipeline file importable, here and on the workers."""
        folder = Path(self._pipeline.file).resolve().parent
        functions = [step.function for step in self._pipeline.steps if isinstance(step, PythonStep)]
        if self._pipeline.report is not None:
            functions.append(self._pipeline.report.function)
        for function in functions:
            beside = folder / f"{function.partition(':')[0].partition('.')[0]}.py"
            if beside.exists():
                if str(folder) not in sys.path:
                    sys.path.insert(0, str(folder))
                self._spark.sparkContext.addPyFile(str(beside))

    def _print_report(self) -> None:
        """Call the pipeline's own report function and print its lines."""
        report = self._pipeline.report
        if report is not None:
            function = load_function(report.function, report.mark)
            with function_errors(report.mark):
                for line in function(**report.arguments):
                    self._display.say(line)

    def _prepare_topics(self) -> None:
        pipeline, brokers = self._pipeline, self._brokers
        targets = [sink.topic for sink in pipeline.sinks if isinstance(sink, TopicSink)]
        if pipeline.dead_letters is not None:
            targets.append(pipeline.dead_letters.topic)
        reads_broker = any(
            isinstance(source, TopicSource) and "path" not in source.options
            for source in pipeline.sources
        )
        if targets or reads_broker:
            check_broker(brokers)
        make_topics(brokers, targets)

    def _stream(self) -> None:
        queries: dict[str, tuple[StreamingQuery, QueryProgress]] = {}
        planned = [(sink, *self._rows_of(sink, index)) for index, sink in enumerate(self._sinks())]
        try:
            for sink, rows, progress in planned:
                query = start(
                    sink,
                    rows,
                    self._context,
                    checkpoint=f"{self._checkpoints}/{sink.name}",
                    count=progress.count,
                )
                progress.sink.query = str(query.id)
                queries[sink.name] = (query, progress)
            self._status.state = State.RUNNING
            self.report()
            self._watch(queries)
        finally:
            for query, _ in queries.values():
                if query.isActive:
                    query.stop()

    def _sinks(self) -> list[Sink]:
        sinks = list(self._pipeline.sinks)
        if self._pipeline.dead_letters is not None:
            given = self._pipeline.dead_letters
            sinks.append(dead_letter_sink(given.topic, given.mark))
        return sinks

    def _rows_of(self, sink: Sink, index: int) -> tuple[DataFrame, QueryProgress]:
        """The rows of a sink. Each sink reads the topics on its own, and has its own lag."""
        group = self._pipeline.name if index == 0 else f"{self._pipeline.name}.{sink.name}"
        views = build_views(self._spark, self._pipeline, self._brokers, group=group)
        return self._prepared(sink, views)

    def _prepared(self, sink: Sink, views: Views) -> tuple[DataFrame, QueryProgress]:
        progress = SinkProgress(name=sink.name)
        self._status.sinks[sink.name] = progress
        return prepare(sink, _input_of(sink, views)), QueryProgress(progress)

    def _watch(self, queries: Mapping[str, tuple[StreamingQuery, QueryProgress]]) -> None:
        """Follow the queries until all have ended, one has failed, or a stop is requested.

        A sink that fails never stops another in the middle of a batch: the other queries of an
        available-now run go on to their end, and those of an interval finish their current batches.
        """
        endless = self._pipeline.trigger.kind is TriggerKind.INTERVAL
        while any(query.isActive for query, _ in queries.values()):
            self._update(queries)
            failed = any(not query.isActive for query, _ in queries.values())
            if self._stop.asked.is_set() or (endless and failed):
                self._finish(queries)
                break
            self._stop.asked.wait(POLL_SECONDS)
        self._update(queries)
        _raise_failures(queries)

    def _update(self, queries: Mapping[str, tuple[StreamingQuery, QueryProgress]]) -> None:
        changed = False
        for query, progress in queries.values():
            changed |= progress.update(query.lastProgress, partial(_recent, query))
        if changed:
            self.report()

    def _finish(self, queries: Mapping[str, tuple[StreamingQuery, QueryProgress]]) -> None:
        """Stop each query between two batches, or at the deadline."""
        self._status.state = State.STOPPING
        self.report()
        before = {name: _last_batch(query) for name, (query, _) in queries.items()}
        deadline = time.monotonic() + STOP_SECONDS_MAX
        waiting = dict(queries)
        while waiting:
            late = time.monotonic() > deadline or self._stop.hurried.is_set()
            for name, (query, _) in list(waiting.items()):
                idle = not query.isActive or not query.status["isTriggerActive"]
                if idle or late or _last_batch(query) > before[name]:
                    query.stop()
                    del waiting[name]
            self._stop.hurried.wait(POLL_SECONDS if waiting else 0)

    def _batch(self) -> None:
        run = uuid.uuid4().hex
        found: list[str] = []
        views = build_views(self._spark, self._pipeline, self._brokers, group=None)
        planned = [(sink, *self._prepared(sink, views)) for sink in self._sinks()]
        self._status.state = State.RUNNING
        self.report()
        for sink, rows, progress in planned:
            if self._stop.asked.is_set():
                raise PipelineFailed(STOPPED_EARLY)
            began = time.monotonic()
            if isinstance(sink, EmptySink):
                words = self._check_empty(sink, rows, progress)
                found += [words] if words else []
            else:
                if isinstance(sink, TopicSink) and "timestamp" in sink.keep:
                    self._warn_of_retention(sink, rows)
                progress.count(write_once(sink, rows, self._context, run=f"{run}{sink.name}"))
            progress.sink.batches = 1
            progress.sink.batch_ms = int((time.monotonic() - began) * 1000)
            self.report()
        # Steps may have cached rows for the sinks that share them.
        self._spark.catalog.clearCache()
        if found:
            raise RowsFound("; ".join(found))

    def _warn_of_retention(self, sink: TopicSink, rows: DataFrame) -> None:
        """Warn, before the records are sent, how many of them the target topic will delete as too old."""
        retention_ms = retention_ms_of(self._brokers, sink.topic)
        if retention_ms is None or "timestamp" not in rows.columns:
            return
        ends_at = F.current_timestamp() - F.make_dt_interval(secs=F.lit(retention_ms / 1000))
        (counted,) = rows.agg(
            F.count(F.lit(1)).alias("all"),
            F.count_if(F.col("timestamp") < ends_at).alias("old"),
            F.date_format(F.min("timestamp"), "yyyy-MM-dd HH:mm:ss").alias("first"),
        ).collect()
        if counted["old"]:
            self._display.say(
                f"warning: {counted['old']:,} of {counted['all']:,} records are older than {sink.topic}"
                f" keeps (retention.ms={retention_ms}; the oldest is of {counted['first']}): the broker"
                f" will delete them. To keep them: zhumq topic alter {sink.topic} --set retention.ms=-1"
            )

    def _check_empty(self, sink: EmptySink, rows: DataFrame, progress: QueryProgress) -> str | None:
        """Write the rows to the report, show the first ones, and return a summary; None if there are none."""
        kept = [row.asDict(recursive=True) for row in rows.limit(FINDINGS_KEPT_MAX).collect()]
        progress.count(len(kept))
        if sink.report is not None:
            path = Path(sink.report)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept, indent=2, default=str) + "\n")
        if not kept:
            return None
        self._display.show(sink.name, rows.columns, kept[:FINDINGS_SHOWN_MAX])
        first = ", ".join(f"{name} {value}" for name, value in kept[0].items() if value is not None)
        more = f", and {len(kept) - 1} more" if len(kept) > 1 else ""
        return f"{sink.input}: {first}{more}"

    def _show(self, rows: DataFrame, title: str, count: int) -> int:
        shown = [row.asDict(recursive=True) for row in first_rows(rows, count).collect()]
        self._display.show(title, rows.columns, shown)
        return len(shown)


def first_rows(rows: DataFrame, count: int) -> DataFrame:
    """The first rows, while every task still reads all of its rows.

    A limit alone ends the tasks early. A stateful query whose tasks end early does not save its state:
    its batch fails, and so does every later batch of its checkpoint.
    """
    place = "_place"
    numbered = rows.withColumn(place, F.monotonically_increasing_id())
    return numbered.orderBy(place).limit(count).drop(place)


def _input_of(sink: Sink, views: Views) -> DataFrame:
    if sink.name == DEAD_LETTERS:
        assert views.bad_rows is not None
        return views.bad_rows
    return views.frames[sink.input]


def _last_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _recent(query: StreamingQuery) -> Sequence[Any]:
    return query.recentProgress


def _raise_failures(queries: Mapping[str, tuple[StreamingQuery, QueryProgress]]) -> None:
    errors = {name: query.exception() for name, (query, _) in queries.items()}
    words = [
        f"sink {name}: {explain(error)}" for name, error in errors.items() if error is not None
    ]
    if words:
        raise PipelineFailed("; ".join(words))

"""Runs a pipeline: starts its queries, follows their progress, stops them cleanly, reports the result."""

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import explain, one_line
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.connect import (
    ServerCheckpoints,
    is_connect,
    reads_alone,
)
from zhumq.pipelines.failures import FailurePlaces, with_advice
from zhumq.pipelines.functions import findings_of, load_function, make_importable
from zhumq.pipelines.iceberg_spec import IcebergUnreachable
from zhumq.pipelines.jdbc_connection import JdbcUnreachable
from zhumq.pipelines.layout import layout_of
from zhumq.pipelines.progress import QueryProgress
from zhumq.pipelines.publishing import Document, document_of, publishing
from zhumq.pipelines.sharing import Reads
from zhumq.pipelines.sinks import (
    SinkContext,
    all_sinks,
    check_target,
    has_target_to_check,
    prepare,
    write_once,
)
from zhumq.pipelines.spec import (
    EmptySink,
    Pipeline,
    Sink,
    TopicSink,
    TriggerKind,
)
from zhumq.pipelines.spec_errors import function_errors
from zhumq.pipelines.starts import has_read
from zhumq.pipelines.status import (
    RunStatus,
    SinkProgress,
    State,
    StatusFile,
    checkpoints_path,
    timestamp,
)
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.pipelines.streaming import StreamCheckpoints, StreamRun, change_lines
from zhumq.pipelines.topics import check_broker, make_topics, reads_topics, retention_ms_of
from zhumq.pipelines.upkeeping import Upkeeper
from zhumq.pipelines.views import Views, build_views
from zhumq.spark.options import DEFAULT_BOOTSTRAP
from zhumq.spark.security_options import PREFIX, security_options
from zhumq.spark.session import spark_session

FINDINGS_SHOWN_MAX: Final = 20
FINDINGS_KEPT_MAX: Final = 10_000  # in the report, to limit memory
STOPPED_EARLY: Final = "was stopped before its end; its result is incomplete"


Publish = Callable[[Document], None]


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
    sink_tries_max: int | None = None  # of a sink that fails; None: as the trigger has it
    publish: bool = False  # the progress, to the topic `_pipelines` of the brokers


@contextmanager
def pipeline_session(
    name: str, *, master: str, settings: Mapping[str, str], log: Path
) -> Iterator[SparkSession]:
    """A session whose JVM writes to a log file, not to the terminal.

    Raises PipelineFailed if Spark does not start.
    """
    if is_connect(master):
        raise PipelineFailed(f"{master} is Spark Connect: only `zhumq pipeline run` works with it")
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


def brokers_of(
    pipeline: Pipeline, *, bootstrap: str | None, security: Mapping[str, str] | None
) -> Brokers:
    """The brokers of a run: the given ones, else those in the file."""
    given = pipeline.security if security is None else security
    settings = security_options({f"{PREFIX}{name}": text for name, text in given.items()})
    return Brokers(
        bootstrap=bootstrap or pipeline.bootstrap or DEFAULT_BOOTSTRAP, settings=settings
    )


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
        brokers = brokers_of(pipeline, bootstrap=options.bootstrap, security=options.security)
        now = timestamp()
        status = RunStatus(
            name=pipeline.name, file=pipeline.file, state=State.STARTING, pid=os.getpid(),
            started_at=now, updated_at=now, bootstrap=brokers.bootstrap, master=options.master,
        )  # fmt: skip
        with _publishing(options, brokers, pipeline.name, display) as publish:
            run = _Run(
                spark,
                pipeline,
                options,
                brokers,
                files,
                display,
                status,
                stop or StopRequest(),
                publish,
            )
            try:
                run.carry_out()
            except BaseException as error:
                status.state = State.FAILED
                status.error = one_line(str(error)) or type(error).__name__
                run.report()
                raise
    return status


@contextmanager
def _publishing(
    options: RunOptions, brokers: Brokers, name: str, display: Display
) -> Iterator[Publish | None]:
    if not options.publish:
        yield None
        return
    with publishing(brokers, name, display.say) as publish:
        yield publish


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
        publish: Publish | None,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._options = options
        self._brokers = brokers
        self._files = files
        self._display = display
        self._status = status
        self._stop = stop
        self._publish = publish
        self._findings: Mapping[str, Any] | None = None
        self._checkpoints = checkpoints_path(
            options.state_dir, pipeline.name, root=options.checkpoint_root
        )
        self._context = SinkContext(
            spark=spark,
            brokers=brokers,
            trigger=pipeline.trigger,
            show=self._show,
            explain=FailurePlaces(pipeline).explain,
        )

    def carry_out(self) -> None:
        self.report()
        make_importable(self._spark, self._pipeline, remote=is_connect(self._options.master))
        upkeeper = Upkeeper.of(self._pipeline, self._options.state_dir, self._display.say)
        self._prepare_topics()
        try:
            self._check_databases()
            if self._pipeline.is_stream:
                self._stream(upkeeper)
            else:
                with self._stop.cancelling(self._spark):
                    self._batch()
            if not self._stop.asked.is_set():
                upkeeper.finish()
        except JdbcUnreachable as error:
            raise PipelineFailed(str(error)) from None
        except (PySparkException, Py4JError) as error:
            if not self._pipeline.is_stream and self._stop.asked.is_set():
                raise PipelineFailed(STOPPED_EARLY) from None
            raise PipelineFailed(self._context.explain(error)) from error
        finally:
            upkeeper.close()
        self._status.state = State.STOPPED if self._stop.asked.is_set() else State.DONE
        self.report()
        self._print_report()

    def report(self) -> None:
        self._files.write(self._status)
        self._display.update(self._status)
        if self._publish is not None:
            self._publish(document_of(self._pipeline, self._status, self._findings))

    def _print_report(self) -> None:
        """Call the pipeline's own report function and print its lines."""
        report = self._pipeline.report
        if report is not None:
            function = load_function(report.function, report.mark)
            with function_errors(report.mark):
                for line in function(**report.arguments):
                    self._display.say(line)
                if self._publish is not None:
                    self._findings = findings_of(report)
                    self.report()

    def _prepare_topics(self) -> None:
        pipeline, brokers = self._pipeline, self._brokers
        targets = [sink.topic for sink in pipeline.sinks if isinstance(sink, TopicSink)]
        if pipeline.dead_letters is not None:
            targets.append(pipeline.dead_letters.topic)
        if targets or reads_topics(pipeline):
            check_broker(brokers)
        make_topics(brokers, targets)

    def _check_databases(self) -> None:
        sinks = [sink for sink in self._pipeline.sinks if has_target_to_check(sink)]
        if sinks:
            views = build_views(self._spark, self._pipeline, self._brokers, group=None)
            for sink in sinks:
                try:
                    check_target(sink, prepare(sink, views.rows_of(sink)), self._context)
                except (JdbcUnreachable, IcebergUnreachable) as error:
                    raise PipelineFailed(f"sink {sink.name}: {error}") from None

    def _stream(self, upkeeper: Upkeeper) -> None:
        # A run that comes to its end keeps up its tables there, when they have its rows.
        endless = self._pipeline.trigger.kind is TriggerKind.INTERVAL
        checkpoints, reads = self._checkpoints_and_reads()
        run = StreamRun(
            spark=self._spark,
            pipeline=self._pipeline,
            sinks=all_sinks(self._pipeline),
            brokers=self._brokers,
            context=self._context,
            checkpoints=checkpoints,
            reads=reads,
            status=self._status,
            report=self.report,
            say=self._display.say,
            stop=self._stop,
            tries_max=self._options.sink_tries_max,
            tick=upkeeper.tick if endless else lambda: None,
        )
        run.carry_out()

    def _checkpoints_and_reads(self) -> tuple[StreamCheckpoints, Callable[[], Reads]]:
        if is_connect(self._options.master):
            return ServerCheckpoints(self._checkpoints), lambda: reads_alone(self._pipeline)
        checkpoints = Checkpoints(self._spark, self._checkpoints)
        name = self._pipeline.name
        if (
            checkpoints.is_new()
            and reads_topics(self._pipeline)
            and has_read(self._pipeline, self._brokers)
        ):
            self._display.say(
                f"warning: {name}: there is no checkpoint in {checkpoints.shown('')}, and the group {name}"
                " has read messages: it begins where the file says, so sinks may get rows again or lack some."
                " If it ran from another folder or machine, stop it and give the --state-dir or"
                " --checkpoints of then"
            )

        def reads() -> Reads:
            layout = layout_of(self._spark, self._pipeline, self._brokers, checkpoints)
            layout.keep(checkpoints)
            return layout.reads

        return checkpoints, reads

    def _prepared(self, sink: Sink, views: Views) -> tuple[DataFrame, QueryProgress]:
        progress = SinkProgress(name=sink.name)
        self._status.sinks[sink.name] = progress
        return prepare(sink, views.rows_of(sink)), QueryProgress(progress)

    def _batch(self) -> None:
        run = uuid.uuid4().hex
        found: list[str] = []
        views = build_views(self._spark, self._pipeline, self._brokers, group=None)
        planned = [(sink, *self._prepared(sink, views)) for sink in all_sinks(self._pipeline)]
        self._status.state = State.RUNNING
        self.report()
        for sink, rows, progress in planned:
            if self._stop.asked.is_set():
                raise PipelineFailed(STOPPED_EARLY)
            began = time.monotonic()
            try:
                found += self._write_sink(sink, rows, progress, run=f"{run}{sink.name}")
            except (PySparkException, Py4JError) as error:
                if self._stop.asked.is_set():
                    raise
                words = with_advice(self._context.explain(error), self._pipeline, sink, None)
                raise PipelineFailed(f"sink {sink.name}: {words}") from error
            progress.add_counts(views.counters.take(rows))
            progress.add_changes(views.counters.changes)
            for line in change_lines(self._pipeline, progress.sink):
                self._display.say(line)
            progress.sink.batches = 1
            progress.sink.batch_ms = int((time.monotonic() - began) * 1000)
            self.report()
        # Steps may have cached rows for the sinks that share them.
        self._spark.catalog.clearCache()
        if found:
            raise RowsFound("; ".join(found))

    def _write_sink(
        self, sink: Sink, rows: DataFrame, progress: QueryProgress, *, run: str
    ) -> list[str]:
        """Write the rows of one sink, and return what was found that must not be there."""
        if isinstance(sink, EmptySink):
            words = self._check_empty(sink, rows, progress)
            return [words] if words else []
        if isinstance(sink, TopicSink) and "timestamp" in sink.keep:
            self._warn_of_retention(sink, rows)
        progress.count(write_once(sink, rows, self._context, run=run))
        return []

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

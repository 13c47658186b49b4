"""Pipelines: the progress that their runs publish, and the findings of inspections."""

import time
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from zhumq.admin.errors import NotFound
from zhumq.admin.pipeline_runs import PublishedRun, read_runs
from zhumq.web.brokers import Brokers
from zhumq.web.names import INT64_MAX, AnyName
from zhumq.web.paging import Page, PageQuery, page_of

LOST_MS: Final = 60_000  # without a message, which an active run sends every fifteen seconds
_ACTIVE: Final = frozenset({"starting", "running", "stopping"})
_BAD_ROWS: Final = frozenset({"bad rows", "must be empty"})

# What is published was written by any client that may write to the topic: everything has a bound.
Text = Annotated[str, Meta(max_length=1_000)]
Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Counts = Annotated[list[Count], Meta(max_length=200)]


class SinkRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink has done in this run. What Spark does not report is null."""

    name: Text
    kind: Literal["topic", "table", "console", "must be empty", "bad rows", "other"]
    target: Text  # the topic, or the path of the table
    batch: Count | None  # the last finished one
    batches: Count
    rows_in: Count
    rows_out: Count | None
    lag: Count | None  # messages of its topics that it has not read
    batch_ms: Count | None
    rate: Count | None  # rows a second of the last batch
    offsets_behind_min: Count | None = None  # over the partitions
    offsets_behind_max: Count | None = None
    offsets_behind_avg: float | None = None
    bytes_behind: Count | None = None  # estimated
    state_rows: Count | None = None  # of its stateful steps
    state_bytes: Count | None = None
    watermark: Text | None = None
    error: Text | None = None  # of a sink that fails while others go on
    rules_broken: Annotated[dict[Text, Count], Meta(max_length=100)] = {}  # rows, by step and rule


class SharedRead(msgspec.Struct, frozen=True, kw_only=True):
    """What one read for several sinks has read."""

    source: Text
    sinks: Annotated[list[Text], Meta(max_length=100)]
    rows: Count
    bytes: Count  # of keys and values


class ServiceErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of a service in each step."""

    service: Text
    counts: Counts


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """Many errors of a service in consecutive minutes."""

    service: Text
    start_ms: Count
    minutes: Count
    errors: Count
    example: Text


class FrequentError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that was often there; what varies in it is replaced."""

    count: Count
    service: Text
    template: Text


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What an inspection has found in log lines."""

    lines: Count
    levels: Annotated[dict[Text, Count], Meta(max_length=100)]
    start_ms: Count
    step_ms: Count
    errors: Annotated[list[ServiceErrors], Meta(max_length=50)]
    bursts: Annotated[list[Burst], Meta(max_length=50)]
    top_errors: Annotated[list[FrequentError], Meta(max_length=50)]


class PipelineRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a pipeline. `lost`: it was running, and has sent nothing for a minute."""

    pipeline: str
    state: Literal["starting", "running", "stopping", "done", "stopped", "failed", "lost"]
    host: str
    pid: int
    file: str
    master: str
    trigger: str
    sources: list[Text]
    started_ms: int
    updated_ms: int
    error: str | None
    lag: int | None  # of the sink that is furthest behind
    rate: int | None  # rows a second that all sinks read
    bad_rows: int  # that broke a rule
    sinks: list[SinkRun]
    reads: list[SharedRead]
    has_findings: bool


class PipelineDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a pipeline, and what its inspection has found."""

    run: PipelineRun
    findings: Findings | None


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a run publishes; fields of later versions are ignored."""

    version: Literal[1]
    state: Literal["starting", "running", "stopping", "done", "stopped", "failed"]
    host: Text
    pid: Count
    file: Text
    master: Text
    trigger: Text
    sources: Annotated[list[Text], Meta(max_length=100)]
    started_ms: Count
    error: Text | None
    sinks: Annotated[list[SinkRun], Meta(max_length=200)]
    findings: Findings | None
    reads: Annotated[list[SharedRead], Meta(max_length=100)] = []


def list_pipelines(brokers: Brokers, query: PageQuery) -> Page[PipelineRun]:
    """List the last run of each pipeline that publishes its progress.

    A run publishes with `zhumq pipeline run --publish`. The caller needs the right to read the topic `_pipelines`.
    """
    found = last_runs(brokers)
    return page_of(found, lambda each: each.pipeline, limit=query.limit, after=query.after)


def last_runs(brokers: Brokers) -> list[PipelineRun]:
    """The last run of each pipeline, by name."""
    now_ms = time.time_ns() // 1_000_000
    return [
        _run(each, document, now_ms)
        for each in read_runs(brokers.connection)
        if (document := _decoded(each)) is not None
    ]


def describe_pipeline(brokers: Brokers, pipeline: AnyName) -> PipelineDetails:
    """Show the last run of a pipeline, and what an inspection has found."""
    for each in read_runs(brokers.connection):
        document = _decoded(each) if each.pipeline == pipeline else None
        if document is not None:
            run = _run(each, document, time.time_ns() // 1_000_000)
            return PipelineDetails(run=run, findings=document.findings)
    raise NotFound(
        f"no run of the pipeline {pipeline!r} has published its progress",
        "run it with `zhumq pipeline run --publish`",
    )


def _decoded(published: PublishedRun) -> _Document | None:
    """None: it is of another version, or no run has written it."""
    try:
        return msgspec.json.decode(published.document, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _run(published: PublishedRun, document: _Document, now_ms: int) -> PipelineRun:
    is_lost = document.state in _ACTIVE and now_ms - published.time_ms > LOST_MS
    lags = [each.lag for each in document.sinks if each.lag is not None]
    rates = [each.rate for each in document.sinks if each.rate is not None]
    return PipelineRun(
        pipeline=published.pipeline,
        state="lost" if is_lost else document.state,
        host=document.host,
        pid=document.pid,
        file=document.file,
        master=document.master,
        trigger=document.trigger,
        sources=document.sources,
        started_ms=document.started_ms,
        updated_ms=max(published.time_ms, 0),
        error=document.error,
        lag=max(lags, default=None),
        rate=sum(rates) if rates else None,
        bad_rows=sum(each.rows_out or 0 for each in document.sinks if each.kind in _BAD_ROWS),
        sinks=document.sinks,
        reads=document.reads,
        has_findings=document.findings is not None,
    )

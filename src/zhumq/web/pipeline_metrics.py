"""The progress of pipelines as metrics, in the text format of Prometheus. Pure."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from zhumq.model.metric import Metric, escape_label
from zhumq.web.resources.pipelines import PipelineRun, SinkRun

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Value = int | float | None
_OF_RUN: Final = ("pipeline",)
_OF_SINK: Final = ("pipeline", "sink")
_OF_READ: Final = ("pipeline", "source")
_PREFIX: Final = "zhumq_pipeline"


def pipeline_metrics(runs: Iterable[PipelineRun]) -> list[Metric]:
    """What the last run of each pipeline has done. A counter begins at 0 with each run."""
    found = list(runs)
    return [*_of_runs(found), *_of_sinks(found), *_of_rules(found), *_of_reads(found)]


def _of_runs(runs: list[PipelineRun]) -> list[Metric]:
    def made(name: str, help_: str, value: Callable[[PipelineRun], Value]) -> Metric:
        rows = [({"pipeline": run.pipeline}, value(run)) for run in runs]
        return _metric(name, "gauge", help_, _OF_RUN, rows)

    states = [({"pipeline": run.pipeline, "state": run.state}, 1) for run in runs]
    return [
        _metric(
            "state",
            "gauge",
            "1 for the state of the last run; `lost` is one that has been silent for a minute.",
            ("pipeline", "state"),
            states,
        ),
        made(
            "updated_seconds",
            "When the last run has published its progress, in seconds since 1970.",
            lambda run: run.updated_ms / 1000,
        ),
    ]


def _of_sinks(runs: list[PipelineRun]) -> list[Metric]:
    def made(name: str, kind: str, help_: str, value: Callable[[SinkRun], Value]) -> Metric:
        rows = [
            ({"pipeline": run.pipeline, "sink": sink.name}, value(sink))
            for run in runs
            for sink in run.sinks
        ]
        return _metric(f"sink_{name}", kind, help_, _OF_SINK, rows)

    return [
        made("batches_total", "counter", "Micro-batches of this run.", lambda it: it.batches),
        made("rows_in_total", "counter", "Rows that this run has read.", lambda it: it.rows_in),
        made("rows_out_total", "counter", "Rows that this run has written.", lambda it: it.rows_out),
        made("batch_seconds", "gauge", "How long the last micro-batch took.", lambda it: _seconds(it.batch_ms)),
        made("rows_per_second", "gauge", "Rows a second of the last micro-batch.", lambda it: it.rate),
        made("lag", "gauge", "Messages of its topics that it has not read.", lambda it: it.lag),
        made("offsets_behind_min", "gauge", "Lag of the partition with the smallest one.", lambda it: it.offsets_behind_min),
        made("offsets_behind_max", "gauge", "Lag of the partition with the largest one.", lambda it: it.offsets_behind_max),
        made("offsets_behind_avg", "gauge", "Mean lag of the partitions.", lambda it: it.offsets_behind_avg),
        made("behind_bytes", "gauge", "Bytes that it has not read, estimated, in a shared read.", lambda it: it.bytes_behind),
        made("state_rows", "gauge", "Rows in the state of its steps.", lambda it: it.state_rows),
        made("state_bytes", "gauge", "Memory of the state of its steps.", lambda it: it.state_bytes),
        made("watermark_seconds", "gauge", "Its watermark, in seconds since 1970.", lambda it: _moment(it.watermark)),
        made("failing", "gauge", "1 for a sink that fails and is tried again, or was given up.", lambda it: int(it.error is not None)),
    ]  # fmt: skip


def _of_rules(runs: list[PipelineRun]) -> list[Metric]:
    rows = [
        ({"pipeline": run.pipeline, "sink": sink.name, "rule": rule}, count)
        for run in runs
        for sink in run.sinks
        for rule, count in sink.rules_broken.items()
    ]
    help_ = "Rows that broke a rule, as STEP.RULE, of those that the sink has read."
    return [_metric("rule_broken_total", "counter", help_, (*_OF_SINK, "rule"), rows)]


def _of_reads(runs: list[PipelineRun]) -> list[Metric]:
    reads = [
        ({"pipeline": run.pipeline, "source": read.source}, read)
        for run in runs
        for read in run.reads
    ]
    rows = [(labels, read.rows) for labels, read in reads]
    sizes = [(labels, read.bytes) for labels, read in reads]
    once = "of a source that several sinks share, each counted once."
    return [
        _metric("read_rows_total", "counter", f"Rows {once}", _OF_READ, rows),
        _metric("read_bytes_total", "counter", f"Bytes {once}", _OF_READ, sizes),
    ]


def _metric(
    name: str,
    kind: str,
    help_: str,
    labels: tuple[str, ...],
    rows: Iterable[tuple[Mapping[str, str], Value]],
) -> Metric:
    samples = [(_labels(given), float(value)) for given, value in rows if value is not None]
    return Metric(name=f"{_PREFIX}_{name}", kind=kind, help=help_, labels=labels, samples=samples)


def _labels(given: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{escape_label(text)}"' for name, text in given.items())
    return f"{{{inside}}}"


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _moment(text: str | None) -> float | None:
    """Anyone who may write to the topic can have written the text."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None

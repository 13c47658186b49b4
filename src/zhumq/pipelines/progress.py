"""Adds up the progress reports of the queries of a run into its status."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from zhumq.pipelines.status import SinkProgress
from zhumq.spark.ranges import TOPIC_ID_KEY, is_of_topics

NOTE: Final = "_note"  # of an observation: a text beside its counts. No rule has such a name
METRICS_PREFIX: Final = "zhumq."  # of the names of our metrics, beside those of a user's functions


class QueryProgress:
    """Adds up the progress reports of one streaming query, each of them once."""

    def __init__(self, sink: SinkProgress) -> None:
        self.sink = sink
        self._seen = -1  # the last batch that was added

    def update(
        self, last: Any | None, recent: Callable[[], Sequence[Any]], *, behind: int = 0
    ) -> bool:
        """Add the newest reports of a query, and return whether anything changed.

        `recent` is called only if reports between the last known one and `last` are missing: a query
        keeps a hundred of them, and this method is called often. `behind` is how much further a sink is behind than its query.
        """
        if last is None:
            return False
        reports = [last] if int(last["batchId"]) <= self._seen + 1 else recent()
        changed = False
        for report in reports:
            batch, rows = int(report["batchId"]), _rows_in(report)
            # An idle query reports its next batch repeatedly, without rows.
            if batch > self._seen and (rows > 0 or _has_advanced(report)):
                self._seen = batch
                self._add(batch, rows, report)
                changed = True
            self._note_source(report)
            lag = lag_of(report)
            lag = None if lag is None else lag + behind
            if lag is not None and lag != self.sink.lag:
                self.sink.lag = lag
                changed = True
        return changed

    def count(self, rows: int) -> None:
        """Add rows that a table has written, which Spark does not report."""
        self.sink.rows_out = (self.sink.rows_out or 0) + rows

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Add rows that the rules of steps have counted."""
        for name, count in counts.items():
            self.sink.counts[name] = self.sink.counts.get(name, 0) + count

    def add_changes(self, changes: Mapping[str, str]) -> None:
        """Keep what is new in the messages of steps, in words."""
        self.sink.changes.update(changes)

    def _note_source(self, report: Any) -> None:
        lags = partition_lags(report)
        if lags:
            self.sink.offsets_behind_min = min(lags)
            self.sink.offsets_behind_max = max(lags)
            self.sink.offsets_behind_avg = round(sum(lags) / len(lags), 2)
        operators = list(report["stateOperators"])
        if operators:
            self.sink.state_rows = sum(int(each["numRowsTotal"]) for each in operators)
            self.sink.state_bytes = sum(int(each["memoryUsedBytes"]) for each in operators)
        self.sink.watermark = dict(report["eventTime"]).get("watermark", self.sink.watermark)

    def _add(self, batch: int, rows: int, report: Any) -> None:
        sink = self.sink
        sink.batch = batch
        sink.batches += 1
        sink.rows_in += rows
        duration = dict(report["durationMs"]).get("triggerExecution")
        sink.batch_ms = None if duration is None else int(duration)
        sink.rate = int(rows * 1000 / sink.batch_ms) if sink.batch_ms else None
        self.add_counts(counts_of(report))
        self.add_changes(changes_of(report))
        written = int(dict(report["sink"]).get("numOutputRows", -1))
        if written >= 0:
            self.count(written)


def counts_of(report: Any) -> dict[str, int]:
    """The counts of one batch of a streaming query, as `step.name`."""
    return {
        f"{step}.{each}": int(count or 0)
        for step, row in _observed(report).items()
        for each, count in row.items()
        if each != NOTE
    }


def changes_of(report: Any) -> dict[str, str]:
    """What one batch of a streaming query has found to be new in the messages of steps, in words."""
    return {step: row[NOTE] for step, row in _observed(report).items() if row.get(NOTE)}


def _observed(report: Any) -> dict[str, Mapping[str, Any]]:
    return {
        name.removeprefix(METRICS_PREFIX): _counted(row)
        for name, row in dict(report["observedMetrics"]).items()
        if name.startswith(METRICS_PREFIX)
    }


def _counted(row: Any) -> Mapping[str, Any]:
    """The columns of an observation. Spark Connect's client takes the JSON of the row for the row: its values and its schema."""
    found: Mapping[str, Any] = row.asDict()
    if isinstance(found.get("values"), list):
        names = (each["name"] for each in found["schema"]["fields"])
        return dict(zip(names, found["values"], strict=True))
    return found


def lag_of(report: Any) -> int | None:
    """The lag of the query: how many records of its topics it has not read."""
    lags = partition_lags(report)
    return None if lags is None else sum(lags)


def partition_lags(report: Any) -> list[int] | None:
    """How many records of each partition of its topics a query has not read; None if it is not known.

    Spark takes metrics of a source in `lastProgress` only from sources on the JVM.
    """
    lags: list[int] | None = None
    for source in report["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if latest is None:
            continue
        read = end or {}
        lags = (lags or []) + [
            max(0, last - read.get(topic, {}).get(partition, 0))
            for topic, partitions in latest.items()
            for partition, last in partitions.items()
            if partition != TOPIC_ID_KEY
        ]
    return lags


def _rows_in(report: Any) -> int:
    rows = report["numInputRows"]
    if rows is None:  # Spark Connect leaves the sum to its client
        rows = sum(int(source["numInputRows"]) for source in report["sources"])
    return int(rows)


def _has_advanced(report: Any) -> bool:
    return any(source["startOffset"] != source["endOffset"] for source in report["sources"])


def _offsets(value: Any) -> Mapping[str, Mapping[str, int]] | None:
    """The offsets of a topic source as Spark reports them: a document, its text, or nothing."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if is_of_topics(value) else None

"""What the queries of a run report, gathered into its status."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zhumq.pipelines.status import SinkProgress
from zhumq.spark.ranges import TOPIC_ID_KEY


class QueryProgress:
    """Adds up the progress reports of one streaming query, each of them once."""

    def __init__(self, sink: SinkProgress) -> None:
        self.sink = sink
        self._seen = -1  # the last batch that was added up

    def hear(self, last: Any | None, recent: Callable[[], Sequence[Any]]) -> bool:
        """Take the newest reports of a query; says whether there was news.

        All the recent ones are asked for only where the last one does not follow on what is known: a
        query keeps a hundred of them, and they are looked at often.
        """
        if last is None:
            return False
        reports = [last] if int(last["batchId"]) <= self._seen + 1 else recent()
        news = False
        for report in reports:
            batch, rows = int(report["batchId"]), int(report["numInputRows"])
            # A query with nothing to do reports its next batch, again and again, with no rows.
            if batch > self._seen and (rows > 0 or _has_advanced(report)):
                self._seen = batch
                self._add(batch, rows, report)
                news = True
            lag = lag_of(report)
            if lag is not None and lag != self.sink.lag:
                self.sink.lag = lag
                news = True
        return news

    def count(self, rows: int) -> None:
        """Rows that a table says it has taken, of which Spark knows nothing."""
        self.sink.rows_out = (self.sink.rows_out or 0) + rows

    def _add(self, batch: int, rows: int, report: Any) -> None:
        sink = self.sink
        sink.batch = batch
        sink.batches += 1
        sink.rows_in += rows
        duration = dict(report["durationMs"]).get("triggerExecution")
        sink.batch_ms = None if duration is None else int(duration)
        sink.rate = int(rows * 1000 / sink.batch_ms) if sink.batch_ms else None
        written = int(dict(report["sink"]).get("numOutputRows", -1))
        if written >= 0:
            self.count(written)


def lag_of(report: Any) -> int | None:
    """How many records the topics hold beyond what the query has read."""
    lag: int | None = None
    for source in report["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if latest is None:
            continue
        read = end or {}
        behind = (
            max(0, last - read.get(topic, {}).get(partition, 0))
            for topic, partitions in latest.items()
            for partition, last in partitions.items()
            if partition != TOPIC_ID_KEY
        )
        lag = (lag or 0) + sum(behind)
    return lag


def _has_advanced(report: Any) -> bool:
    return any(source["startOffset"] != source["endOffset"] for source in report["sources"])


def _offsets(value: Any) -> Mapping[str, Mapping[str, int]] | None:
    """The offsets of a source as Spark hands them on: a document, its text, or nothing."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None

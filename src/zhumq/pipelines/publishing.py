"""Publishes the progress of a run to the topic `_pipelines`. A run waits for it only at its end."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.messages import MessageSender, NewMessage
from zhumq.admin.pipeline_runs import DOCUMENT_BYTES_MAX, TOPIC, make_topic
from zhumq.model.errors import ZhumqError
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import one_line
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    ConsoleSink,
    FilesSource,
    JdbcSource,
    MergeSink,
    Pipeline,
    Sink,
    Source,
    TableSink,
    TableSource,
    TopicSink,
    TriggerKind,
)
from zhumq.pipelines.status import RunStatus

VERSION: Final = 1
INTERVAL_SECONDS: Final = 5.0  # between two messages of a run whose progress changes
HEARTBEAT_SECONDS: Final = 15.0  # A run that is silent for much longer is lost.
CLOSE_SECONDS_MAX: Final = 20.0  # that a run waits for its last message
RETRY_SECONDS: Final = 2.0
TEXT_CHARACTERS_MAX: Final = 300
SOURCES_MAX: Final = 20
RULES_MAX: Final = 20  # of each sink
SINKS_OF_LARGE_MAX: Final = 10  # of a document that would be too large with all of them

Document = dict[str, Any]


def document_of(
    pipeline: Pipeline, status: RunStatus, findings: Mapping[str, Any] | None
) -> Document:
    """What is published of a run."""
    kinds = {each.name: _kind(each) for each in pipeline.sinks}
    if pipeline.dead_letters is not None:
        kinds[DEAD_LETTERS] = ("bad rows", pipeline.dead_letters.topic)
    interval = pipeline.trigger.interval
    is_interval = pipeline.trigger.kind is TriggerKind.INTERVAL and interval is not None
    return {
        "version": VERSION,
        "state": str(status.state),
        "host": socket.gethostname(),
        "pid": status.pid,
        "file": _cut(status.file),
        "master": _cut(status.master),
        "trigger": interval if is_interval else str(pipeline.trigger.kind),
        "sources": [_cut(_name(each)) for each in pipeline.sources[:SOURCES_MAX]],
        "started_ms": round(datetime.fromisoformat(status.started_at).timestamp() * 1000),
        "error": None if status.error is None else _cut(status.error),
        "sinks": [
            {
                "name": _cut(each.name),
                "kind": kinds.get(each.name, ("other", ""))[0],
                "target": _cut(kinds.get(each.name, ("other", ""))[1]),
                "batch": each.batch,
                "batches": each.batches,
                "rows_in": each.rows_in,
                "rows_out": each.rows_out,
                "lag": each.lag,
                "batch_ms": each.batch_ms,
                "rate": each.rate,
                "offsets_behind_min": each.offsets_behind_min,
                "offsets_behind_max": each.offsets_behind_max,
                "offsets_behind_avg": each.offsets_behind_avg,
                "bytes_behind": each.bytes_behind,
                "state_rows": each.state_rows,
                "state_bytes": each.state_bytes,
                "watermark": each.watermark,
                "error": None if each.error is None else _cut(each.error),
                "rules_broken": {
                    _cut(name): count
                    for name, count in list(each.counts.items())[:RULES_MAX]
                    if count
                },
            }
            for each in status.sinks.values()
        ],
        "reads": [
            {
                "source": each.source,
                "sinks": [_cut(name) for name in each.sinks],
                "rows": each.rows,
                "bytes": each.bytes,
            }
            for each in status.reads
        ],
        "findings": findings,
    }


def encoded(document: Document) -> bytes:
    """The message, within its bound: one that is too large goes without its findings and its last sinks."""
    raw = _json(document)
    if len(raw) > DOCUMENT_BYTES_MAX:
        sinks = document["sinks"][:SINKS_OF_LARGE_MAX]
        raw = _json({**document, "findings": None, "sinks": sinks})
    return raw


@contextmanager
def publishing(
    brokers: Brokers, name: str, say: Callable[[str], None]
) -> Iterator[Callable[[Document], None]]:
    """Gives what takes the newest progress. It is sent soon, and the last one at the end of the block.

    A failure is reported once, and the run goes on.
    """
    publisher = _Publisher(brokers, name, say)
    thread = threading.Thread(target=publisher.run, name="publishing", daemon=True)
    thread.start()
    try:
        yield publisher.put
    finally:
        publisher.end()
        thread.join(CLOSE_SECONDS_MAX)


class _Publisher:
    """One document waits at a time: a newer one replaces it."""

    def __init__(self, brokers: Brokers, name: str, say: Callable[[str], None]) -> None:
        self._brokers = brokers
        self._name = name
        self._say = say
        self._change = threading.Condition()
        self._document: Document | None = None
        self._is_new = False
        self._is_ended = False
        self._has_failed = False

    def put(self, document: Document) -> None:
        with self._change:
            self._document = document
            self._is_new = True
            self._change.notify()

    def end(self) -> None:
        with self._change:
            self._is_ended = True
            self._change.notify()

    def run(self) -> None:
        sent_at = -INTERVAL_SECONDS
        while True:
            with self._change:
                self._wait(sent_at + INTERVAL_SECONDS, until_new=False)
                self._wait(sent_at + HEARTBEAT_SECONDS, until_new=True)
                is_last = self._is_ended
                document = self._document if self._is_new or not is_last else None
                self._is_new = False
            if document is not None:
                self._send(document)
                sent_at = time.monotonic()
            if is_last:
                return

    def _wait(self, deadline: float, *, until_new: bool) -> None:
        """Wait until the deadline, or the end; with `until_new` also until there is something new."""
        while not self._is_ended and not (until_new and self._is_new):
            left = deadline - time.monotonic()
            # Before the first document there is nothing to repeat.
            if left <= 0 and self._document is not None:
                return
            self._change.wait(left if left > 0 else None)

    def _send(self, document: Document) -> None:
        # A connection for each message: they are rare, and a run may outlive every broker that it began with.
        try:
            with ClusterConnection(
                self._brokers.bootstrap,
                client_id="zhumq-pipelines",
                security=self._brokers.security(),
                retry_seconds=RETRY_SECONDS,
            ) as connection:
                make_topic(connection)
                message = NewMessage(key=self._name.encode(), value=encoded(document))
                MessageSender(connection).send(TOPIC, [message])
        except ZhumqError as reason:
            if not self._has_failed:
                self._has_failed = True
                self._say(f"progress is not published: {one_line(str(reason))}")


def _json(document: Document) -> bytes:
    # A name may have half a surrogate pair, which UTF-8 cannot hold.
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace")


def _kind(sink: Sink) -> tuple[str, str]:
    match sink:
        case TopicSink():
            return "topic", sink.topic
        case TableSink() | MergeSink():
            return "table", sink.path
        case ConsoleSink():
            return "console", ""
        case _:
            return "must be empty", sink.report or ""


def _name(source: Source) -> str:
    if isinstance(source, TableSource | FilesSource):
        return source.path
    if isinstance(source, JdbcSource):
        return source.what
    names = ("subscribe", "subscribePattern", "path")
    return next((source.options[each] for each in names if each in source.options), source.name)


def _cut(text: str) -> str:
    return text[:TEXT_CHARACTERS_MAX]

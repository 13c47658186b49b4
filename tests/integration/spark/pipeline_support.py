"""Runs pipelines in the session of the tests, and keeps their output for assertions."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import SparkSession

from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.runner import RunOptions, run_pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import RunStatus, StatusFile
from zhumq.pipelines.stopping import StopRequest

READ_SECONDS_MAX = 60.0


class KeptDisplay:
    """A display that keeps its tables, lines and status."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.lines: list[str] = []
        self.updated = threading.Condition()
        self.status: RunStatus | None = None

    def update(self, status: RunStatus) -> None:
        with self.updated:
            self.status = status
            self.updated.notify_all()

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
        self.tables.setdefault(title, []).extend(rows)

    def say(self, line: str) -> None:
        self.lines.append(line)


class Pipelines:
    """Runs pipeline files against one broker, with everything in one folder."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.display = KeptDisplay()

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def run(
        self,
        file: str,
        *,
        stop: StopRequest | None = None,
        state: str = "state",
        tries: int = 1,
        **values: str,
    ) -> RunStatus:
        self.display = KeptDisplay()
        pipeline = load_pipeline(find_pipeline(file), values)
        options = RunOptions(
            state_dir=self.folder / state,
            master="local[2]",
            bootstrap=self.bootstrap,
            sink_tries_max=tries,
        )
        return run_pipeline(self.spark, pipeline, options, self.display, stop)

    def last_status(self, name: str) -> RunStatus:
        status = StatusFile(self.folder / "state", name).read()
        assert status is not None
        return status


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """Everything in a topic, partition by partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    known = admin.list_topics(topic, timeout=30).topics[topic].partitions
    ends = {
        place: future.result(30).offset
        for place, future in admin.list_offsets(
            {TopicPartition(topic, number): OffsetSpec.latest() for number in known}
        ).items()
    }
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, place.partition, 0) for place in ends])
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(found) < sum(ends.values()):
            assert time.monotonic() < deadline, f"of {topic}, only {len(found)} records came"
            # The consumer would wait for a larger number.
            batch = consumer.consume(sum(ends.values()) - len(found), timeout=0.5)
            assert all(message.error() is None for message in batch)
            found += batch
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def headers_of(message: Message) -> Mapping[str, str]:
    pairs: Any = message.headers() or []
    return {name: value.decode() for name, value in pairs}

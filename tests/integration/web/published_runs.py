"""Progress of pipelines as runs publish it, for tests of what shows it."""

from typing import Any

import confluent_kafka

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.pipeline_runs import TOPIC, make_topic

SECONDS_MAX = 60.0
MINUTE_MS = 60_000
NOON_MS = 1_767_268_800_000
SINK: dict[str, Any] = {
    "name": "counts",
    "kind": "table",
    "target": "tables/shop-inspected",
    "batch": 7,
    "batches": 8,
    "rows_in": 120_000,
    "rows_out": 3_400,
    "lag": 250,
    "batch_ms": 1_800,
    "rate": 41_000,
    "state_rows": 70,
    "state_bytes": 2_048,
    "watermark": "2026-01-01T12:00:00.000Z",
    "rules_broken": {"good.positive": 12},
}
FINDINGS: dict[str, Any] = {
    "lines": 119_000,
    "levels": {"ERROR": 420, "WARN": 900, "INFO": 117_680},
    "start_ms": NOON_MS,
    "step_ms": MINUTE_MS,
    "errors": [
        {"service": "checkout", "counts": [0, 2, 1, 60, 80, 3, 0, 1, 0, 2]},
        {"service": "payments", "counts": [1, 0, 0, 12, 30, 44, 2, 0, 1, 0]},
        {"service": "search", "counts": [3, 3, 2, 4, 3, 2, 3, 4, 2, 3]},
    ],
    "bursts": [
        {
            "service": "checkout",
            "start_ms": NOON_MS + 3 * MINUTE_MS,
            "minutes": 2,
            "errors": 140,
            "example": "no answer of payments within 3 s",
        }
    ],
    "top_errors": [
        {"count": 140, "service": "checkout", "template": "no answer of payments within <n> s"},
        {"count": 80, "service": "payments", "template": "connection <id> was reset"},
    ],
}
RUN: dict[str, Any] = {
    "version": 1,
    "state": "done",
    "host": "spark-1",
    "pid": 4711,
    "file": "inspect.yml",
    "master": "local[*]",
    "trigger": "available-now",
    "sources": ["shop-logs"],
    "started_ms": NOON_MS,
    "error": None,
    "sinks": [
        SINK,
        {**SINK, "name": "alerts", "kind": "topic", "target": "shop-alerts", "lag": 10},
        {**SINK, "name": "dead_letters", "kind": "bad rows", "target": "shop.dlq", "rows_out": 37},
    ],
    "reads": [
        {"source": "logs", "sinks": ["counts", "dead_letters"], "rows": 60_000, "bytes": 900_000}
    ],
    "findings": FINDINGS,
}


def write(bootstrap: str, name: str, value: bytes | None, time_ms: int | None = None) -> None:
    """Write a message to the topic of progress, which is created if it is not there."""
    with ClusterConnection(bootstrap) as connection:
        make_topic(connection)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    given: dict[str, Any] = {} if time_ms is None else {"timestamp": time_ms}
    producer.produce(TOPIC, value, key=name.encode(), **given)
    assert producer.flush(SECONDS_MAX) == 0

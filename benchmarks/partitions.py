"""Measures ten thousand partitions on one broker: creation, writes, a restart."""

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.loaders import Figures, first_acknowledged_ns, latency, produce
from benchmarks.report import Row
from benchmarks.server import API_VERSIONS_V0, Prepared, Server

PARTITIONS = 10_000
ONE_REQUEST_MAX = 5_000  # Kafka refuses to create 10,000 with one request
CREATE_WAIT_S = 300.0
PROBE_PAUSE_S = 0.002
PROBE_WAIT_S = 120.0
LATENCY_RATE = 1_000
LOG_LEVEL_ERROR = 3
TOPIC = "bench-wide"
NARROW = "bench-narrow"
NAME = "10,000 partitions on one broker"


@dataclass(slots=True)
class Probe:
    """A second client that measures how long the broker does not answer a small request."""

    longest_s: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    def run(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PROBE_WAIT_S) as connection:
            while not self.done.wait(PROBE_PAUSE_S):
                began = time.monotonic()
                connection.sendall(API_VERSIONS_V0)
                size = int.from_bytes(_receive(connection, 4))
                _receive(connection, size)
                self.longest_s = max(self.longest_s, time.monotonic() - began)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return data


@contextmanager
def probing(bootstrap: str) -> Iterator[Probe]:
    probe = Probe()
    thread = threading.Thread(target=probe.run, args=(bootstrap,), daemon=True)
    thread.start()
    try:
        yield probe
    finally:
        probe.done.set()
        thread.join()


def create(server: Server, topic: str, partitions: int) -> float:
    """Seconds until every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": LOG_LEVEL_ERROR})
    began = time.monotonic()
    limits = {"operation_timeout": CREATE_WAIT_S, "request_timeout": CREATE_WAIT_S}
    count = min(partitions, ONE_REQUEST_MAX)
    admin.create_topics([NewTopic(topic, count, 1)], **limits)[topic].result()
    while count < partitions:
        count = min(partitions, count + ONE_REQUEST_MAX)
        admin.create_partitions([NewPartitions(topic, count)], **limits)[topic].result()
    while True:
        found = admin.list_topics(topic, timeout=CREATE_WAIT_S).topics[topic].partitions
        if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
            return time.monotonic() - began
        if time.monotonic() - began > CREATE_WAIT_S:
            raise TimeoutError(f"{topic} got no leaders on {server.name}")
        time.sleep(0.02)


def many_partitions(
    prepared: Prepared, *, partitions: int = PARTITIONS, latency_seconds: int = 5
) -> Figures:
    """The figures of one server on an empty folder."""
    with prepared.start() as server:
        create(server, NARROW, 1)
        alone = latency(server, NARROW, rate=LATENCY_RATE, seconds=latency_seconds)
        with probing(server.bootstrap) as probe:
            created = create(server, TOPIC, partitions)
        idle_rss = server.rss_bytes()
        produce(server, TOPIC, partitions=partitions, count=partitions, size=100, acks=1)
        written_rss = server.rss_bytes()
        time.sleep(1.0)
        before = server.cpu_seconds()
        time.sleep(3.0)
        idle_cpu = (server.cpu_seconds() - before) / 3.0
        create(server, f"{NARROW}-2", 1)
        among = latency(server, f"{NARROW}-2", rate=LATENCY_RATE, seconds=latency_seconds)
    began_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    with prepared.launch() as server:
        acknowledged_ns = first_acknowledged_ns(server, NARROW)
        restarted_rss = server.rss_bytes()
    return {
        "create_seconds": created,
        "stall_ms": probe.longest_s * 1e3,
        "rss_mb_empty": idle_rss / 1e6,
        "rss_mb_written": written_rss / 1e6,
        "idle_cpu_percent": idle_cpu * 100,
        "p99_ms_alone": alone["p99_ms"],
        "p99_ms_among_many": among["p99_ms"],
        "restart_seconds": (acknowledged_ns - began_ns) / 1e9,
        "rss_mb_restarted": restarted_rss / 1e6,
    }


def measure_partitions(
    names: Sequence[str], prepare: Mapping[str, Callable[[Path], Prepared]], *, quick: bool
) -> Row:
    """One row, measured once: it takes long, and its differences are large."""
    partitions = PARTITIONS // 10 if quick else PARTITIONS
    row = Row(
        name=NAME if not quick else f"{partitions} partitions on one broker",
        main="restart_seconds",
        also=(
            "create_seconds",
            "stall_ms",
            "rss_mb_written",
            "rss_mb_restarted",
            "p99_ms_among_many",
        ),
        notes="restart to the first acknowledged record; stall: the longest time without an answer"
        " while they are made; p99: end to end at 1 k messages/s beside them",
    )
    for name in names:
        with tempfile.TemporaryDirectory(prefix="zhumq-bench-") as folder:
            figures = many_partitions(prepare[name](Path(folder)), partitions=partitions)
        row.runs[name] = [figures]
    return row

"""The benchmark cases: each loads one server once and returns its figures."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from benchmarks.loaders import (
    Figures,
    consume,
    first_acknowledged_ns,
    latency,
    one_record_requests,
    produce,
    transact,
)
from benchmarks.server import Measured, Prepared

GB = 1e9
IDLE_SETTLE_S = 3.0  # idle memory is read this long after the first record
IDLE_WATCH_S = 2.0
ADMIN_WAIT_S = 30.0
TRANSACTION_STATE = "__transaction_state"
LOG_LEVEL_ERROR = 3  # syslog's number, as librdkafka counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table. `main` names the figure of the ratio, `also` the figures shown below it."""

    name: str
    run: Callable[[Measured], Figures]
    main: str
    also: tuple[str, ...] = ()
    # From performance.md: the figure of a throwaway prototype of this design, in the unit of `floor_figure`.
    floor_figure: str = ""
    floor: float = 0.0
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much each case moves. Many short runs in turn compare two trees better than a few long ones."""

    divisor: int = 1

    def of(self, full: int) -> int:
        return full // self.divisor


@contextmanager
def topic_on(
    server: Measured,
    partitions: int,
    config: Mapping[str, str] | None = None,
    *,
    replicas: int = 1,
) -> Iterator[str]:
    """A topic with a leader for each partition, deleted at the end so that the disk does not fill."""
    settings = {"bootstrap.servers": server.bootstrap, "log_level": LOG_LEVEL_ERROR}
    if server.ca_file:
        settings |= {"security.protocol": "SSL", "ssl.ca.location": server.ca_file}
    admin = AdminClient(settings)
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    created = admin.create_topics(
        [NewTopic(topic, partitions, replicas, config=dict(config or {}))],
        operation_timeout=ADMIN_WAIT_S,
    )
    created[topic].result()
    deadline = time.monotonic() + ADMIN_WAIT_S
    while True:
        found = admin.list_topics(topic, timeout=ADMIN_WAIT_S).topics[topic].partitions
        if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} got no leaders on {server.name}")
        time.sleep(0.02)
    try:
        yield topic
    finally:
        admin.delete_topics([topic], operation_timeout=ADMIN_WAIT_S)[topic].result()


def per_unit(server: Measured, body: Callable[[], Figures]) -> Figures:
    """Run a load and add the server's CPU seconds, per GB and per million."""
    os.sync()  # dirty pages of earlier runs would slow this one down
    before = server.cpu_seconds()
    figures = body()
    used = server.cpu_seconds() - before
    count = figures.get("messages", figures.get("requests", 0.0))
    figures |= {
        "server_cpu_seconds": used,
        "server_cores": used / figures["seconds"],
        "per_second": count / figures["seconds"],
        "cpu_s_per_million": used / count * 1e6,
        "per_core_second": count / used if used else 0.0,
    }
    if "bytes" in figures:
        figures["mb_per_second"] = figures["bytes"] / figures["seconds"] / 1e6
        figures["cpu_s_per_gb"] = used / figures["bytes"] * GB
    return figures


def producing(
    count: int, size: int, acks: int, partitions: int = 1, kafka: Mapping[str, str] | None = None
) -> Callable[[Measured], Figures]:
    def run(server: Measured) -> Figures:
        config = kafka if server.name == "kafka" else None
        with topic_on(server, partitions, config) as topic:
            return per_unit(
                server,
                lambda: produce(
                    server, topic, partitions=partitions, count=count, size=size, acks=acks
                ),
            )

    return run


def consuming(count: int, size: int, partitions: int = 1) -> Callable[[Measured], Figures]:
    def run(server: Measured) -> Figures:
        with topic_on(server, partitions) as topic:
            produce(server, topic, partitions=partitions, count=count, size=size, acks=1)
            return per_unit(
                server, lambda: consume(server, topic, partitions=partitions, count=count)
            )

    return run


def requesting(
    count: int, connections: int, in_flight: int, acks: int, kafka: Mapping[str, str] | None = None
) -> Callable[[Measured], Figures]:
    def run(server: Measured) -> Figures:
        config = kafka if server.name == "kafka" else None
        with topic_on(server, 1, config) as topic:
            return per_unit(
                server,
                lambda: one_record_requests(
                    server,
                    topic,
                    connections=connections,
                    in_flight=in_flight,
                    count=count,
                    acks=acks,
                ),
            )

    return run


def end_to_end(rate: int, seconds: int) -> Callable[[Measured], Figures]:
    def run(server: Measured) -> Figures:
        with topic_on(server, 1) as topic:
            os.sync()
            before = server.cpu_seconds()
            figures = latency(server, topic, rate=rate, seconds=seconds)
            figures["server_cpu_seconds"] = server.cpu_seconds() - before
            return figures

    return run


@contextmanager
def flushed_state(server: Measured) -> Iterator[None]:
    """Kafka writes the state of transactions to the disk before it answers, as zhumq does."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": LOG_LEVEL_ERROR})

    def alter(value: str | None) -> None:
        kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry("flush.messages", value, incremental_operation=kind)
        topic = ConfigResource.Type.TOPIC
        state = ConfigResource(topic, TRANSACTION_STATE, incremental_configs=[entry])
        admin.incremental_alter_configs([state])[state].result()

    alter("1")
    try:
        yield
    finally:
        alter(None)


def transacting(
    transactions: int, messages: int, producers: int, *, on_disk: bool = False
) -> Callable[[Measured], Figures]:
    """Transactions of so many messages of 100 B, by several producers at once. `on_disk`: Kafka flushes, too."""

    def run(server: Measured) -> Figures:
        flushes = on_disk and server.name == "kafka"

        def load(topic: str, count: int) -> Figures:
            return transact(
                server,
                topic,
                producers=producers,
                transactions=max(count, producers * 2),
                messages=messages,
                size=100,
            )

        with topic_on(server, producers, {"flush.messages": "1"} if flushes else None) as topic:
            if flushes:
                load(topic, 0)  # makes the topic of the states
            with flushed_state(server) if flushes else nullcontext():
                figures = per_unit(server, lambda: load(topic, transactions))
        commits = figures["transactions"]
        figures["commits_per_second"] = commits / figures["seconds"]
        figures["cpu_ms_per_commit"] = figures["server_cpu_seconds"] / commits * 1e3
        return figures

    return run


def start_and_idle(prepared: Prepared) -> Figures:
    """A new server on an empty folder: until its first acknowledged record, then its idle memory."""
    began_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    with prepared.launch() as server:
        acknowledged_ns = first_acknowledged_ns(server, "bench-first")
        time.sleep(IDLE_SETTLE_S)
        before = server.cpu_seconds()
        time.sleep(IDLE_WATCH_S)
        return {
            "start_seconds": (acknowledged_ns - began_ns) / 1e9,
            "idle_rss_mb": server.rss_bytes() / 1e6,
            "idle_cpu_percent": (server.cpu_seconds() - before) / IDLE_WATCH_S * 100,
        }


def cases(sizes: Sizes) -> list[Case]:
    on_disk = {"flush.messages": "1"}
    return [
        # Latency comes first: the gigabytes that later cases delete keep the disk busy for a while.
        Case(
            name="end to end at 1 k messages/s",
            run=end_to_end(1000, max(2, sizes.of(10))),
            main="p50_ms",
            also=("p99_ms", "p999_ms"),
            floor_figure="p50_ms", floor=0.3,
        ),
        Case(
            name="produce 100 B, acks 1",
            run=producing(sizes.of(3_000_000), 100, 1),
            main="per_second",
            floor_figure="cpu_s_per_million", floor=0.11,
        ),
        Case(
            name="produce 1 KB, acks 1",
            run=producing(sizes.of(1_000_000), 1000, 1),
            main="per_second",
            floor_figure="cpu_s_per_gb", floor=0.8,
        ),
        Case(
            name="produce 1 KB, acks 1, 16 partitions",
            run=producing(sizes.of(1_000_000), 1000, 1, partitions=16),
            main="per_second",
        ),
        Case(
            name="produce 1 KB, acks 1, 100 partitions",
            run=producing(sizes.of(1_000_000), 1000, 1, partitions=100),
            main="per_second",
        ),
        Case(
            name="produce 1 KB, acks -1",
            run=producing(sizes.of(1_000_000), 1000, -1),
            main="per_second",
            notes="zhumq answers after fdatasync, Kafka from memory",
        ),
        Case(
            name="produce 1 KB, acks -1, both on disk",
            run=producing(sizes.of(300_000), 1000, -1, kafka=on_disk),
            main="per_second",
            notes="Kafka with flush.messages=1",
        ),
        Case(
            name="consume 1 KB",
            run=consuming(sizes.of(2_000_000), 1000),
            main="per_second",
            floor_figure="cpu_s_per_gb", floor=0.2,
        ),
        Case(
            name="one-record requests, 64 x 1 in flight, acks 1",
            run=requesting(sizes.of(200_000), 64, 1, 1),
            main="per_core_second",
            also=("per_second",),
            floor_figure="cpu_s_per_million", floor=20.0,
        ),
        Case(
            name="one-record requests, 64 x 16 in flight, acks 1",
            run=requesting(sizes.of(500_000), 64, 16, 1),
            main="per_core_second",
            also=("per_second",),
            floor_figure="cpu_s_per_million", floor=9.5,
        ),
        Case(
            name="one-record requests, 64 x 16 in flight, acks -1",
            run=requesting(sizes.of(200_000), 64, 16, -1),
            main="per_second",
            notes="zhumq answers after fdatasync, Kafka from memory; the prototype did 118 k/s",
        ),
        *(
            Case(
                name=f"transactions of {messages:,} messages",
                run=transacting(sizes.of(transactions), messages, producers),
                main="commits_per_second",
                also=("cpu_ms_per_commit", "p99_ms"),
                notes="p99 end to end at read_committed; zhumq answers after fdatasync, Kafka from memory",
            )
            for messages, transactions, producers in ((1, 10_000, 32), (100, 5_000, 16), (10_000, 200, 4))
        ),
        Case(
            name="transactions of 100 messages, both on disk",
            run=transacting(sizes.of(2_000), 100, 16, on_disk=True),
            main="commits_per_second",
            also=("cpu_ms_per_commit", "p99_ms"),
            notes="Kafka with flush.messages=1, for its __transaction_state as well",
        ),
    ]  # fmt: skip

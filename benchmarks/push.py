"""Measures push delivery to one consumer: throughput of small messages, latency at 1,000 a second."""

import asyncio
import threading
import time
from pathlib import Path

import uvloop
from confluent_kafka import Producer as Librdkafka
from rich.console import Console

from benchmarks.cases import Sizes, topic_on
from benchmarks.loaders import Figures, produce
from benchmarks.report import Row, number
from benchmarks.server import Measured
from benchmarks.zhumq_server import prepare_zhumq
from zhumq import PushConsumer

THROUGHPUT = "push 100 B to one consumer, batches"
LATENCY = "push latency at 1 k messages/s"
MESSAGES = 2_000_000
RATE = 1_000
SECONDS = 20
CREDITS = 100_000
MESSAGE_BYTES = 100
GOAL = "goal: at least 200 k messages/s, p99 at most 5 ms"


async def _throughput(server: Measured, topic: str, count: int) -> Figures:
    async with PushConsumer(
        topic, group=f"bench-{topic}", mode="psb", bootstrap=server.bootstrap, credits=CREDITS
    ) as consumer:
        cpu, client_cpu, began = server.cpu_seconds(), time.process_time(), time.perf_counter()
        seen = 0
        async for batch in consumer.batches():
            seen += len(batch.messages)  # decodes every message, as a program does
            if seen >= count:
                break
        await consumer.flush()
        took = time.perf_counter() - began
    return {
        "per_second": seen / took,
        "server_cores": (server.cpu_seconds() - cpu) / took,
        "server_cpu_s_per_million": (server.cpu_seconds() - cpu) / seen * 1e6,
        "client_cpu_s_per_million": (time.process_time() - client_cpu) / seen * 1e6,
    }


async def _latency(server: Measured, topic: str, seconds: int) -> Figures:
    """The time from the send call to the handler, in one process with one clock."""
    delays: list[float] = []
    count = RATE * seconds
    async with PushConsumer(
        topic, group=f"bench-{topic}", mode="psb", bootstrap=server.bootstrap
    ) as consumer:
        sender = threading.Thread(target=_send_evenly, args=(server.bootstrap, topic, count))
        sender.start()
        async for message in consumer:
            delays.append(time.perf_counter() - float(message.value or b"0"))
            if len(delays) == count:
                break
        await asyncio.to_thread(sender.join)
    delays = sorted(delays[RATE:])  # the first second is warm-up
    return {
        f"p{name}_ms": delays[int(len(delays) * share)] * 1e3
        for name, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))
    }


def _send_evenly(bootstrap: str, topic: str, count: int) -> None:
    producer = Librdkafka({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 3})
    began = time.perf_counter()
    for sent in range(count):
        due = began + sent / RATE
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        producer.produce(topic, repr(time.perf_counter()).encode())
        producer.poll(0)
    producer.flush()


def measure_push(
    only: str, sizes: Sizes, repetitions: int, folder: Path, console: Console
) -> list[Row]:
    """Both rows, for zhumq alone: Kafka does not push."""
    rows = [
        Row(
            name=THROUGHPUT,
            main="per_second",
            also=("server_cpu_s_per_million", "client_cpu_s_per_million"),
            notes=GOAL,
        ),
        Row(name=LATENCY, main="p50_ms", also=("p99_ms", "p999_ms"), notes=GOAL),
    ]
    rows = [row for row in rows if only in row.name]
    if not rows:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    with prepare_zhumq(folder).start() as server:
        for _ in range(repetitions):
            for row in rows:
                with topic_on(server, 1) as topic:
                    figures = _measure(row.name, server, topic, sizes)
                row.runs.setdefault(server.name, []).append(figures)
                console.print(f"  {row.name}: {row.main} {number(figures[row.main])}", style="dim")
        server.stop()
    return rows


def _measure(name: str, server: Measured, topic: str, sizes: Sizes) -> Figures:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if name == LATENCY:
            return runner.run(_latency(server, topic, max(sizes.of(SECONDS), 3)))
        count = sizes.of(MESSAGES)
        produce(server, topic, partitions=1, count=count, size=MESSAGE_BYTES, acks=1)
        return runner.run(_throughput(server, topic, count))

"""Lookup by key over many messages on disk: percentiles beside a scan, size and CPU of the index; `make lookup`."""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka

from benchmarks.cluster_size import cpu_seconds
from zhumq import Admin
from zhumq.admin.settings import alter_topic_settings
from zhumq.testing.process import BrokerProcess, broker_process

TOPIC: Final = "lookup"
PLAIN_TOPIC: Final = "plain"  # without an index
INDEXED_TOPIC: Final = "indexed"
PAIR_MESSAGES: Final = 100_000
VALUE_BYTES: Final = 60
SEED: Final = 20261117
COLD_LOOKUPS: Final = 200
PAUSE_SECONDS: Final = 0.5
WAIT_SECONDS: Final = 60.0
P99_MS_MAX: Final = 20.0


def key_of(number: int) -> bytes:
    return b"key-%010d" % number


def fill(bootstrap: str, messages: int, keys: int, *, topic: str = TOPIC) -> None:
    """Produce the messages, each with a key drawn at random."""
    draw = random.Random(SEED)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 20,
            "batch.size": 200_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    value = draw.randbytes(VALUE_BYTES)
    for number in range(messages):
        key = key_of(draw.randrange(keys))
        while True:
            try:
                producer.produce(topic, value, key=key)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(10 * WAIT_SECONDS)
    if left:
        raise RuntimeError(f"{left} messages were not taken in time")


def wait_for_index(broker: BrokerProcess) -> None:
    """Wait until everything is indexed."""
    done = b"\nzhumq_key_index_lag 0\n"
    while True:
        with urllib.request.urlopen(f"http://{broker.http}/metrics") as answer:
            if done in answer.read():
                return
        time.sleep(PAUSE_SECONDS)


def rss_mb(pid: int) -> int:
    return status_mb(pid, "VmRSS")


def status_mb(pid: int, field: str) -> int:
    """A size in /proc/PID/status: VmRSS is the resident memory, VmHWM the most of it so far, RssAnon without pages of files."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith(f"{field}:")
    )
    return int(line.split()[1]) // 1024


def index_files(broker: BrokerProcess) -> list[Path]:
    return sorted(broker.data_dir.glob(f"{TOPIC}-*/*.keyindex"))


def forget_pages(paths: Sequence[Path]) -> None:
    """Drop the pages of these files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def timed(name: str, pid: int, lookups: Iterator[Callable[[], object]]) -> list[float]:
    """The milliseconds of each lookup, sorted; prints them with the CPU of the broker."""
    taken: list[float] = []
    cpu = cpu_seconds(pid)
    for lookup in lookups:
        begun = time.perf_counter()
        lookup()
        taken.append((time.perf_counter() - begun) * 1e3)
    taken.sort()
    cpu_ms = (cpu_seconds(pid) - cpu) / len(taken) * 1e3
    p50, p99 = (taken[int(len(taken) * share)] for share in (0.5, 0.99))
    print(f"{name:34} {len(taken):6} {p50:9.2f} {p99:9.2f} {taken[-1]:9.2f} {cpu_ms:9.2f}")
    return taken


def scan_seconds(bootstrap: str, messages: int, sought: bytes) -> float:
    """How long a consumer takes that reads everything to find a key."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "scan", "auto.offset.reset": "earliest"}
    )
    begun = time.perf_counter()
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    seen = found = 0
    while seen < messages:
        for message in consumer.consume(10_000, WAIT_SECONDS):
            seen += 1
            found += message.key() == sought
    consumer.close()
    return time.perf_counter() - begun


def measure(broker: BrokerProcess, messages: int, keys: int, lookups: int, *, scans: bool) -> bool:
    """Fill, index, look up. True if the goal is met."""
    draw = random.Random(SEED + 1)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1, settings={"retention.ms": "-1"})
        begun = time.perf_counter()
        fill(broker.bootstrap, messages, keys)
        log_bytes = sum(path.stat().st_size for path in broker.data_dir.glob(f"{TOPIC}-0/*.log"))
        print(
            f"{messages:,} messages of {keys:,} keys in {time.perf_counter() - begun:.0f} s,"
            f" {log_bytes / 1e6:,.0f} MB"
        )
        cpu, rss, begun = cpu_seconds(broker.pid), rss_mb(broker.pid), time.perf_counter()
        alter_topic_settings(admin, TOPIC, {"index.keys": "true"})
        wait_for_index(broker)
        cpu = cpu_seconds(broker.pid) - cpu
        files = index_files(broker)
        size = sum(path.stat().st_size for path in files)
        print(
            f"index: {len(files)} files, {size / 1e6:,.0f} MB, {size / messages:.1f} bytes and"
            f" {cpu / messages * 1e6:.2f} us of CPU per message, built in"
            f" {time.perf_counter() - begun:.0f} s; memory {rss} MB before,"
            f" {rss_mb(broker.pid)} MB after"
        )
        everything = [*files, *broker.data_dir.glob(f"{TOPIC}-0/*.log")]

        def all_of(count: int, *, is_cold: bool = False) -> Iterator[Callable[[], object]]:
            for _ in range(count):
                key = key_of(draw.randrange(keys))
                if is_cold:
                    forget_pages(everything)
                yield partial(admin.lookup, TOPIC, key=key)

        def newest_of(count: int) -> Iterator[Callable[[], object]]:
            for _ in range(count):
                key = key_of(draw.randrange(keys))
                yield partial(admin.lookup, TOPIC, key=key, limit=1)

        def unknown(count: int) -> Iterator[Callable[[], object]]:
            for number in range(count):
                yield partial(admin.lookup, TOPIC, key=f"unknown {number}")

        print(f"{'lookups, ms':34} {'count':>6} {'p50':>9} {'p99':>9} {'max':>9} {'CPU':>9}")
        timed("the first ones", broker.pid, all_of(lookups // 10))
        warm = timed("all messages of a key", broker.pid, all_of(lookups))
        timed("the newest message of a key", broker.pid, newest_of(lookups))
        timed("a key that does not exist", broker.pid, unknown(lookups))
        cold = all_of(min(lookups, COLD_LOOKUPS), is_cold=True)
        timed("all of a key, page cache dropped", broker.pid, cold)
        if scans:
            seconds = scan_seconds(broker.bootstrap, messages, key_of(1))
            print(f"a consumer that reads everything: {seconds * 1e3:,.0f} ms")
            alter_topic_settings(admin, TOPIC, {"index.keys": "false"})
            alter_topic_settings(admin, TOPIC, {"index.keys": "true"})
            begun = time.perf_counter()
            early = admin.lookup(TOPIC, key=key_of(1))
            print(
                f"a lookup while the index is built: {(time.perf_counter() - begun) * 1e3:,.0f} ms,"
                f" {early.scanned:,} offsets were scanned"
            )
    return warm[int(len(warm) * 0.99)] < P99_MS_MAX


def compare_producing(broker: BrokerProcess, pairs: int) -> None:
    """Produce in turn to a topic without an index and to one with it, until the last message is acknowledged."""
    with Admin(broker.bootstrap) as admin:
        for topic, is_indexed in ((PLAIN_TOPIC, "false"), (INDEXED_TOPIC, "true")):
            admin.create_topic(topic, partitions=1, settings={"index.keys": is_indexed})
    ratios: list[float] = []
    for number in range(-1, pairs):
        seconds: dict[str, float] = {}
        order = (PLAIN_TOPIC, INDEXED_TOPIC)
        for topic in order if number % 2 else reversed(order):
            begun = time.perf_counter()
            fill(broker.bootstrap, PAIR_MESSAGES, PAIR_MESSAGES, topic=topic)
            seconds[topic] = time.perf_counter() - begun
            wait_for_index(broker)
        if number >= 0:  # The first pair warms up.
            ratios.append(seconds[INDEXED_TOPIC] / seconds[PLAIN_TOPIC])
    ratios.sort()
    low, high = ratios[pairs // 4], ratios[pairs * 3 // 4]
    print(
        f"producing {PAIR_MESSAGES:,} messages to a topic with an index takes {statistics.median(ratios):.3f} times as"
        f" long as to one without (median of {pairs} pairs; half of them {low:.3f} to {high:.3f})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=0, help="default: a fifth of the messages")
    parser.add_argument("--lookups", type=int, default=2_000)
    parser.add_argument("--no-scan", action="store_true", help="leave out the scan beside it")
    parser.add_argument(
        "--pairs", type=int, default=0, help="only compare producing with and without an index"
    )
    parser.add_argument("--folder", type=Path, help="where the data goes; default: a temporary one")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="zhumq-lookup-", dir=given.folder) as folder,
        broker_process(Path(folder) / "data") as broker,
    ):
        if given.pairs:
            compare_producing(broker, given.pairs)
            return 0
        is_met = measure(
            broker,
            given.messages,
            given.keys or max(given.messages // 5, 1),
            given.lookups,
            scans=not given.no_scan,
        )
    print(f"p99 of all messages of a key under {P99_MS_MAX:.0f} ms: {'yes' if is_met else 'NO'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())

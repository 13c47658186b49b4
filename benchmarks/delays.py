"""Delayed messages: memory with many pending, and how late those are that become due; `make delays`."""

import argparse
import random
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Final

import confluent_kafka

from benchmarks.cluster_size import cpu_seconds
from benchmarks.lookup import rss_mb
from zhumq import Admin
from zhumq.model.delay_headers import DELIVER_AT_HEADER
from zhumq.testing.process import BrokerProcess, broker_process

TOPIC: Final = "delays"
PARTITIONS: Final = 4
VALUE_BYTES: Final = 60
SEED: Final = 20261118
FAR_MS: Final = 3_600_000  # Nothing of the pending ones is due during the run.
DAY_MS: Final = 24 * 3_600_000
LEAD_MS: Final = 5_000
STAGED_PER_SECOND_MIN: Final = (
    5_000  # The first one is due when all are staged, at this rate at least.
)
WAIT_SECONDS: Final = 300.0
LATE_P99_MS_MAX: Final = 1_000.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    raise RuntimeError(f"there is no metric {name}")


def send(bootstrap: str, values: list[bytes], due_ms: list[int]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
            "message.timeout.ms": int(WAIT_SECONDS * 1000),
        }
    )
    failed: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for number, (value, due) in enumerate(zip(values, due_ms, strict=True)):
        headers = {DELIVER_AT_HEADER: str(due)}
        while True:
            try:
                producer.produce(
                    TOPIC,
                    value,
                    partition=number % PARTITIONS,
                    headers=headers,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(WAIT_SECONDS)
    if left or failed:
        raise RuntimeError(f"{left} messages are left, {len(failed)} failed: {failed[:1]}")


def fill(broker: BrokerProcess, count: int) -> None:
    """Messages that are not due for an hour, up to 39 days ahead."""
    draw = random.Random(SEED)
    value = draw.randbytes(VALUE_BYTES)
    begun = time.monotonic()
    step = 100_000
    for first in range(0, count, step):
        size = min(step, count - first)
        start = now_ms() + FAR_MS
        send(
            broker.bootstrap,
            [value] * size,
            [start + draw.randrange(39 * DAY_MS) for _ in range(size)],
        )
    while metric(broker, "zhumq_delayed_messages_pending") < count:
        time.sleep(0.2)
    seconds = time.monotonic() - begun
    print(f"{count:,} pending after {seconds:.1f} s ({count / max(seconds, 0.001):,.0f} a second)")


def consume(bootstrap: str, count: int, seen: list[tuple[int, int, int, bytes]]) -> None:
    """Partition, due time, arrival and value of so many messages."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "delays",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    deadline = time.monotonic() + WAIT_SECONDS
    while len(seen) < count and time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.1):
            if message.error() is None:
                due = int(dict(message.headers())[DELIVER_AT_HEADER])
                seen.append((message.partition(), due, now_ms(), message.value()))
    # Whether one comes twice.
    seen.extend(
        (message.partition(), 0, 0, message.value())
        for message in consumer.consume(1_000, 2.0)
        if message.error() is None
    )
    consumer.close()


def deliver(broker: BrokerProcess, count: int, rate: int, kills: int) -> bool:
    """Messages that become due during some seconds: each has to arrive once, and in time order in its partition."""
    before = metric(broker, "zhumq_delayed_messages_pending")
    draw = random.Random(SEED + 1)
    span_ms = max(count * 1_000 // rate, 5_000)
    start = now_ms() + LEAD_MS + count * 1_000 // STAGED_PER_SECOND_MIN
    values = [b"%d" % number for number in range(count)]
    seen: list[tuple[int, int, int, bytes]] = []
    reading = threading.Thread(target=consume, args=(broker.bootstrap, count, seen))
    reading.start()
    send(broker.bootstrap, values, [start + draw.randrange(span_ms) for _ in values])
    while metric(broker, "zhumq_delayed_messages_pending") < before + count:
        if now_ms() > start:
            raise RuntimeError(f"the machine is too slow to stage {count:,} messages in time")
        time.sleep(0.2)
    used = cpu_seconds(broker.pid)
    for number in range(kills):
        # Evenly over the time in which they are due.
        while now_ms() < start + span_ms * (number + 1) // (kills + 1):
            time.sleep(0.01)
        broker.kill()
        broker.start()
        print(f"killed and restarted, {len(seen):,} delivered before")
    reading.join()
    if not kills:
        used = cpu_seconds(broker.pid) - used
        print(f"{used / count * 1e6:.0f} us of the broker's CPU for each")
    once = Counter(value for *_, value in seen) == Counter(values)
    ordered = all(
        dues == sorted(dues)
        for partition in range(PARTITIONS)
        if (dues := [due for each, due, _, _ in seen if each == partition])
    )
    late = sorted(arrived - due for _, due, arrived, _ in seen) or [0]
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    print(
        f"{len(seen):,} of {count:,} delivered over {span_ms / 1000:.0f} s: late by p50 {p50} ms,"
        f" p99 {p99} ms, at most {late[-1]} ms, at least {late[0]} ms"
    )
    print(f"each once: {once}; in time order in each partition: {ordered}")
    return once and (ordered or kills > 0) and (p99 <= LATE_P99_MS_MAX or kills > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=50_000)
    parser.add_argument(
        "--rate", type=int, default=10_000, help="of those that become due, a second"
    )
    parser.add_argument("--kills", type=int, default=0)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="zhumq-delays-") as folder,
        broker_process(Path(folder) / "data") as broker,
    ):
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, settings={"delay.enable": "true"})
        fill(broker, min(given.pending, 1_000))  # What a first message needs is not counted.
        before = rss_mb(broker.pid)
        fill(broker, given.pending)
        after = rss_mb(broker.pid)
        print(
            f"memory: {before} MB before, {after} MB with {given.pending:,} pending;"
            f" {metric(broker, 'zhumq_delayed_messages_in_memory'):,.0f} entries in memory"
        )
        return 0 if deliver(broker, given.due, given.rate, given.kills) else 1


if __name__ == "__main__":
    sys.exit(main())

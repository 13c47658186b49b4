"""Delayed messages: memory with many pending, and how late those are that become due; `make delays`."""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka

from benchmarks.delay_brokers import ALONE, Brokers, brokers
from zhumq import Admin
from zhumq.model.delay_headers import DELIVER_AT_HEADER

TOPIC: Final = "delays"
PARTITIONS: Final = 4
VALUE_BYTES: Final = 60
SEED: Final = 20261118
FAR_MS: Final = 3_600_000  # Nothing of the pending ones is due during the run.
DAY_MS: Final = 24 * 3_600_000
LEAD_MS: Final = 5_000
# The first one is due when all are staged, at this rate or half of that of the pending ones.
STAGED_PER_SECOND_MIN: Final = 5_000
WAIT_SECONDS: Final = 300.0
LIFE_SECONDS_MIN: Final = 3.0  # between the first message after a start and the next kill
LATE_P99_MS_MAX: Final = 1_000.0
GROWTH_MB_MAX: Final = 64  # of the broker, with all of them pending
# Freed memory goes back to the system, and compaction ends: both take a while after the last message.
SETTLE_SECONDS: Final = 60.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


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


def fill(broker: Brokers, count: int) -> float:
    """Messages that are not due for an hour, up to 39 days ahead. Returns how many became pending in a second."""
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
    while broker.metric("zhumq_delayed_messages_pending") < count:
        time.sleep(0.2)
    seconds = max(time.monotonic() - begun, 0.001)
    print(f"{count:,} pending after {seconds:.1f} s ({count / seconds:,.0f} a second)", flush=True)
    return count / seconds


class Arrived(NamedTuple):
    partition: int
    due_ms: int
    at_ms: int
    value: bytes


def consume(bootstrap: str, count: int, until_ms: int, seen: list[Arrived]) -> None:
    """So many messages, if they come until then."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "delays",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            # By default it waits for up to 10 s: longer than a broker lives between two kills.
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    while len(seen) < count and now_ms() < until_ms:
        seen += arrived(consumer, 0.1)
    seen += arrived(consumer, 2.0)  # Whether one comes twice.
    consumer.close()


def arrived(consumer: confluent_kafka.Consumer, seconds: float) -> list[Arrived]:
    found = []
    for message in consumer.consume(1_000, seconds):
        if message.error() is None:
            due_ms = int(dict(message.headers())[DELIVER_AT_HEADER])
            found.append(Arrived(message.partition(), due_ms, now_ms(), message.value()))
    return found


def deliver(broker: Brokers, count: int, rate: int, kills: int, staged_per_second: float) -> bool:
    """Messages that become due during some seconds: each has to arrive once, and in time order in its partition."""
    before = broker.metric("zhumq_delayed_messages_pending")
    draw = random.Random(SEED + 1)
    span_ms = max(count * 1_000 // rate, 5_000)
    slowest = min(STAGED_PER_SECOND_MIN, staged_per_second / 2)
    start = now_ms() + LEAD_MS + int(count * 1_000 / slowest)
    values = [b"%d" % number for number in range(count)]
    seen: list[Arrived] = []
    until_ms = start + span_ms + int((1 + kills) * WAIT_SECONDS * 1_000)
    reading = threading.Thread(target=consume, args=(broker.bootstrap, count, until_ms, seen))
    reading.start()
    send(broker.bootstrap, values, [start + draw.randrange(span_ms) for _ in values])
    while broker.metric("zhumq_delayed_messages_pending") < before + count:
        if now_ms() > start:
            raise RuntimeError(f"the machine is too slow to stage {count:,} messages in time")
        time.sleep(0.2)
    used = broker.cpu_seconds()
    restarts: list[Restart] = []
    for number in range(kills):
        # Evenly over the time in which they are due.
        at_ms = start + span_ms * (number + 1) // (kills + 1)
        if restarts:
            came_ms = wait_for_message(restarts[-1].served_ms, seen, count)
            if len(seen) >= count:
                break  # A further kill would hit nothing.
            lives_until_ms = max(came_ms, restarts[-1].back_ms) + int(LIFE_SECONDS_MIN * 1_000)
            at_ms = max(at_ms, lives_until_ms)
        restarts.append(restart(broker, number, at_ms))
    reading.join()
    if not kills:
        used = broker.cpu_seconds() - used
        print(f"{used / count * 1e6:.0f} us of the broker's CPU for each")
    once = Counter(each.value for each in seen) == Counter(values)
    ordered = all(
        dues == sorted(dues)
        for partition in range(PARTITIONS)
        if (dues := [each.due_ms for each in seen if each.partition == partition])
    )
    print_pauses(restarts, seen)
    if len(restarts) < kills:
        print(f"all had arrived after {len(restarts)} kills: give fewer, or a lower rate")
    late = sorted(each.at_ms - each.due_ms for each in seen) or [0]
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    print(
        f"{len(seen):,} of {count:,} delivered over {span_ms / 1000:.0f} s: late by p50 {p50} ms,"
        f" p99 {p99} ms, at most {late[-1]} ms, at least {late[0]} ms"
    )
    print(f"each once: {once}; in time order in each partition: {ordered}")
    is_killed_enough = len(restarts) == kills
    return once and ordered and is_killed_enough and (p99 <= LATE_P99_MS_MAX or kills > 0)


def wait_for_message(after_ms: int, seen: list[Arrived], count: int) -> int:
    """When one came after this time, or the last of all: the kills are to hit deliveries, and not only the loading before."""
    until_ms = now_ms() + int(WAIT_SECONDS * 1_000)
    while len(seen) < count and not (seen and seen[-1].at_ms > after_ms):
        if now_ms() > until_ms:
            raise RuntimeError(
                f"no message came for {WAIT_SECONDS:.0f} s after a kill: {len(seen):,} of {count:,} had"
            )
        time.sleep(0.05)
    return seen[-1].at_ms


class Restart(NamedTuple):
    killed_ms: int
    served_ms: int  # when delayed messages had a coordinator again
    back_ms: int  # when the broker that was killed served


def restart(broker: Brokers, number: int, at_ms: int) -> Restart:
    """Kill a broker at this time, and start it again."""
    while now_ms() < at_ms:
        time.sleep(0.01)
    killed_ms = now_ms()
    killed = broker.kill(number)
    served_ms = now_ms()
    broker.bring_back(killed)
    return Restart(killed_ms, served_ms, now_ms())


def print_pauses(restarts: list[Restart], seen: list[Arrived]) -> None:
    """After each kill, when there was a coordinator again and when the first message came."""
    for each in restarts:
        first_ms = next((seen_.at_ms for seen_ in seen if seen_.at_ms > each.served_ms), None)
        came = (
            "none came"
            if first_ms is None
            else f"a message {(first_ms - each.served_ms) / 1000:.1f} s later"
        )
        seconds = (each.served_ms - each.killed_ms) / 1000
        print(f"kill -9: a broker coordinated after {seconds:.1f} s, {came}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=50_000)
    parser.add_argument(
        "--rate", type=int, default=10_000, help="of those that become due, a second"
    )
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument(
        "--brokers",
        type=int,
        default=ALONE,
        choices=(ALONE, 3),
        help="of three, each kill is of one that coordinates delayed messages: a failover",
    )
    parser.add_argument(
        "--settle", type=float, default=SETTLE_SECONDS, help="seconds until the last measurement"
    )
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="zhumq-delays-") as folder,
        brokers(given.brokers, Path(folder)) as broker,
    ):
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replicas=broker.replicas,
                settings={"delay.enable": "true"},
            )
        fill(broker, min(given.pending, 1_000))  # What a first message needs is not counted.
        before = broker.memory()
        staged_per_second = fill(broker, given.pending)
        after = broker.memory()
        time.sleep(given.settle)
        settled = broker.memory()
        growth = after.resident - before.resident
        print(
            f"memory: {before} before, {after} with {given.pending:,} pending, which is {growth} MB more;"
            f" at most {settled.most} MB on the way, {settled} after {given.settle:.0f} s more;"
            f" {broker.metric('zhumq_delayed_messages_in_memory'):,.0f} entries in memory",
            flush=True,
        )
        is_delivered = deliver(broker, given.due, given.rate, given.kills, staged_per_second)
        return 0 if is_delivered and growth < GROWTH_MB_MAX else 1


if __name__ == "__main__":
    sys.exit(main())

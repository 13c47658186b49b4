"""`zhumq_group_lag`: what an ordinary group has not read yet, at /metrics."""

import contextlib
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from zhumq.testing.broker import broker
from zhumq.testing.cluster import cluster_processes

SECONDS_MAX = 30.0
_SAMPLE = re.compile(
    r'^zhumq_group_lag\{group="(.*)",topic="([^"]*)",partition="(\d+)"\} (\S+)$', re.MULTILINE
)

Lags = dict[tuple[str, str, int], int]


def page(http: str) -> str:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=SECONDS_MAX) as answer:
        return answer.read().decode()


def lags(http: str) -> Lags:
    return {
        (group, topic, int(partition)): int(value)
        for group, topic, partition, value in _SAMPLE.findall(page(http))
    }


def wait_until_lags(look: Callable[[], Lags], expected: Lags) -> None:
    """Waits: a large page is rendered at most once a second, and other brokers are asked."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := look()) != expected:
        assert time.monotonic() < deadline, f"{found} is not {expected}"
        time.sleep(0.05)


def produce(bootstrap: str, topic: str, partition: int, count: int, *, age_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        written_ms = time.time_ns() // 1_000_000 - age_ms
        producer.produce(topic, b"x", partition=partition, timestamp=written_ms)
    assert producer.flush(SECONDS_MAX) == 0


def commit(bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    with contextlib.closing(consumer):
        place = TopicPartition(topic, partition, offset)
        consumer.commit(offsets=[place], asynchronous=False)


def test_a_group_is_behind_by_what_it_has_not_committed(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(SECONDS_MAX)
        produce(running.bootstrap, "orders", 0, 10)
        commit(running.bootstrap, 'say "hi"\\', "orders", 0, 4)
        commit(running.bootstrap, "done", "orders", 0, 10)
        commit(running.bootstrap, "done", "orders", 1, 0)
        quoted = 'say \\"hi\\"\\\\'
        expected = {(quoted, "orders", 0): 6, ("done", "orders", 0): 0, ("done", "orders", 1): 0}
        wait_until_lags(lambda: lags(running.http), expected)
        produce(running.bootstrap, "orders", 1, 3)
        wait_until_lags(lambda: lags(running.http), expected | {("done", "orders", 1): 3})
        assert "\nzhumq_group_lag_left_out 0\n" in page(running.http)
        # Neither a deleted group nor a deleted topic has a lag.
        admin.delete_consumer_groups(["done"])["done"].result(SECONDS_MAX)
        wait_until_lags(lambda: lags(running.http), {(quoted, "orders", 0): 6})
        admin.delete_topics(["orders"])["orders"].result(SECONDS_MAX)
        wait_until_lags(lambda: lags(running.http), {})


def test_the_number_of_samples_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zhumq.broker.group_lag.SAMPLES_MAX", 2)
    with broker(data_dir=tmp_path) as running:
        produce(running.bootstrap, "t", 0, 1)
        for group in ("a", "b", "c"):
            commit(running.bootstrap, group, "t", 0, 0)
        assert len(lags(running.http)) == 2
        assert "\nzhumq_group_lag_left_out 1\n" in page(running.http)


_SECONDS = re.compile(
    r'^zhumq_group_lag_seconds\{group="(.*)",topic="t",partition="0"\} (\S+)$', re.MULTILINE
)


def seconds_of(http: str) -> dict[str, float]:
    return {group: float(value) for group, value in _SECONDS.findall(page(http))}


def wait_until_age(look: Callable[[], float | None], low: float, high: float) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := look()) is None or not low <= found <= high:
        assert time.monotonic() < deadline, f"{found} is not {low} to {high}"
        time.sleep(0.05)


def test_a_group_is_behind_by_the_age_of_the_first_message_that_it_has_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zhumq.broker.group_lag.SAMPLE_MS", 50)
    with broker(data_dir=tmp_path) as running:
        produce(running.bootstrap, "t", 0, 1, age_ms=3_600_000)
        produce(running.bootstrap, "t", 0, 1, age_ms=60_000)
        for group, offset in (("old", 0), ("young", 1), ("done", 2)):
            commit(running.bootstrap, group, "t", 0, offset)
        wait_until_age(lambda: seconds_of(running.http).get("old"), 3_600, 3_700)
        wait_until_age(lambda: seconds_of(running.http).get("young"), 60, 160)
        assert seconds_of(running.http)["done"] == 0
        commit(running.bootstrap, "old", "t", 0, 1)
        wait_until_age(lambda: seconds_of(running.http).get("old"), 60, 160)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_coordinator_asks_for_ends_of_partitions_that_it_has_no_replica_of() -> None:
    with cluster_processes(nodes=3) as cluster:
        topics = {f"on-{broker_id}": broker_id for broker_id in cluster.brokers}
        new_topics = [NewTopic(name, 1, replica_assignment=[[at]]) for name, at in topics.items()]
        admin = cluster.admin()
        for future in admin.create_topics(new_topics).values():
            future.result(SECONDS_MAX)
        for topic in topics:
            produce(cluster.bootstrap, topic, 0, 5, age_ms=600_000)
            commit(cluster.bootstrap, "readers", topic, 0, 2)

        def all_lags() -> Lags:
            found: Lags = {}
            for each in cluster.brokers.values():
                found |= lags(each.http)
            return found

        wait_until_lags(all_lags, {("readers", topic, 0): 3 for topic in topics})
        # Only the coordinator reports the lag.
        reporting = [each for each in cluster.brokers.values() if lags(each.http)]
        assert len(reporting) == 1

        # The leaders say how old the messages are.
        def ages() -> list[float]:
            found = re.findall(
                r"^zhumq_group_lag_seconds\{.*\} (\S+)$", page(reporting[0].http), re.MULTILINE
            )
            return [float(each) for each in found if float(each) >= 600]

        wait_until_age(lambda: float(len(ages())), 3, 3)

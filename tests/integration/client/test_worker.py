"""The worker handles every message, commits the contiguous prefix, and never commits a failure silently."""

import threading
import time
from collections import Counter, defaultdict

import confluent_kafka
import pytest
from client_support import send, until, working

from zhumq import Admin, Worker
from zhumq.client.errors import HandlerFailed
from zhumq.client.worker import Task
from zhumq.testing.broker import RunningBroker


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    )
    try:
        place = confluent_kafka.TopicPartition(topic, partition)
        offset: int = consumer.committed([place], timeout=10)[0].offset
        return offset
    finally:
        consumer.close()


@pytest.mark.thorough
def test_a_worker_handles_every_message_and_commits_them_all(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("jobs", partitions=4)
    send(bootstrap, "jobs", 400, partitions=4)
    seen: Counter[bytes | None] = Counter()
    orders: dict[int, list[int]] = defaultdict(list)
    lock = threading.Lock()

    def handle(task: Task) -> None:
        with lock:
            seen[task.value] += 1
            orders[task.partition].append(task.offset)

    worker = Worker("jobs", handle, group="workers", bootstrap=bootstrap, consumers=2, processors=4)
    worker.run(until=lambda: len(seen) == 400)
    assert sum(seen.values()) == 400
    # Without keys a partition is handled in order.
    assert all(offsets == sorted(offsets) for offsets in orders.values())
    assert [committed(bootstrap, "workers", "jobs", each) for each in range(4)] == [100] * 4


def test_only_the_contiguous_prefix_is_committed(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("keys", partitions=1)
    from zhumq import Producer

    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send("keys", b"%d" % number, key=b"%d" % number, partition=0)
    go_on = threading.Event()
    done: set[int] = set()

    def handle(task: Task) -> None:
        if task.offset == 3:
            go_on.wait(30)
        done.add(task.offset)

    worker = Worker("keys", handle, group="prefix", bootstrap=bootstrap, processors=20)
    with working(worker) as raised:
        # All but the task that blocks, and perhaps those behind it in its queue.
        until(lambda: len(done) >= 10)
        until(lambda: committed(bootstrap, "prefix", "keys") >= 0)
        assert committed(bootstrap, "prefix", "keys") <= 3
        go_on.set()
        until(lambda: len(done) == 20)
    assert raised == []
    assert committed(bootstrap, "prefix", "keys") == 20


def test_a_handler_that_fails_for_good_stops_the_worker_and_commits_nothing_of_it(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "fragile", 10)
    attempts: Counter[int] = Counter()

    def handle(task: Task) -> None:
        attempts[task.offset] += 1
        if task.offset == 4:
            raise RuntimeError("no")

    worker = Worker(
        "fragile", handle, group="stops", bootstrap=bootstrap, retries=2, backoff_ms=1, processors=1
    )
    with pytest.raises(HandlerFailed, match="failed 3 times for fragile-0@4: RuntimeError: no"):
        worker.run()
    assert attempts[4] == 3
    assert committed(bootstrap, "stops", "fragile") == 4
    # The next worker begins with the message that failed.
    seen: list[int] = []
    again = Worker(
        "fragile", lambda task: seen.append(task.offset), group="stops", bootstrap=bootstrap
    )
    again.run(until=lambda: len(seen) >= 6)
    assert seen == [4, 5, 6, 7, 8, 9]


def test_a_failing_message_can_go_to_the_dead_letters(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "rejected", 5)
    done: list[int] = []

    def handle(task: Task) -> None:
        if task.offset == 2:
            raise ValueError("broken")
        done.append(task.offset)

    worker = Worker(
        "rejected",
        handle,
        group="rejecters",
        bootstrap=bootstrap,
        retries=1,
        backoff_ms=1,
        on_failure="dead-letter",
    )
    worker.run(until=lambda: len(done) == 4)
    assert committed(bootstrap, "rejecters", "rejected") == 5
    with Admin(bootstrap) as admin:
        (dead_letter,) = admin.dead_letters("rejected")
        assert dead_letter.value == b"2"
        assert dead_letter.story.reason == "ValueError: broken"
        assert (dead_letter.story.offset, dead_letter.story.deliveries) == (2, 2)


def test_a_worker_that_retries_for_ever_succeeds_in_the_end(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "stubborn", 3)
    failures = Counter[int]()
    done: list[int] = []

    def handle(task: Task) -> None:
        failures[task.offset] += 1
        if task.offset == 1 and failures[1] < 6:
            raise RuntimeError("not yet")
        done.append(task.offset)

    worker = Worker(
        "stubborn",
        handle,
        group="stubborn",
        bootstrap=bootstrap,
        retries=0,
        backoff_ms=1,
        on_failure="retry",
    )
    worker.run(until=lambda: len(done) == 3)
    assert done == [0, 1, 2]


def test_a_worker_reads_chosen_partitions_from_the_chosen_end(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("parts", partitions=3)
    send(bootstrap, "parts", 30, partitions=3)
    seen: list[int] = []
    worker = Worker(
        "parts",
        lambda task: seen.append(task.partition),
        group="chosen",
        bootstrap=bootstrap,
        partitions=[1],
    )
    worker.run(until=lambda: len(seen) == 10)
    assert seen == [1] * 10
    late: list[bytes | None] = []
    last = Worker(
        "parts",
        lambda task: late.append(task.value),
        group="late",
        bootstrap=bootstrap,
        offset="last",
        partitions=[0],
    )
    with working(last) as raised:
        number = 100
        # The worker may not have found the end yet: messages sent until then are not after it.
        while not late:
            send(bootstrap, "parts", 1, first=number)
            number += 1
            time.sleep(0.05)
    assert raised == []
    assert late[0] is not None
    assert int(late[0]) >= 100


def test_invalid_options_are_refused() -> None:
    def handle(task: Task) -> None: ...

    for wrong in (
        {"consumers": 0},
        {"processors": 0},
        {"retries": -1},
        {"offset": "middle"},
        {"on_failure": "ignore"},
        {"partitions": [0], "consumers": 2},
    ):
        with pytest.raises(ValueError, match=r".+"):
            Worker("t", handle, group="g", **wrong)  # type: ignore[arg-type]

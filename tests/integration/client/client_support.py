"""Helpers of the client tests."""

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from zhumq import Producer, Worker

SECONDS_MAX = 60.0


def send(bootstrap: str, topic: str, count: int, *, partitions: int = 1, first: int = 0) -> None:
    with Producer(bootstrap, settings={"enable.idempotence": False}) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def until(fact: Callable[[], Any]) -> Any:
    """Wait until the condition is true, and return its result."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := fact()):
        assert time.monotonic() < deadline, f"timed out: {fact}"
        time.sleep(0.02)
    return found


@contextmanager
def working(worker: Worker) -> Any:
    """Run a worker in a thread until the end of the block; yields the errors it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        worker.stop()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()

"""Helpers of the tests of half messages: short times, what a consumer sees, and waiting for facts."""

import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, TopicPartition

import zhumq
from zhumq.admin.half_messages import HalfMessageEntry, list_half_messages
from zhumq.client.errors import HalfMessageDecided

HERE = Path(__file__).resolve().parent
SECONDS_MAX = 60.0
# 6 s, 30 s and 15 checks, shortened.
SETTINGS = {
    "half.message.check.first.ms": "200",
    "half.message.check.interval.ms": "300",
    "half.message.check.max": "3",
    "half.message.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}
Fact = TypeVar("Fact")


def wait_for(look: Callable[[], Fact], what: str, seconds: float = SECONDS_MAX) -> Fact:
    """Wait until the condition is true, and return its result."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.05)
    return found


def read_committed(bootstrap: str, topic: str, *, partitions: int = 1) -> Counter[bytes]:
    """The values that a consumer at read_committed sees up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: Counter[bytes] = Counter()
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"timed out: the end of {topic}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found[message.value()] += 1
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    consumer.close()
    return found


def wait_for_values(
    bootstrap: str, topic: str, expected: Counter[bytes] | dict[bytes, int], *, partitions: int = 1
) -> None:
    """Wait until a consumer sees all of these values, and check that it sees nothing else."""
    wait_for(
        lambda: read_committed(bootstrap, topic, partitions=partitions).keys() >= expected.keys(),
        f"{sorted(expected)} in {topic}",
    )
    assert read_committed(bootstrap, topic, partitions=partitions) == expected


def listed(bootstrap: str, group: str = "") -> dict[str, HalfMessageEntry]:
    with zhumq.Admin(bootstrap) as admin:
        return {each.id: each for each in list_half_messages(admin, group=group).messages}


class Orders:
    """A table of orders, with the ids of their half messages: what a check looks at."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as database:
            database.execute(
                "create table if not exists orders (half_id text primary key, item text)"
            )

    def add(self, half_id: str, item: str) -> None:
        """The transaction of the program. Raises sqlite3.IntegrityError if a check was faster."""
        with self._open() as database:
            database.execute("insert into orders values (?, ?)", (half_id, item))

    def has(self, half_id: str) -> bool:
        """The check. Where there is no order it makes sure that there will be none."""
        with self._open() as database:
            database.execute("insert or ignore into orders values (?, null)", (half_id,))
            found = database.execute("select item from orders where half_id = ?", (half_id,))
            return found.fetchone()[0] is not None

    def items(self) -> list[str]:
        with self._open() as database:
            rows = database.execute("select item from orders where item is not null order by item")
            return [row[0] for row in rows]

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=SECONDS_MAX)


class ShopProcess:
    """`half_shop.py` in its own process, which a test kills."""

    def __init__(self, bootstrap: str, database: Path, stops_after: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "half_shop.py"), bootstrap, str(database), stops_after],
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        with self._process:
            self._process.kill()


class Shop(threading.Thread):
    """Takes orders until it is stopped. Every third one it leaves undecided, with or without the row."""

    def __init__(self, bootstrap: str, orders: Orders) -> None:
        super().__init__(daemon=True)
        self._brokers = bootstrap
        self._orders = orders
        self.stopping = threading.Event()
        self.taken = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with zhumq.HalfMessageProducer(
                self._brokers, group="shop", check=None, timeout=120
            ) as producer:
                while not self.stopping.is_set():
                    self._take(producer, self.taken)
                    self.taken += 1
        except BaseException as failure:
            self.failure = failure
            raise

    def _take(self, producer: zhumq.HalfMessageProducer, number: int) -> None:
        kind = number % 6
        # A check of the other producer may be faster, while brokers are killed: then there is no order.
        with contextlib.suppress(sqlite3.IntegrityError, HalfMessageDecided):
            half = producer.prepare("orders", f"order {number}", key=str(number))
            if kind == 0:  # forgotten before the transaction
                return
            if kind == 5:
                half.rollback()
                return
            self._orders.add(half.id, f"order {number}")
            if kind != 3:  # forgotten after it
                self._commit(half)

    def _commit(self, half: zhumq.HalfMessage) -> None:
        """The order is there, so a check has committed the message, if anything was decided."""
        try:
            half.commit()
        except HalfMessageDecided as refused:
            raise AssertionError("an order without its message") from refused

    def wait_for_progress(self, orders: int = 20) -> None:
        goal = self.taken + orders
        wait_for(lambda: self.taken >= goal or self.failure, "orders are taken", 120)
        assert self.failure is None

    def stop(self) -> None:
        self.stopping.set()
        self.join(120)
        assert self.failure is None

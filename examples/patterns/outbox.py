"""Outbox: an order in a database and its message, never one without the other, also if the program dies."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from _broker import broker_address, new_topic

import zhumq

# The broker asks sooner than by default (6 s), as this is an example.
SETTINGS = {"half.message.check.first.ms": "500", "half.message.check.interval.ms": "500"}


class Orders:
    """The shop's database. The primary key decides who comes first: the order, or its refusal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("create table orders (half_id text primary key, item text)")

    def add(self, half: zhumq.HalfMessage, item: str) -> None:
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("insert into orders values (?, ?)", (half.id, item))

    def has(self, half: zhumq.HalfMessage) -> bool:
        """Whether an order is there. If it is not, it never will be."""
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("insert or ignore into orders values (?, null)", (half.id,))
            found = database.execute("select item from orders where half_id = ?", (half.id,))
            return bool(found.fetchone()[0])


def main() -> None:
    with broker_address(SETTINGS) as bootstrap, tempfile.TemporaryDirectory() as folder:
        topic = new_topic(bootstrap, "orders")
        orders = Orders(Path(folder) / "shop.db")

        def shop() -> zhumq.HalfMessageProducer:
            return zhumq.HalfMessageProducer(bootstrap, group="shop", check=orders.has)

        with shop() as producer:
            half = producer.prepare(topic, b"a chair")  # durable, and consumers do not see it
            orders.add(half, "a chair")  # the program's own transaction
            half.commit()  # the message appears
            print("a chair: ordered")

            half = producer.prepare(topic, b"a unicorn")
            half.rollback()  # The database refused the order.
            print("a unicorn: not in the database, rolled back")

            half = producer.prepare(topic, b"a table")
            orders.add(half, "a table")
            print("a table: in the database, and the program dies before commit()")

            producer.prepare(topic, b"a ghost")
            print("a ghost: the program dies before it is in the database")

        # The program is started again, or another instance runs: the broker asks it.
        with (
            shop(),
            zhumq.Consumer(topic, group="billing", bootstrap=bootstrap) as consumer,
        ):
            for message in consumer:
                print("consumed:", (message.value or b"").decode())
                if message.value == b"a table":
                    break


if __name__ == "__main__":
    main()

"""Ordered processing by key: the events of one order stay in order, different orders are handled at once."""

import random
import threading
import time
from collections import defaultdict

from _broker import broker_address, new_topic

import zhumq

ORDERS = ("order-1", "order-2", "order-3", "order-4")
EVENTS = ("created", "paid", "packed", "shipped")


def main() -> None:
    with broker_address() as bootstrap:
        topic = new_topic(bootstrap, "order-events", partitions=3)
        with zhumq.Producer(bootstrap) as producer:
            for event in EVENTS:
                for order in ORDERS:
                    # The key chooses the partition: all events of an order are in one, in order.
                    producer.send(topic, event.encode(), key=order.encode())

        seen: defaultdict[str, list[str]] = defaultdict(list)
        busy: set[str] = set()
        at_once = [0]
        lock = threading.Lock()

        def handle(task: zhumq.Task) -> None:
            order, event = (task.key or b"").decode(), (task.value or b"").decode()
            with lock:
                assert order not in busy, "two events of one order at once"
                busy.add(order)
                at_once.append(len(busy))
            time.sleep(random.uniform(0.01, 0.05))  # noqa: S311 (some events take longer)
            with lock:
                busy.remove(order)
                seen[order].append(event)

        worker = zhumq.Worker(topic, handle, group="shop", bootstrap=bootstrap, processors=32)
        worker.run(until=lambda: sum(map(len, seen.values())) == len(ORDERS) * len(EVENTS))
        for order in ORDERS:
            print(order, "->", ", ".join(seen[order]))
        print("several orders at once:", max(at_once) > 1)


if __name__ == "__main__":
    main()

"""Decoupling: a new consumer group reads what was sent long before it existed."""

from _broker import broker_address, new_topic

import zhumq


def read(bootstrap: str, topic: str, group: str, until: bytes) -> list[str]:
    """Read as this group up to and including a message."""
    found = []
    with zhumq.Consumer(topic, group=group, bootstrap=bootstrap) as consumer:
        for message in consumer:
            found.append((message.value or b"").decode())
            if message.value == until:
                return found
    return found


def main() -> None:
    with broker_address() as bootstrap:
        orders = new_topic(bootstrap, "orders")
        with zhumq.Producer(bootstrap) as producer:
            for item in (b"a chair", b"a table", b"a lamp"):
                producer.send(orders, item)

            print("billing:  ", read(bootstrap, orders, "billing", until=b"a lamp"))

            # Months later. The shop does not know that there is a second reader, and need not be changed.
            print("analytics:", read(bootstrap, orders, "analytics", until=b"a lamp"))

            producer.send(orders, b"a sofa")
            producer.flush()
        # Each group has a position of its own.
        print("billing:  ", read(bootstrap, orders, "billing", until=b"a sofa"))
        print("analytics:", read(bootstrap, orders, "analytics", until=b"a sofa"))


if __name__ == "__main__":
    main()

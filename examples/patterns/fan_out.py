"""Fan-out: one message, a copy for every group that subscribes, filtered for those that need only some."""

import threading

from _broker import broker_address, new_topic

import zhumq


def main() -> None:
    with broker_address() as bootstrap:
        orders = new_topic(bootstrap, "orders")
        got: dict[str, list[str]] = {"billing": [], "shipping": [], "fraud": []}

        def subscribe(group: str, filter_: str = "") -> None:
            # psb: this group gets everything, or everything that passes its filter.
            with zhumq.Consumer(
                orders, group=group, mode="psb", filter=filter_, bootstrap=bootstrap
            ) as consumer:
                for message in consumer:
                    got[group].append((message.value or b"").decode())
                    if message.value == b"a palace":
                        return

        threads = [
            threading.Thread(target=subscribe, args=("billing",)),
            threading.Thread(target=subscribe, args=("shipping",)),
            threading.Thread(target=subscribe, args=("fraud", "expensive")),
        ]
        for thread in threads:
            thread.start()
        with zhumq.Producer(bootstrap) as producer:
            producer.send(orders, b"a chair", tags="cheap")
            producer.send(orders, b"a yacht", tags="expensive")
            producer.send(orders, b"a lamp", tags="cheap")
            producer.send(orders, b"a palace", tags="expensive")
        for thread in threads:
            thread.join()
        for group, items in got.items():
            print(f"{group}: {', '.join(items)}")


if __name__ == "__main__":
    main()

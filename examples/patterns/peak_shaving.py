"""Peak shaving: a burst waits in the topic, and a slow consumer works at its own pace."""

import threading
import time
from pathlib import Path

from _broker import broker_address, new_topic, parser
from _chart import write_chart

import zhumq

BURST = 400
SECONDS_EACH = 0.005  # what the database takes for an order

parser.add_argument("--chart", type=Path, metavar="FILE", help="write the lag over time as SVG")


def main() -> None:
    chart = parser.parse_args().chart
    with broker_address() as bootstrap:
        orders = new_topic(bootstrap, "orders")
        sent = handled = 0
        began = time.monotonic()
        history = [(0.0, 0, 0)]  # seconds, sent, handled

        def handle() -> None:
            nonlocal handled
            with zhumq.Consumer(orders, group="database", bootstrap=bootstrap) as consumer:
                for _ in consumer:
                    time.sleep(SECONDS_EACH)
                    handled += 1
                    if handled == BURST:
                        return

        def watch() -> None:
            while handled < BURST:
                history.append((time.monotonic() - began, sent, handled))
                time.sleep(0.05)
            history.append((time.monotonic() - began, sent, handled))

        threads = [threading.Thread(target=handle), threading.Thread(target=watch)]
        for thread in threads:
            thread.start()
        with zhumq.Producer(bootstrap) as producer:
            for number in range(BURST):
                producer.send(orders, b"order %d" % number)
                sent += 1
                time.sleep(0.0005)  # ten times as fast as the database
        print(f"the shop has sent {BURST} orders, and no customer has waited")
        for thread in threads:
            thread.join()

        lag = [(seconds, sent_ - handled_) for seconds, sent_, handled_ in history]
        print(
            "at the peak more than half of them waited:", max(each for _, each in lag) > BURST / 2
        )
        print(f"in the end {handled} are handled, and {lag[-1][1]} wait")
        if chart is not None:
            write_chart(
                chart,
                f"A burst of {BURST} orders for a database that takes {1 / SECONDS_EACH:.0f} a second",
                "orders",
                {
                    "waiting (lag)": lag,
                    "sent": [(seconds, each) for seconds, each, _ in history],
                    "handled": [(seconds, each) for seconds, _, each in history],
                },
            )


if __name__ == "__main__":
    main()

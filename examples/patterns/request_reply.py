"""Request and reply over topics: a result, an error, and a service that does not answer."""

import threading

from _broker import broker_address, new_topic

import zhumq
from zhumq.client.errors import CallFailed, CallTimedOut

PRICES = {b"chair": b"49.90", b"table": b"199.00"}


def main() -> None:
    with broker_address() as bootstrap:
        prices = new_topic(bootstrap, "prices", partitions=2)

        # The service: often several instances in one group.
        service = zhumq.Service(
            prices,
            lambda request: PRICES[request.value or b""],
            group="prices",
            bootstrap=bootstrap,
        )
        thread = threading.Thread(target=service.run)
        thread.start()

        # The caller.
        with zhumq.Caller(bootstrap) as caller:
            print("chair:", caller.call(prices, b"chair", timeout=30))

            waiting = [caller.begin(prices, item, timeout=30) for item in (b"table", b"chair")]
            print("two at once:", [each.result() for each in waiting])

            try:
                caller.call(prices, b"unicorn", timeout=30)
            except CallFailed as error:
                print("unicorn:", str(error).partition(": ")[2])

            service.stop()
            thread.join()
            try:
                caller.call(prices, b"chair", timeout=0.5)
            except CallTimedOut:
                print("without a service: no reply within 0.5 s")
        print("handled:", service.counts.handled, "failed:", service.counts.failed)


if __name__ == "__main__":
    main()

"""Delayed retry: a message that failed comes again after a pause, and the others do not wait for it."""

from _broker import broker_address, new_topic

import zhumq

DELAYS_MS = (300, 600, 1_200)


def main() -> None:
    with broker_address() as bootstrap:
        payments = new_topic(bootstrap, "payments")
        with zhumq.Producer(bootstrap) as producer:
            for name in (b"ann", b"bob", b"cleo"):
                producer.send(payments, name)

        paid = 0
        with zhumq.Consumer(
            payments, group="cashier", mode="ptp-shared", auto_ack=False, bootstrap=bootstrap
        ) as consumer:
            for message in consumer:
                customer, attempt = (message.value or b"").decode(), message.delivery_count
                if customer == "ann" and attempt < 3:  # The bank is down for a while.
                    delay_ms = DELAYS_MS[min(attempt, len(DELAYS_MS)) - 1]
                    print(f"{customer}: attempt {attempt} failed, again in {delay_ms} ms")
                    message.nack("the bank does not answer", delay_ms=delay_ms)
                    continue
                message.ack()
                print(f"{customer}: paid at attempt {attempt}")
                paid += 1
                if paid == 3:
                    break


if __name__ == "__main__":
    main()

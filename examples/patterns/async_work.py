"""Asynchronous work: answer at once, work later, retry, and set aside what does not work."""

from collections import Counter

from _broker import broker_address, new_topic

import zhumq


def main() -> None:
    with broker_address() as bootstrap:
        emails = new_topic(bootstrap, "emails")

        # The shop: it only queues the e-mails, and goes on.
        with zhumq.Producer(bootstrap) as producer:
            for address in ("ann@example.com", "bob@example", "cleo@example.com"):
                producer.send(emails, address.encode())
        print("the shop has answered 3 customers")

        # The worker, often another program on another machine.
        attempts: Counter[str] = Counter()
        sent: set[str] = set()
        is_repaired = False

        def send_email(task: zhumq.Task) -> None:
            address = (task.value or b"").decode()
            attempts[address] += 1
            print(f"{address}: attempt {attempts[address]}")
            if address == "cleo@example.com" and attempts[address] == 1:
                raise ConnectionError("the mail server is busy")  # gone at the next attempt
            if address == "bob@example" and not is_repaired:
                raise ValueError("not an address")  # as long as the program is as it is
            sent.add(address)

        def work_until_sent(count: int) -> None:
            worker = zhumq.Worker(
                emails,
                send_email,
                group="mailers",
                bootstrap=bootstrap,
                retries=2,
                backoff_ms=50,  # doubled each time
                on_failure="dead-letter",
            )
            worker.run(until=lambda: len(sent) == count)

        work_until_sent(2)
        with zhumq.Admin(bootstrap) as admin:
            for dead in admin.dead_letters(emails):
                print(f"dead letter: {dead.value!r} after {dead.story.deliveries} attempts,")
                print(f"  {dead.story.reason}")

            is_repaired = True  # a new version of the program
            print(f"replayed: {admin.replay(emails)}")
        work_until_sent(3)
        print(f"sent: {', '.join(sorted(sent))}")


if __name__ == "__main__":
    main()

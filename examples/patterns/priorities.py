"""Priorities: urgent messages overtake those that wait, and the others still get their turns."""

import time

from _broker import broker_address, new_topic

import zhumq


def main() -> None:
    with broker_address() as bootstrap:
        urgent, normal = new_topic(bootstrap, "urgent"), new_topic(bootstrap, "normal")
        with (
            zhumq.Producer(bootstrap) as producer,
            zhumq.PriorityConsumer(
                {urgent: 4, normal: 1}, group="clerks", bootstrap=bootstrap
            ) as consumer,
        ):
            messages = iter(consumer)
            for topic in (urgent, normal):
                producer.send(topic, b"the first")
            for _ in range(2):
                next(messages)  # The consumer has joined its group.

            for _ in range(40):
                producer.send(normal, b"")
            producer.flush()
            next(messages)
            # While the program works on a normal message, 16 urgent ones arrive.
            for _ in range(16):
                producer.send(urgent, b"")
            producer.flush()
            time.sleep(3)  # that takes a while

            # 39 normal ones wait, but the urgent ones get four turns of five.
            turns = "".join(next(messages).topic[0] for _ in range(55))
            print("u: urgent, n: normal")
            print(turns)
            print("turns until all urgent ones are done:", turns.rindex("u") + 1)
            print("normal ones meanwhile:", turns[: turns.rindex("u")].count("n"))


if __name__ == "__main__":
    main()

"""Competing consumers: more of them do more work, whatever the number of partitions, and one that dies loses nothing."""

import threading
import time
from collections import Counter

from _broker import broker_address, new_topic

import zhumq

JOBS = 60


def main() -> None:
    with broker_address() as bootstrap:
        jobs = new_topic(bootstrap, "jobs", partitions=1)
        with zhumq.Producer(bootstrap) as producer:
            for number in range(JOBS):
                producer.send(jobs, b"%d" % number)

        done: Counter[bytes | None] = Counter()
        by_consumer: Counter[str] = Counter()
        lock = threading.Lock()
        all_busy = threading.Barrier(3)

        def consume(name: str) -> None:
            with zhumq.Consumer(
                jobs,
                group="workers",
                mode="ptp-shared",  # each message goes to one of the consumers
                credits=5,  # how many it has at a time, so that the others get some
                auto_ack=False,
                bootstrap=bootstrap,
            ) as consumer:
                while sum(done.values()) < JOBS:
                    for message in consumer.poll(0.1):
                        if name == "consumer 3":
                            all_busy.wait(30)
                            return  # It dies with its messages unanswered.
                        if not by_consumer[name]:
                            all_busy.wait(30)
                        time.sleep(0.005)  # the work
                        with lock:
                            done[message.value] += 1
                            by_consumer[name] += 1
                        message.ack()

        names = ("consumer 1", "consumer 2", "consumer 3")
        threads = [threading.Thread(target=consume, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"{len(done)} jobs in one partition, each done once: {set(done.values()) == {1}}")
        for name in names:
            print(f"{name}: {'worked' if by_consumer[name] else 'died with messages unanswered'}")


if __name__ == "__main__":
    main()

"""The Python client's transactional producer beside confluent-kafka's: messages/s and CPU of the client."""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka_peer import prepare_kafka
from benchmarks.zhumq_server import prepare_zhumq
from zhumq import TransactionalProducer

MESSAGE_BYTES = 100
PARTITIONS = 3
ROUNDS = 3  # interleaved; the best of each is printed

Commit = Callable[[list[bytes]], None]


@contextmanager
def own(bootstrap: str, topic: str) -> "Iterator[dict[str, Commit]]":
    with TransactionalProducer(bootstrap, transactional_id=f"{topic}-own") as producer:

        def many(values: list[bytes]) -> None:
            with producer.transaction() as transaction:
                transaction.send_many(topic, values)

        def one_by_one(values: list[bytes]) -> None:
            with producer.transaction() as transaction:
                for value in values:
                    transaction.send(topic, value)

        def keyed(values: list[bytes]) -> None:
            with producer.transaction() as transaction:
                transaction.send_many(topic, values, keys=[value[-8:] for value in values])

        yield {"zhumq send_many": many, "zhumq send": one_by_one, "zhumq send_many, keys": keyed}


def confluent(bootstrap: str, topic: str) -> dict[str, Commit]:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{topic}-confluent",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
        }
    )
    producer.init_transactions()

    def commit(values: list[bytes]) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.commit_transaction()

    def keyed(values: list[bytes]) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, key=value[-8:])
        producer.commit_transaction()

    return {"confluent-kafka": commit, "confluent-kafka, keys": keyed}


def measure(commit: Commit, values: list[bytes], seconds: float) -> tuple[float, float]:
    """Messages per second, and microseconds of CPU per message."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    count = 0
    while time.perf_counter() - start < seconds:
        commit(values)
        count += len(values)
    elapsed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return count / elapsed, cpu / count * 1e6


def compare(name: str, bootstrap: str, seconds: float) -> None:
    topic = "transactions"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        created.result()
    for size in (1, 100, 10_000):
        values = [b"%0*d" % (MESSAGE_BYTES, number) for number in range(size)]
        with own(bootstrap, topic) as ours:
            commits = ours | confluent(bootstrap, topic)
            best: dict[str, tuple[float, float]] = {}
            for commit in commits.values():
                commit(values)
            for _ in range(ROUNDS):
                for client, commit in commits.items():
                    found = measure(commit, values, seconds)
                    best[client] = max(best.get(client, found), found)
        for client, (rate, cpu) in best.items():
            print(
                f"{name:6} {size:6} messages/transaction  {client:24}"
                f" {rate:10,.0f} messages/s {rate / size:8,.1f} commits/s {cpu:8.2f} us CPU/message",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    seconds = parser.parse_args().seconds
    for name, prepare in (("zhumq", prepare_zhumq), ("kafka", prepare_kafka)):
        with (
            tempfile.TemporaryDirectory(prefix="zhumq-bench-") as directory,
            prepare(Path(directory)).start() as server,
        ):
            compare(name, server.bootstrap, seconds)


if __name__ == "__main__":
    main()

"""Programs that process exactly once and are killed again and again: a copier, Kafka Streams, Kafka Connect."""

import json
import random
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.server import free_ports
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.transactions.programs import KilledBroker, Programs, Running, wait_until

PARTITIONS = 2
MESSAGES = 4_000
KEYS = 20
KILLS = 6
ALIVE_S = (2.0, 7.0)  # before a kill
ASK_S = 30.0
FINISH_WAIT_S = 240.0
NUMBERS_MIN = 2_000


class Topics:
    """Makes, fills and reads topics."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, *names: str, partitions: int = 1) -> None:
        made = self._admin.create_topics([NewTopic(name, partitions, 1) for name in names])
        for each in made.values():
            each.result(ASK_S)

    def fill(self, topic: str, count: int) -> None:
        """Numbers as values; the key of each is the number modulo KEYS."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for number in range(count):
            producer.produce(topic, str(number), str(number % KEYS), number % KEYS % PARTITIONS)
            producer.poll(0)
        assert producer.flush(ASK_S) == 0

    def read(
        self, topic: str, partitions: int = PARTITIONS
    ) -> list[list[tuple[bytes | None, bytes]]]:
        """Keys and values of each partition at read_committed, up to the end that it has now: others go on writing."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        found: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(partitions)]
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        ends = {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), ASK_S)[1]
            for each in range(partitions)
        }
        while ends:
            message = consumer.poll(ASK_S)
            assert message is not None, f"{topic} cannot be read"
            index = message.partition()
            if message.error() is not None or message.offset() >= ends.get(index, 0):
                ends.pop(index, None)
            else:
                found[index].append((message.key(), message.value()))
        consumer.close()
        return found


class KilledPrograms:
    """The checks with kills. Their names are the topics' names, too."""

    def __init__(
        self, programs: Programs, broker: KilledBroker, topics: Topics, folder: Path, seed: int
    ) -> None:
        self._programs = programs
        self._broker = broker
        self._topics = topics
        self._folder = folder
        self._draw = random.Random(seed)

    def copier(self) -> None:
        """A copy in transactions by two members that are killed, and the broker, too: the copy is exact."""
        self._topics.create("copy-in", "copy-out", partitions=PARTITIONS)
        self._topics.fill("copy-in", MESSAGES)

        def start(number: int) -> Running:
            return self._programs.start_java(
                f"copier-{number}", "Copier", first="copy-in", second="copy-out", id=f"copier-{number}",
                group="copiers",
            )  # fmt: skip

        copiers = [start(number) for number in range(2)]
        try:
            for turn in range(KILLS):
                time.sleep(self._draw.uniform(*ALIVE_S))
                if turn % 3 == 1:
                    self._broker.kill()
                number = self._draw.randrange(2)
                copiers[number].kill()
                copiers[number] = start(number)
                self._topics.fill("copy-in", MESSAGES // 4)
            source = self._topics.read("copy-in")
            expected = [len(each) for each in source]
            wait_until(
                lambda: [len(each) for each in self._topics.read("copy-out")] >= expected,
                f"{expected} messages are copied",
                FINISH_WAIT_S,
            )
        finally:
            for each in copiers:
                each.kill()
        copy = self._topics.read("copy-out")
        for one, other in zip(source, copy, strict=True):
            assert one == other, f"{len(one)} messages, {len(other)} in the copy"

    def streams(self) -> None:
        """Kafka Streams counts in a state store, two instances; they and the broker are killed: the counts are exact."""
        self._topics.create("words", "counts", partitions=PARTITIONS)
        self._topics.fill("words", MESSAGES)
        total = MESSAGES

        def start(number: int) -> Running:
            return self._programs.start_java(
                f"counter-{number}", "Counter", first="words", second="counts", group="counter",
                state=str(self._folder / f"state-{number}"),
            )  # fmt: skip

        counters = [start(number) for number in range(2)]
        try:
            for turn in range(KILLS):
                time.sleep(self._draw.uniform(*ALIVE_S) + 3)
                if turn % 3 == 1:
                    self._broker.kill()
                for number in {0, 1} if turn % 3 == 2 else {self._draw.randrange(2)}:
                    counters[number].kill()
                    counters[number] = start(number)
                self._topics.fill("words", MESSAGES // 4)
                total += MESSAGES // 4
            wait_until(
                lambda: sum(len(each) for each in self._topics.read("counts")) >= total,
                f"{total} counts",
                FINISH_WAIT_S,
            )
        finally:
            for each in counters:
                each.kill()
        # Each value of a key has one count: 1, 2, 3, ... without a hole and without one twice.
        seen: dict[bytes | None, list[int]] = {}
        for partition in self._topics.read("counts"):
            for key, value in partition:
                seen.setdefault(key, []).append(int(value))
        words = Counter(key for partition in self._topics.read("words") for key, _ in partition)
        for key, count in words.items():
            assert seen[key] == list(range(1, count + 1)), f"{key!r}: {len(seen[key])} of {count}"

    def connect(self) -> None:
        """A source of Kafka Connect with exactly-once support whose worker is killed: each number is there once, in order."""
        self._topics.create("numbers")
        (port,) = free_ports(1)
        settings = self._folder / "connect.properties"
        values = {
            "bootstrap.servers": self._programs.bootstrap, "group.id": "connect", "listeners": f"http://127.0.0.1:{port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.topic": "connect-offsets", "offset.storage.replication.factor": "1", "offset.storage.partitions": "2",
            "config.storage.topic": "connect-configs", "config.storage.replication.factor": "1",
            "status.storage.topic": "connect-status", "status.storage.replication.factor": "1", "status.storage.partitions": "2",
            "exactly.once.source.support": "enabled", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500",
            "transaction.timeout.ms": "10000", "scheduled.rebalance.max.delay.ms": "1000",
        }  # fmt: skip
        settings.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        address = f"http://127.0.0.1:{port}/connectors"

        def start() -> Running:
            name = "org.apache.kafka.connect.cli.ConnectDistributed"
            return self._programs.start("connect", (*self._programs.java, name, str(settings)))

        worker = start()
        try:
            made = {
                "name": "numbers",
                "config": {"connector.class": "transactions.NumberSource", "tasks.max": "1", "topic": "numbers"},
            }  # fmt: skip
            wait_until(lambda: _asks(address, made), "the connector is made", FINISH_WAIT_S)
            for _ in range(KILLS // 2):
                before = self._count("numbers")
                wait_until(
                    lambda before=before: self._count("numbers") > before + NUMBERS_MIN // KILLS,
                    "numbers come", FINISH_WAIT_S,
                )  # fmt: skip
                worker.kill()
                worker = start()
            wait_until(lambda: self._count("numbers") > NUMBERS_MIN, "numbers come", FINISH_WAIT_S)
        finally:
            worker.kill()
        found = [int(value) for _, value in self._topics.read("numbers", 1)[0]]
        assert found == list(range(len(found))), _first_difference(found)

    def _count(self, topic: str) -> int:
        return sum(len(each) for each in self._topics.read(topic, 1))


def _asks(address: str, body: dict[str, Any]) -> bool:
    """Whether Connect takes the connector."""
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ASK_S) as answer:
            return answer.status == 201
    except OSError:
        return False


def _first_difference(found: list[int]) -> str:
    place = next(place for place, number in enumerate(found) if number != place)
    return f"at {place} of {len(found)}: {found[max(0, place - 2) : place + 3]}"

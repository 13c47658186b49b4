"""kill -9 under load: every acknowledged message is there, in order, once."""

import random
import threading
import time
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from zhumq.testing.process import BrokerProcess

SEED = 20261115
KILLS = 6
PARTITIONS = 2
SECONDS_MAX = 60.0
TOPIC = "t"


class Load:
    """An idempotent producer that writes numbers and remembers which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.sent = 0
        self.failed = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": int(SECONDS_MAX * 1_000),
            }
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    TOPIC,
                    value=b"%d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent += 1
            if self.sent % 100 == 0:
                self._producer.poll(0.001)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.acknowledged[message.partition()].append(int(message.value()))


def read_all(bootstrap: str, partition: int) -> list[int]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    where = TopicPartition(TOPIC, partition, 0)
    _, end = reader.get_watermark_offsets(where, SECONDS_MAX)
    reader.assign([where])
    values: list[int] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(values) < end:
        assert time.monotonic() < deadline
        for message in reader.consume(10_000, 0.5):
            assert message.error() is None
            assert message.offset() == len(values)
            values.append(int(message.value()))
    reader.close()
    return values


@pytest.mark.thorough
@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled_by_kill_9(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    broker = BrokerProcess(
        tmp_path,
        settings={
            "num.partitions": str(PARTITIONS),
            # Small segments and frequent checkpoints, so that kills hit rolls and checkpoints too.
            "log.segment.bytes": "262144",
            "log.flush.offset.checkpoint.interval.ms": "50",
        },
    )
    broker.start()
    try:
        with Load(broker.bootstrap) as load:
            for _ in range(KILLS):
                target = sum(map(len, load.acknowledged.values())) + draw.randrange(500, 5_000)
                deadline = time.monotonic() + SECONDS_MAX
                while sum(map(len, load.acknowledged.values())) < target:
                    assert time.monotonic() < deadline, "the producer makes no progress"
                    threading.Event().wait(0.001)
                broker.kill()
                broker.start()
        assert load.failed == 0
        for partition in range(PARTITIONS):
            stored = read_all(broker.bootstrap, partition)
            assert stored == load.acknowledged[partition]
            assert stored == list(range(partition, load.sent, PARTITIONS))
    finally:
        broker.kill()

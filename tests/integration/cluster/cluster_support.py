"""Traffic of a third-party client with a check of what it wrote; `zhumq` commands as processes."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from zhumq.testing.cluster import ClusterProcesses, wait_for

SETTLE_SECONDS_MAX: Final = 60.0
READ_SECONDS_MAX: Final = 60.0
ASK_SECONDS_MAX: Final = 5.0
REQUEST_MS_MAX: Final = 3_000
COMMAND_SECONDS_MAX: Final = 90.0
PAUSE_SECONDS: Final = 0.002  # between two messages: traffic, not a benchmark


def zhumq(*words: str) -> "subprocess.Popen[str]":
    """Start a command."""
    return subprocess.Popen(
        [sys.executable, "-m", "zhumq", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(*words: str) -> str:
    """The output of a command that has to succeed."""
    with zhumq(*words) as process:
        try:
            out, err = process.communicate(timeout=COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, err
    return out


def create_topic(
    cluster: ClusterProcesses,
    name: str,
    partitions: int = 1,
    replicas: int = 3,
    **settings: str,
) -> None:
    """Create a topic and wait until every partition has a leader. In names of settings `_` stands for a dot."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    topic = NewTopic(name, partitions, replicas, config=config)
    admin = cluster.admin()
    admin.create_topics([topic])[name].result(SETTLE_SECONDS_MAX)
    for index in range(partitions):
        cluster.wait_for_leader(name, index)


def set_mode(cluster: ClusterProcesses, topic: str, mode: str) -> None:
    admin = cluster.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("replication.mode", mode, incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(SETTLE_SECONDS_MAX)


def client_of(cluster: ClusterProcesses) -> dict[str, Any]:
    """librdkafka's settings for a client of the cluster."""
    return {"bootstrap.servers": cluster.bootstrap}


class Traffic:
    """A producer that writes numbers until it is stopped; idempotent with acks=-1."""

    def __init__(
        self, client: Mapping[str, Any], topic: str, *, acks: int = -1, first: int = 0
    ) -> None:
        self._topic = topic
        self._first = first
        self._producer = Producer(
            {
                **client,
                "enable.idempotence": acks == -1,
                "acks": acks,
                "linger.ms": 1,
                "delivery.timeout.ms": int(SETTLE_SECONDS_MAX * 1000),
                # A paused broker keeps its connections: the client must not wait for it for long.
                "request.timeout.ms": REQUEST_MS_MAX,
                "socket.timeout.ms": REQUEST_MS_MAX,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.acknowledged: list[int] = []
        self.failed: list[KafkaError] = []
        self.longest_gap_seconds = 0.0
        self._last_answer = time.monotonic()

    def start(self) -> None:
        self._last_answer = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, and wait until everything is answered."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        assert self._producer.flush(SETTLE_SECONDS_MAX) == 0

    def wait_for_more(self, count: int = 50) -> None:
        """Return when so many more messages have been acknowledged."""
        enough = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= enough or None, f"{count} more messages")

    def _write(self) -> None:
        number = self._first
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._answered)
            number += 1
            self._producer.poll(PAUSE_SECONDS)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        self.longest_gap_seconds = max(self.longest_gap_seconds, now - self._last_answer)
        self._last_answer = now
        if error is not None:
            self.failed.append(error)
            return
        value = message.value()
        assert value is not None
        self.acknowledged.append(int(value))


@contextlib.contextmanager
def traffic(cluster: ClusterProcesses, topic: str) -> Iterator[Traffic]:
    """Traffic for the length of the block; at the end the topic holds exactly what was acknowledged."""
    running = Traffic(client_of(cluster), topic)
    running.start()
    try:
        running.wait_for_more()
        yield running
        running.wait_for_more()
    finally:
        running.stop()
    assert running.failed == []
    found = read_numbers(client_of(cluster), topic)
    assert sorted(found) == sorted(set(found)), "a message is there twice"
    assert set(found) == set(running.acknowledged), "what was acknowledged is not what is there"


def read_numbers(client: Mapping[str, Any], topic: str) -> list[int]:
    """All numbers, from the beginning to the high watermark, as a new consumer reads them."""
    consumer = Consumer(
        {
            **client,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, SETTLE_SECONDS_MAX).topics[topic].partitions
        left: dict[int, int] = {}
        for index in partitions:
            low, high = wait_for(
                partial(_watermarks, consumer, TopicPartition(topic, index)),
                f"a leader of {topic}-{index} that knows where it ends",
            )
            if high > low:
                left[index] = high
        consumer.assign([TopicPartition(topic, index, 0) for index in left])
        numbers: list[int] = []
        deadline = time.monotonic() + READ_SECONDS_MAX
        while left:
            assert time.monotonic() < deadline, f"cannot read {topic} to its end: {left}"
            for index, offset in _positions(consumer, topic, left):
                if offset >= left[index]:
                    del left[index]
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                numbers.append(int(value))
        return numbers
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int] | None:
    try:
        return consumer.get_watermark_offsets(place, ASK_SECONDS_MAX)
    except KafkaException:
        return None  # The partition has no leader at this moment.


def _positions(consumer: Consumer, topic: str, left: dict[int, int]) -> list[tuple[int, int]]:
    """The consumer's positions, which may be after a control record."""
    places = consumer.position([TopicPartition(topic, index) for index in left])
    return [(place.partition, place.offset) for place in places]

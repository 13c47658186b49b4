"""Compacted topics with whole segments emptied, read by third-party clients from a real broker."""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 60.0
VALUE_BYTES = 100_000
REPETITIONS = 130  # twelve emptied segments: librdkafka gave up after about ten
KEYS = [b"same"] * REPETITIONS + [b"key-%d" % place for place in range(11)]
EXPECTED = list(enumerate(KEYS))[REPETITIONS - 1 :]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def compacting() -> Iterator[RunningBroker]:
    """A broker with one compacted topic for each codec, named after it."""
    with broker(settings={"log.cleaner.backoff.ms": "50"}) as running:
        for codec in CODECS:
            fill(running, codec)
        for codec in CODECS:
            wait_until_compacted(running.data_dir / f"{codec}-0")
        yield running


def fill(running: RunningBroker, codec: str) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
    }
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(codec, 1, 1, config=settings)])[codec].result(SECONDS_MAX)
    # Each codec shortens it a little, so that the producer uses it; ten of them fill a segment.
    value = random.Random(7).randbytes(VALUE_BYTES - 2000) + bytes(2000)
    producer = Producer(
        {"bootstrap.servers": running.bootstrap, "compression.type": codec, "linger.ms": 0}
    )
    for key in KEYS:
        producer.produce(codec, value, key)
        assert producer.flush(SECONDS_MAX) == 0


def log_bytes(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # Compaction replaces files meanwhile.
            total += path.stat().st_size
    return total


def wait_until_compacted(folder: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while log_bytes(folder) > 13 * VALUE_BYTES:
        assert time.monotonic() < deadline, f"{folder} is not compacted"
        time.sleep(0.02)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_is_left(compacting: RunningBroker, codec: str) -> None:
    reader = Consumer({"bootstrap.servers": compacting.bootstrap, "group.id": "librdkafka"})
    reader.assign([TopicPartition(codec, 0, 0)])
    found = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < len(EXPECTED):
        assert time.monotonic() < deadline, f"only {found} came"
        message = reader.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key()))
    reader.close()
    assert found == EXPECTED


# Its snappy and lz4 need packages that no other test here needs; conformance/ has them.
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_kafka_python_reads_what_is_left(compacting: RunningBroker, codec: str) -> None:
    reader = KafkaConsumer(
        codec,
        bootstrap_servers=compacting.bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(SECONDS_MAX * 1000),
    )
    found = []
    for message in reader:
        found.append((message.offset, message.key))
        if len(found) == len(EXPECTED):
            break
    reader.close()
    assert found == EXPECTED


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_is_left(compacting: RunningBroker, codec: str) -> None:
    async def scenario() -> list[tuple[int, bytes]]:
        reader = AIOKafkaConsumer(
            codec, bootstrap_servers=compacting.bootstrap, auto_offset_reset="earliest"
        )
        await reader.start()
        try:
            async with asyncio.timeout(SECONDS_MAX):
                messages = [await reader.getone() for _ in EXPECTED]
        finally:
            await reader.stop()
        return [(message.offset, message.key) for message in messages]

    assert asyncio.run(scenario()) == EXPECTED

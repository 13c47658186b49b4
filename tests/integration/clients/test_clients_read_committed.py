"""Other projects' consumers at read_committed see the committed records of a transactional topic, and only those."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import zhumq
from zhumq.host.clock import SystemClock
from zhumq.host.disk import SystemDisk
from zhumq.model.ids import TopicPartition
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType
from zhumq.storage.log_config import LogConfig
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.broker import RunningBroker, broker

TOPIC = "transactions"
SECONDS_MAX = 30.0
TRANSACTIONS = 40
NOW_MS = 1_700_000_000_000
LEVELS = ["read_committed", "read_uncommitted"]


def append_transactions(folder: Path) -> dict[str, list[bytes]]:
    """Interleaved transactions of three producers, every third of them aborted, the last one open, in several
    segments. Returns what the consumers of each level have to see behind the record in the log."""
    config = LogConfig(segment_bytes=2_000, index_interval_bytes=200)
    partition = TopicPartition(TOPIC, 0)
    log = SegmentedLog.open(
        str(folder), partition, config, disk=SystemDisk(), clock=SystemClock(), recovery_point=1
    )
    assert log.log_end_offset == 1
    committed: list[bytes] = []
    everything: list[bytes] = []
    sequences = dict.fromkeys(range(3), 0)

    def write(producer: int, value: bytes) -> None:
        log.producer_state.allow_transaction(producer, 0, log.producer_state.verification(producer))
        data = build_batch(
            [Record(timestamp=NOW_MS, value=value)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            is_transactional=True,
        )
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
        sequences[producer] += 1
        everything.append(value)

    for number in range(TRANSACTIONS):
        for producer in range(3):
            write(producer, b"%d first %d" % (number, producer))
        for producer in range(3):
            write(producer, b"%d second %d" % (number, producer))
        for producer in range(3):
            is_aborted = (number + producer) % 3 == 0
            log.append_marker(
                EndMarker(
                    marker_type=MarkerType.ABORT if is_aborted else MarkerType.COMMIT,
                    coordinator_epoch=0,
                ),
                producer_id=producer,
                producer_epoch=0,
                transaction_version=0,
                leader_epoch=0,
                now_ms=NOW_MS,
            )
        committed += [
            value for value in everything[-6:] if (number + int(value.split()[-1])) % 3 != 0
        ]
    write(0, b"open")
    log.close()
    return {"read_committed": committed, "read_uncommitted": everything}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[bytes]]:
    return {}


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, expected: dict[str, list[bytes]]
) -> Iterator[RunningBroker]:
    data_dir = tmp_path_factory.mktemp("transactions")
    with broker(data_dir=data_dir) as first:
        producer = confluent_kafka.Producer({"bootstrap.servers": first.bootstrap})
        producer.produce(TOPIC, b"before")
        producer.flush(SECONDS_MAX)
    expected.update(append_transactions(data_dir / f"{TOPIC}-0"))
    with broker(data_dir=data_dir) as again:
        yield again


@pytest.mark.parametrize("level", LEVELS)
def test_librdkafka(running: RunningBroker, expected: dict[str, list[bytes]], level: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": f"librdkafka-{level}",
            "isolation.level": level,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 1_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    seen: list[bytes] = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                break
            seen.append(message.value() or b"")
    finally:
        consumer.close()
    assert seen == [b"before", *expected[level]]


@pytest.mark.parametrize("level", LEVELS)
def test_kafka_python(running: RunningBroker, expected: dict[str, list[bytes]], level: str) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=running.bootstrap,
        isolation_level=level,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1_000,
    )
    try:
        partition = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        count = 1 + len(expected[level])
        seen: list[bytes] = []
        end = consumer.end_offsets([partition])[partition]
        while len(seen) < count or consumer.position(partition) < end:
            found = consumer.poll(timeout_ms=int(SECONDS_MAX * 1000))
            assert found or consumer.position(partition) == end
            seen += [record.value for record in found.get(partition, [])]
    finally:
        consumer.close()
    assert seen == [b"before", *expected[level]]


@pytest.mark.parametrize("level", LEVELS)
def test_aiokafka(running: RunningBroker, expected: dict[str, list[bytes]], level: str) -> None:
    async def consume() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=running.bootstrap,
            isolation_level=level,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=1_000,
        )
        await consumer.start()
        try:
            async with asyncio.timeout(SECONDS_MAX):
                return [(await consumer.getone()).value for _ in range(1 + len(expected[level]))]
        finally:
            await consumer.stop()

    assert asyncio.run(consume()) == [b"before", *expected[level]]


@pytest.mark.parametrize("level", LEVELS)
def test_a_subscription(
    running: RunningBroker, expected: dict[str, list[bytes]], level: Any
) -> None:
    """With few messages at a time, so that every read begins in the middle of transactions."""
    with zhumq.Consumer(
        TOPIC,
        group=f"subscription-{level}",
        mode="psb",
        isolation=level,
        credits=7,
        bootstrap=running.bootstrap,
    ) as consumer:
        seen: list[bytes] = []
        for message in consumer:
            seen.append(message.value or b"")
            if seen[-1] == expected[level][-1]:
                break
    assert seen == [b"before", *expected[level]]

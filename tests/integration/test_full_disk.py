"""A full disk, `kill -9` and a restart: the broker reports it, and recovers by itself."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.small_disk import figure, page, small_file_system, wait_for

from zhumq.testing.process import BrokerProcess, broker_process

SECONDS_MAX = 60.0
DISK_BYTES = 4 * 1024 * 1024
VALUE = b"x" * 10_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


def fill(folder: Path) -> Path:
    """Fill the disk."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"b" * size)
    return ballast


def send(process: BrokerProcess, *, timeout_ms: int = 60_000, count: int = 1) -> int:
    """How many of the messages, each in a batch of its own, were acknowledged."""
    sender = Producer(
        {
            "bootstrap.servers": process.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "message.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    acknowledged: list[None] = []
    for _ in range(count):
        sender.produce(
            "t",
            value=VALUE,
            callback=lambda error, _m: acknowledged.append(None) if error is None else None,
        )
        sender.flush(SECONDS_MAX)
    return len(acknowledged)


def read_all(process: BrokerProcess) -> list[bytes]:
    reader = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "x", "log_level": 0})
    where = TopicPartition("t", 0, 0)
    _, end = reader.get_watermark_offsets(where, SECONDS_MAX)
    reader.assign([where])
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(values) < end:
        assert time.monotonic() < deadline, f"{len(values)} of {end}"
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    reader.close()
    return values


@pytest.mark.thorough
def test_after_kill_9_on_a_full_disk_a_partition_comes_back_by_itself(small_disk: Path) -> None:
    with broker_process(small_disk) as process:
        sent = send(process, count=20)
        assert sent == 20
        process.kill()
        # The indexes have to be rebuilt, and there is no room for them.
        for path in (small_disk / "t-0").glob("*index"):
            path.unlink()
        ballast = fill(small_disk)
        process.start()
        assert read_all(process) == [VALUE] * sent
        assert send(process, timeout_ms=500) == 0
        ballast.unlink()
        assert send(process) == 1
        assert read_all(process) == [VALUE] * (sent + 1)
        assert process.stop() == 0


@pytest.mark.thorough
def test_a_log_that_cannot_be_opened_without_room_is_opened_when_there_is_some(
    small_disk: Path,
) -> None:
    with broker_process(small_disk) as process:
        assert send(process, count=20) == 20
        process.kill()
        # Damage in the middle has to be recorded on disk before the rest can be served.
        log = small_disk / "t-0" / f"{0:020d}.log"
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 1
        log.write_bytes(content)
        ballast = fill(small_disk)
        process.start()
        assert figure(process, "zhumq_partitions_offline") == 1
        assert "t-0" in page(process, "/healthz")
        ballast.unlink()
        wait_for(
            lambda: figure(process, "zhumq_partitions_offline") == 0 or None, "partition online"
        )
        assert send(process) == 1
        assert page(process, "/healthz") == "degraded\n1 partitions are damaged on this disk: t-0\n"
        assert process.stop() == 0


def test_a_full_disk_is_in_the_log_in_healthz_and_in_the_metrics(small_disk: Path) -> None:
    with broker_process(small_disk) as process:
        assert send(process) == 1
        assert page(process, "/healthz") == "ok\n"
        assert figure(process, "zhumq_disk_full") == 0
        assert 0 < figure(process, "zhumq_disk_free_bytes") <= DISK_BYTES
        ballast = fill(small_disk)
        assert send(process, timeout_ms=1_000) == 0
        wait_for(lambda: figure(process, "zhumq_disk_full") == 1 or None, "metric of the full disk")
        assert figure(process, "zhumq_disk_free_bytes") == 0
        assert "no room" in page(process, "/healthz")
        ballast.unlink()
        wait_for(lambda: figure(process, "zhumq_disk_full") == 0 or None, "room")
        assert page(process, "/healthz") == "ok\n"
        # Once for each change, however many writes were refused.
        assert process.log.count("the broker refuses messages until there is space") == 1
        assert process.log.count("the disk has space again") == 1
        assert process.stop() == 0

"""Damage to files between a kill and a restart: what recovery cuts, keeps and logs."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from zhumq.testing.process import BrokerProcess

SECONDS_MAX = 30.0
COUNT = 50
LOG = "t-0/00000000000000000000.log"
INDEX = "t-0/00000000000000000000.index"
TIME_INDEX = "t-0/00000000000000000000.timeindex"


@pytest.fixture
def killed(tmp_path: Path) -> BrokerProcess:
    """A broker that was killed after it had acknowledged COUNT batches of one message each."""
    process = BrokerProcess(tmp_path / "data")
    process.start()
    sender = Producer({"bootstrap.servers": process.bootstrap, "acks": "all", "linger.ms": 0})
    for index in range(COUNT):
        sender.produce("t", value=b"value-%03d-" % index + b"x" * 200)
        assert sender.flush(SECONDS_MAX) == 0
    process.kill()
    return process


def read(bootstrap: str, start: int, stop: int) -> list[int]:
    """The numbers of the messages from one offset up to another."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "check.crcs": True, "log_level": 0}
    )
    reader.assign([TopicPartition("t", 0, start)])
    numbers: list[int] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(numbers) < stop - start:
        assert time.monotonic() < deadline, f"only {numbers}"
        message = reader.poll(0.2)
        if message is not None and message.error() is None and message.offset() < stop:
            numbers.append(int(message.value()[6:9]))
    reader.close()
    return numbers


def end_offset(bootstrap: str) -> int:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    _, end = reader.get_watermark_offsets(TopicPartition("t", 0), SECONDS_MAX)
    reader.close()
    return end


def flip_a_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def batch_positions(path: Path) -> list[int]:
    content = path.read_bytes()
    positions, position = [], 0
    while position < len(content):
        positions.append(position)
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    return positions


def test_everything_acknowledged_survives_the_kill(killed: BrokerProcess) -> None:
    killed.start()
    assert read(killed.bootstrap, 0, COUNT) == list(range(COUNT))
    assert killed.stop() == 0


def test_a_torn_last_batch_is_cut_and_logged(killed: BrokerProcess) -> None:
    log = killed.data_dir / LOG
    log.write_bytes(log.read_bytes()[:-7])
    killed.start()
    assert end_offset(killed.bootstrap) == COUNT - 1
    assert read(killed.bootstrap, 0, COUNT - 1) == list(range(COUNT - 1))
    assert "t-0" in killed.log
    assert killed.stop() == 0


def test_a_bit_flip_in_the_last_batch_cuts_it_and_keeps_its_bytes_aside(
    killed: BrokerProcess,
) -> None:
    log = killed.data_dir / LOG
    last = batch_positions(log)[-1]
    flip_a_bit(log, last + 80)
    damaged = log.read_bytes()[last:]
    killed.start()
    assert end_offset(killed.bootstrap) == COUNT - 1
    (kept,) = (killed.data_dir / "t-0").glob("*.cut*")
    assert damaged in kept.read_bytes()
    assert killed.stop() == 0


def test_a_bit_flip_in_the_middle_is_reported_and_everything_around_it_is_served(
    killed: BrokerProcess,
) -> None:
    log = killed.data_dir / LOG
    flip_a_bit(log, batch_positions(log)[20] + 80)
    killed.start()
    assert end_offset(killed.bootstrap) == COUNT
    assert read(killed.bootstrap, 0, 20) == list(range(20))
    assert read(killed.bootstrap, 21, COUNT) == list(range(21, COUNT))
    reader = Consumer({"bootstrap.servers": killed.bootstrap, "group.id": "x", "log_level": 0})
    reader.assign([TopicPartition("t", 0, 20)])
    deadline = time.monotonic() + SECONDS_MAX
    while (message := reader.poll(0.2)) is None:
        assert time.monotonic() < deadline
    assert message.error() is not None
    assert message.error().code() in (KafkaError.INVALID_MSG, KafkaError._BAD_MSG)
    reader.close()
    assert "ERROR" in killed.log
    sender = Producer({"bootstrap.servers": killed.bootstrap, "acks": "all"})
    sender.produce("t", value=b"value-%03d-" % COUNT)
    assert sender.flush(SECONDS_MAX) == 0
    assert read(killed.bootstrap, 21, COUNT + 1) == list(range(21, COUNT + 1))
    assert killed.stop() == 0


@pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("damage", ["missing", "garbage", "odd length"])
def test_an_index_that_is_missing_or_corrupt_is_made_anew(
    killed: BrokerProcess, name: str, damage: str
) -> None:
    index = killed.data_dir / name
    if damage == "missing":
        index.unlink()
    elif damage == "garbage":
        index.write_bytes(b"\xff" * 48)
    else:
        index.write_bytes(b"\x00\x00\x00")
    killed.start()
    assert read(killed.bootstrap, 0, COUNT) == list(range(COUNT))
    assert read(killed.bootstrap, 30, COUNT) == list(range(30, COUNT))
    assert killed.stop() == 0


def test_an_empty_segment_is_no_trouble(killed: BrokerProcess) -> None:
    (killed.data_dir / f"t-0/{COUNT:020d}.log").touch()
    killed.start()
    assert end_offset(killed.bootstrap) == COUNT
    assert read(killed.bootstrap, 0, COUNT) == list(range(COUNT))
    assert killed.stop() == 0

"""Watermarks on a small disk that several topics fill: what goes, in which order, and what is refused."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.integration.cli.cli_support import Cli
from tests.integration.small_disk import figure, page, small_file_system, wait_for

from zhumq.host.disk import SystemDisk
from zhumq.testing.process import BrokerProcess, broker_process

DISK_BYTES = 16 * 1024 * 1024
SEGMENT_BYTES = 128 * 1024
SECONDS_MAX = 60.0
SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "log.segment.bytes": str(SEGMENT_BYTES),
    # Each has its files, and this disk has little room.
    "offsets.topic.num.partitions": "1",
}
DELETED = re.compile(
    r"(\w+)-0: deleted offsets (\d+) to (\d+), \d+ bytes, newest record of (\S+): (.*)"
)
Sent = dict[tuple[str, int], bytes]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    with small_file_system(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


class Sender:
    """Sends one message after the other, and remembers those that were acknowledged."""

    def __init__(self, process: BrokerProcess, timeout_ms: int = 60_000) -> None:
        self.sent: Sent = {}
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": process.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": timeout_ms,
                "log_level": 0,
            }
        )

    def send(self, topic: str, count: int) -> None:
        for number in range(count):
            value = f"{topic} {number} {time.time_ns()} ".encode().ljust(10_000, b".")

            def settle(error: KafkaError | None, message: Any, value: bytes = value) -> None:
                if error is None:
                    self.sent[message.topic(), message.offset()] = value
                else:
                    self.errors.append(error)

            self._producer.produce(topic, value=value, partition=0, callback=settle)
            self._producer.flush(SECONDS_MAX)


def read_all(process: BrokerProcess, topic: str) -> dict[int, bytes]:
    """Every message of the topic by offset, from where the log begins."""
    reader = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "all", "log_level": 0})
    start, end = reader.get_watermark_offsets(TopicPartition(topic, 0), SECONDS_MAX)
    reader.assign([TopicPartition(topic, 0, start)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < end - start:
        assert time.monotonic() < deadline, f"{topic}: {len(found)} of {end - start}"
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found[message.offset()] = message.value()
    reader.close()
    assert list(found) == list(range(start, end))
    return found


def check_nothing_corrupt(process: BrokerProcess, sent: Sent) -> None:
    for topic in {name for name, _ in sent}:
        for offset, value in read_all(process, topic).items():
            assert sent[topic, offset] == value


def deletions(process: BrokerProcess) -> list[tuple[str, int, str, str]]:
    """Of each deleted segment, in the order of the log: topic, first offset, newest record, reason."""
    return [
        (found[1], int(found[2]), found[4], found[5])
        for found in map(DELETED.search, process.log.splitlines())
        if found is not None
    ]


def time_of(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")


def explained(cli: Cli, topic: str) -> Any:
    return cli.must("topic", "retention", topic, "--explain", "--json").document


def going(document: Any) -> list[int]:
    now_ms = document["disks"][0]["now_ms"]
    return [
        each["first_offset"]
        for each in document["segments"]
        if each["goes_at_ms"] is not None and each["goes_at_ms"] <= now_ms
    ]


def used_percent(folder: Path) -> float:
    usage = SystemDisk().usage(str(folder))
    return 100 * usage.used_bytes / usage.total_bytes


def fill_to(folder: Path, percent: int) -> Path:
    """A file that fills the disk to this percentage."""
    ballast = folder / "ballast"
    missing = int(DISK_BYTES * (percent - used_percent(folder)) / 100)
    ballast.write_bytes(b"b" * missing)
    return ballast


@pytest.mark.thorough
def test_the_oldest_segments_of_a_full_disk_go_first_whatever_their_topic(
    small_disk: Path,
) -> None:
    with broker_process(small_disk, settings=SETTINGS) as process:
        cli = Cli(process.bootstrap)
        for name, settings in (
            ("old", ()),
            ("young", ()),
            ("forever", ("--set", "retention.ms=-1")),
            ("latest", ("--set", "cleanup.policy=compact")),
        ):
            cli.must("topic", "create", name, *settings)
        sender = Sender(process)
        sender.send("forever", 40)
        # Their segments take turns: the oldest of the disk is one of the first, then of the second.
        for _ in range(5):
            sender.send("old", 40)
            sender.send("young", 40)
        before = explained(cli, "old")
        assert going(before) == []
        assert before["disks"][0]["forced_percent"] == 85
        assert {each["protection"] for each in before["segments"]} == {None, "active segment"}
        assert {each["reason"] for each in before["segments"]} == {"retention.ms"}
        kept = explained(cli, "forever")
        assert {each["protection"] for each in kept["segments"]} == {"topic without a limit"}
        assert deletions(process) == []

        # More messages than the disk has room for.
        sender.send("young", 1_400)
        assert sender.errors == []
        wait_for(lambda: used_percent(small_disk) < 85 or None, "disk below its mark")
        gone = deletions(process)
        assert {reason for *_, reason in gone} == {"among the oldest of a disk that is too full"}
        assert {topic for topic, *_ in gone} == {"old", "young"}
        # Oldest first, over both topics: whatever may still go is younger than what is gone.
        newest_gone = max(newest for _, _, newest, _ in gone)
        for topic in ("old", "young"):
            firsts = [first for name, first, _, _ in gone if name == topic]
            assert firsts == sorted(firsts)
            for each in explained(cli, topic)["segments"]:
                assert each["protection"] or time_of(each["newest_ms"]) >= newest_gone
        counted = f'zhumq_retention_segments_total{{reason="disk"}} {len(gone)}'
        assert counted in page(process, "/metrics")
        # The same command: what is left is what was there before without what is gone.
        gone_of_old = {first for topic, first, *_ in gone if topic == "old"}
        # Only what was listed as unprotected before is gone.
        assert gone_of_old
        assert gone_of_old <= {
            each["first_offset"] for each in before["segments"] if each["protection"] is None
        }
        assert [each["first_offset"] for each in explained(cli, "old")["segments"]] == [
            each["first_offset"]
            for each in before["segments"]
            if each["first_offset"] not in gone_of_old
        ]
        assert len(read_all(process, "forever")) == 40
        check_nothing_corrupt(process, sender.sent)
        process.kill()
        process.start()
        check_nothing_corrupt(process, sender.sent)
        assert process.stop() == 0


@pytest.mark.thorough
def test_messages_are_refused_above_the_highest_mark_while_consumers_go_on(
    small_disk: Path,
) -> None:
    with broker_process(small_disk, settings=SETTINGS) as process:
        cli = Cli(process.bootstrap)
        cli.must("topic", "create", "orders")
        sender = Sender(process)
        sender.send("orders", 100)
        ballast = fill_to(small_disk, 92)
        wait_for(lambda: figure(process, "zhumq_disk_writes_refused") == 1 or None, "refusal")
        assert "this broker takes no messages until it is below 88 %" in page(process, "/healthz")
        refused = Sender(process, timeout_ms=1_000)
        refused.send("orders", 1)
        assert refused.sent == {}
        assert [error.name() for error in refused.errors] == ["_MSG_TIMED_OUT"]
        # The other files are the reason, so no message goes.
        found = explained(cli, "orders")
        assert found["disks"][0]["refuses_writes"]
        assert found["disks"][0]["beyond_help"]
        assert going(found) == []
        assert deletions(process) == []

        # A group reads and commits.
        reader = Consumer(
            {
                "bootstrap.servers": process.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        reader.subscribe(["orders"])
        message = wait_for(lambda: reader.poll(0.2), "message")
        reader.commit(message, asynchronous=False)
        (committed,) = reader.committed([TopicPartition("orders", 0)], SECONDS_MAX)
        assert committed.offset == 1
        reader.close()

        # A message that waits in a producer is taken as soon as there is room.
        ballast.unlink()
        sender.send("orders", 1)
        assert sender.errors == []
        assert page(process, "/healthz") == "ok\n"
        assert process.log.count("this broker takes no messages until") == 1
        assert process.log.count("messages are taken again") == 1
        check_nothing_corrupt(process, sender.sent)
        assert process.stop() == 0


@pytest.mark.thorough
def test_a_disk_that_messages_fill_between_two_looks_is_made_room_on(small_disk: Path) -> None:
    settings = {
        **SETTINGS,
        "log.retention.check.interval.ms": "3000",
        "disk.watermark.refused.percent": "100",
    }
    with broker_process(small_disk, settings=settings) as process:
        sender = Sender(process)
        ballast = fill_to(small_disk, 60)
        sender.send("orders", 1_000)
        assert sender.errors == []
        assert "the broker refuses messages until there is space" in process.log
        assert {reason for *_, reason in deletions(process)} == {
            "among the oldest of a disk that is too full"
        }
        ballast.unlink()
        check_nothing_corrupt(process, sender.sent)
        process.kill()
        process.start()
        check_nothing_corrupt(process, sender.sent)
        assert process.stop() == 0


def test_expired_segments_wait_for_their_hour_unless_space_is_short(small_disk: Path) -> None:
    # An hour that begins in three hours: UTC, so that the test does not depend on the zone.
    start = time.strftime("%H:%M", time.gmtime(time.time() + 3 * 3600))
    settings = {**SETTINGS, "log.retention.delete.at": start}
    with broker_process(small_disk, settings=settings, environment={"TZ": "UTC"}) as process:
        cli = Cli(process.bootstrap)
        cli.must("topic", "create", "orders", "--set", "retention.ms=1")
        sender = Sender(process)
        sender.send("orders", 50)
        found = explained(cli, "orders")
        assert found["disks"][0]["delete_at"] == start
        assert going(found) == []
        first = found["segments"][0]
        wait_ms = first["goes_at_ms"] - found["disks"][0]["now_ms"]
        assert 2 * 3_600_000 < wait_ms <= 3 * 3_600_000
        assert deletions(process) == []
        ballast = fill_to(small_disk, 78)
        wait_for(lambda: deletions(process) or None, "deletion of expired segments")
        wait_for(lambda: list((small_disk / "orders-0").glob("*.deleted")) == [] or None, "room")
        assert {reason for *_, reason in deletions(process)} == {"older than retention.ms=1"}
        ballast.unlink()
        assert process.stop() == 0

"""Members of a group join and leave all the time: nothing is lost, skipped, or read backwards."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from zhumq.testing.process import broker_process

# `make million` runs this with a million.
MESSAGES = int(os.environ.get("ZHUMQ_CHURN_MESSAGES", "60000"))
SECONDS_MAX = 60 + MESSAGES / 2_000
PROGRAM = Path(__file__).with_name("group_traffic.py")
PARTITIONS = 6
MEMBERS = 3
STAYS = 10  # about how often each reader joins and leaves


def run(*arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


class Commits:
    """Watches the committed offsets of a group and remembers every step back."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.steps_back: list[str] = []
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        self._partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]

    def close(self) -> None:
        self._reader.close()

    def look(self) -> int:
        """The sum of all committed offsets."""
        for each in self._reader.committed(self._partitions, timeout=30):
            offset = max(each.offset, 0)
            before = self.committed[each.partition]
            if offset < before:
                self.steps_back.append(f"partition {each.partition}: {before} -> {offset}")
            self.committed[each.partition] = offset
        return sum(self.committed.values())


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX * 2)
@pytest.mark.parametrize(
    "client",
    ["confluent-kafka", "confluent-kafka-consumer-protocol", "kafka-python", "aiokafka"],
)
def test_nothing_is_lost_while_members_come_and_go(client: str, tmp_path: Path) -> None:
    topic, group = "numbers", "readers"
    settings = {
        "num.partitions": str(PARTITIONS),
        # Members of the consumer protocol learn of assignments with their heartbeats.
        "group.consumer.heartbeat.interval.ms": "300",
    }
    with broker_process(tmp_path, settings=settings) as broker:
        # Before any member subscribes: a consumer does not wait for a topic that does not exist yet.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
        producer = run("produce", client, broker.bootstrap, topic, PARTITIONS, MESSAGES)
        members = [
            run(
                *("consume", client, broker.bootstrap, topic, group, seed),
                MESSAGES // (MEMBERS * STAYS),
                stdin=subprocess.PIPE,
            )
            for seed in range(MEMBERS)
        ]
        stays: list[dict[str, object]] = []
        readers = [threading.Thread(target=collect, args=(each, stays)) for each in members]
        for reader in readers:
            reader.start()
        commits = Commits(broker.bootstrap, topic, group)
        deadline = time.monotonic() + SECONDS_MAX
        try:
            while commits.look() < MESSAGES:
                assert time.monotonic() < deadline, f"stuck at {commits.committed}"
                for member in members:
                    assert member.poll() is None, "a member failed"
            assert producer.wait(30) == 0
        finally:
            commits.close()
            for process in [producer, *members]:
                end(process)
            for reader in readers:
                reader.join()
            for process in [producer, *members]:
                process.stdout.close()
        assert commits.steps_back == []
        check_coverage(stays)
        assert len(stays) >= MEMBERS * 2, "members were meant to come and go"


def end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)


def collect(member: subprocess.Popen[str], stays: list[dict[str, object]]) -> None:
    assert member.stdout is not None
    stays.extend(json.loads(line) for line in member.stdout)


def check_coverage(stays: list[dict[str, object]]) -> None:
    """Every offset of every partition was read by a member."""
    for partition in range(PARTITIONS):
        ranges = sorted(
            (first, end)
            for stay in stays
            for index, first, end in stay["ranges"]
            if index == partition
        )
        reached = 0
        for first, end in ranges:
            assert first <= reached, f"partition {partition}: {reached} to {first} was never read"
            reached = max(reached, end)
        assert reached == len(range(partition, MESSAGES, PARTITIONS))

"""What grows with delayed messages and what does not: memory, the log of a shard, the files of its index."""

import time
import urllib.request
from pathlib import Path

import pytest
from delay_support import SETTINGS, TOPIC, create_topic, read_all, wait_for, wait_for_messages

import zhumq
from zhumq.delays.due_index import BLOCK_ENTRIES, RUN_ENTRIES_MIN
from zhumq.testing.broker import broker
from zhumq.testing.process import BrokerProcess

PENDING = 30_000
COUNT = 60
BODY = bytes(5_000)
ONE_SHARD = {"delayed.message.topic.num.partitions": "1"}
SMALL = {
    "delayed.message.topic.segment.bytes": "40000",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.roll.ms": "1000",
}


def metric(http: str, name: str) -> float:
    with urllib.request.urlopen(f"http://{http}/metrics") as answer:
        (line,) = (
            line for line in answer.read().decode().splitlines() if line.startswith(f"{name} ")
        )
    return float(line.split()[1])


@pytest.mark.thorough
def test_a_shard_holds_few_of_its_pending_messages_in_memory(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "broker", settings=SETTINGS | ONE_SHARD)
    process.start()
    try:
        create_topic(process.bootstrap)
        with zhumq.Producer(process.bootstrap, settings={"linger.ms": 50}) as producer:
            for number in range(PENDING):
                producer.send(TOPIC, b"%d" % number, delay=3600 + number * 7919 % 86_400)
        for _ in range(2):
            wait_for(
                lambda: metric(process.http, "zhumq_delayed_messages_pending") == PENDING,
                "all are pending",
            )
            runs = list((tmp_path / "broker" / "delayed-runs").glob("*/*.run"))
            in_memory = metric(process.http, "zhumq_delayed_messages_in_memory")
            assert in_memory <= 2 * RUN_ENTRIES_MIN + BLOCK_ENTRIES * len(runs)
            assert 1 <= len(runs) <= PENDING // RUN_ENTRIES_MIN
            # A new process deletes the files, and reads the messages from the log again.
            process.kill()
            process.start()
        with zhumq.Admin(process.bootstrap) as admin:
            found = admin.scheduled(TOPIC, limit=100_000).messages
        assert sorted(each.offset for each in found) == list(range(PENDING))
    finally:
        process.kill()


@pytest.mark.slow
def test_messages_that_ended_leave_the_log_of_their_shard(tmp_path: Path) -> None:
    def segment_bytes() -> int:
        folder = tmp_path / "__delayed_messages-0"
        return sum(each.stat().st_size for each in folder.glob("*.log"))

    with broker(data_dir=tmp_path, settings=SETTINGS | ONE_SHARD | SMALL) as running:
        create_topic(running.bootstrap)
        with zhumq.Producer(running.bootstrap) as producer:
            producer.send(TOPIC, b"far", delay=3600)
            for _ in range(COUNT):
                producer.send(TOPIC, BODY, delay=0.5)
            producer.flush()
            wait_for_messages(running.bootstrap, COUNT)

            def is_compacted() -> bool:
                producer.send(TOPIC, b"filler", delay=0.1)  # The active segment is not compacted.
                producer.flush()
                time.sleep(0.1)  # The pace of the fillers; nothing waits for it.
                return segment_bytes() < COUNT * len(BODY) // 2

            wait_for(is_compacted, "the bodies of delivered messages are gone")
    # What is left is loaded from the compacted log.
    with broker(data_dir=tmp_path, settings=SETTINGS | ONE_SHARD | SMALL) as running:
        with zhumq.Admin(running.bootstrap) as admin:
            wait_for(lambda: len(admin.scheduled(TOPIC).messages) == 1, "only one is left")
        values = [each.value for each in read_all(running.bootstrap)]
        assert values.count(BODY) == COUNT
        assert b"far" not in values
        wait_for(
            lambda: metric(running.http, "zhumq_delayed_messages_pending") == 1,
            "the count is right",
        )

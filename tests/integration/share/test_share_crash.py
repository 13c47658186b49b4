"""kill -9 under load: every message ends in exactly one of acknowledged, dead-lettered, pending."""

import random
import time
from pathlib import Path

import pytest
from share_member import produce, topic_id_of
from share_workers import Verdict, Worker, start_offsets

from zhumq.testing.process import BrokerProcess

SEED = 20261115
MESSAGES = 600
BATCH = 50
MEMBERS = 3
KILLS = 4
SECONDS_MAX = 90.0
SETTINGS = {
    "group.share.auto.offset.reset": "earliest",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": "3",
    "share.coordinator.state.topic.num.partitions": "2",
}


@pytest.mark.thorough
def test_every_message_is_acknowledged_or_a_dead_letter_after_many_kills(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    process.start()
    draw = random.Random(SEED)
    workers: list[Worker] = []
    try:
        topic_id = topic_id_of(process.bootstrap, "t")
        for begin in range(0, MESSAGES, BATCH):
            produce(process.bootstrap, topic_id, [b"%d" % (begin + i) for i in range(BATCH)])
        workers += [
            Worker(number, "g", topic_id, 1, lambda _: process.bootstrap, seed=SEED)
            for number in range(MEMBERS)
        ]
        for worker in workers:
            worker.start(workers)
        deadline = time.monotonic() + SECONDS_MAX
        for kill in range(KILLS):
            enough = MESSAGES * (kill + draw.random()) / (KILLS + 1)
            while sum(len(worker.accepted) for worker in workers) < enough:
                assert time.monotonic() < deadline
                workers[0].thread.join(0.005)
            process.kill()
            process.start()
        while start_offsets(process.bootstrap, "g") != {0: MESSAGES}:
            assert time.monotonic() < deadline, "nothing is pending in the end"
            workers[0].thread.join(0.05)
        for worker in workers:
            worker.stop()
        verdict = Verdict(workers, process.bootstrap, "t", 1)
        verdict.check({(0, offset) for offset in range(MESSAGES)})
        assert verdict.dead, "some were rejected"
    finally:
        for worker in workers:
            worker._stop.set()
        process.kill()

"""Compaction of `__half_messages`: bodies of ended messages go, those of pending ones stay where they are."""

from pathlib import Path

from half_support import SETTINGS, listed, wait_for, wait_for_values

import zhumq
from zhumq.admin.half_messages import show_half_message
from zhumq.testing.broker import broker

COUNT = 60
BODY = bytes(5_000)
SMALL = {
    "half.message.topic.num.partitions": "1",
    "half.message.topic.segment.bytes": "40000",
    "half.message.check.first.ms": "60000",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.roll.ms": "1000",
}


def segment_bytes(data_dir: Path) -> int:
    return sum(each.stat().st_size for each in (data_dir / "__half_messages-0").glob("*.log"))


def test_a_pending_message_survives_the_compaction_of_the_others(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path, settings=SETTINGS | SMALL) as running:
        with zhumq.Admin(running.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        with zhumq.HalfMessageProducer(running.bootstrap, group="g", check=None) as producer:
            first = producer.prepare("t", "first", key="k")
            for number in range(COUNT):
                half = producer.prepare("t", BODY)
                if number == COUNT // 2:
                    middle = producer.prepare("t", "middle")
                if number % 2:
                    half.commit()
                else:
                    half.rollback()

            def is_compacted() -> bool:
                producer.prepare("t", "filler").rollback()  # The active segment is not compacted.
                return segment_bytes(tmp_path) < COUNT * len(BODY) // 2

            wait_for(is_compacted, "the bodies of ended messages are gone")
            with zhumq.Admin(running.bootstrap) as admin:
                assert show_half_message(admin, first.id).value == b"first"
            first.commit()
    with broker(data_dir=tmp_path, settings=SETTINGS | SMALL) as running:
        assert listed(running.bootstrap).keys() == {middle.id}
        with zhumq.HalfMessageProducer(running.bootstrap, group="g", check=None) as producer:
            producer.decide(middle.id, is_commit=True)
        wait_for_values(running.bootstrap, "t", {b"first": 1, b"middle": 1, BODY: COUNT // 2})

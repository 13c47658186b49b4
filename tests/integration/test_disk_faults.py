"""A full disk and a disk that cannot sync: no false acknowledgement, no loss, service goes on."""

import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.faulty_disk import FaultyDisk

SECONDS_MAX = 30.0


def producer(running: RunningBroker, **config: object) -> Producer:
    return Producer(
        {"bootstrap.servers": running.bootstrap, "acks": "all", "linger.ms": 0, **config}
    )


def read(running: RunningBroker, topic: str) -> list[bytes]:
    reader = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "check"})
    where = TopicPartition(topic, 0, 0)
    _, end = reader.get_watermark_offsets(where, SECONDS_MAX)
    reader.assign([where])
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(values) < end:
        assert time.monotonic() < deadline
        values.extend(message.value() for message in reader.consume(100, 0.2))
    reader.close()
    return values


def test_a_full_disk_is_waited_out_by_the_client_and_nothing_is_lost(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with broker(data_dir=tmp_path, disk=disk) as running:
        sender = producer(running, **{"enable.idempotence": True, "retry.backoff.ms": 20})
        sender.produce("t", value=b"before")
        assert sender.flush(SECONDS_MAX) == 0
        refused = threading.Event()

        def full(path: str) -> bool:
            if path.endswith(".log"):
                refused.set()
                return True
            return False

        disk.is_full = full
        outcomes: list[object] = []
        for value in (b"during-1", b"during-2"):
            sender.produce("t", value=value, callback=lambda error, _m: outcomes.append(error))
        assert refused.wait(SECONDS_MAX)
        assert outcomes == []
        assert read(running, "t") == [b"before"]
        disk.is_full = lambda _path: False
        assert sender.flush(SECONDS_MAX) == 0
        assert outcomes == [None, None]
        assert read(running, "t") == [b"before", b"during-1", b"during-2"]


def test_a_failed_sync_is_never_acknowledged_and_ends_that_partition_only(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with broker(data_dir=tmp_path, disk=disk) as running:
        sender = producer(running)
        for topic in ("bad", "good"):
            sender.produce(topic, value=b"before")
        assert sender.flush(SECONDS_MAX) == 0
        disk.cannot_sync = lambda path: "/bad-0/" in path
        strict = producer(running, **{"message.timeout.ms": 1_500, "retry.backoff.ms": 50})
        outcomes: dict[str, object] = {}
        for topic in ("bad", "good"):
            strict.produce(
                topic,
                value=b"after",
                callback=lambda error, message: outcomes.update({message.topic(): error}),
            )
        strict.flush(SECONDS_MAX)
        assert outcomes["good"] is None
        assert outcomes["bad"] is not None
        # The pages may be lost even if a later sync succeeds: only a restart recovers the partition.
        disk.cannot_sync = lambda _path: False
        outcomes.clear()
        strict.produce(
            "bad", value=b"later", callback=lambda error, _m: outcomes.update({"bad": error})
        )
        strict.flush(SECONDS_MAX)
        assert outcomes["bad"] is not None
        assert read(running, "good") == [b"before", b"after"]
    with broker(data_dir=tmp_path) as running:
        assert read(running, "bad")[0] == b"before"
        again = producer(running)
        again.produce("bad", value=b"again")
        assert again.flush(SECONDS_MAX) == 0
        assert read(running, "bad")[-1] == b"again"

"""Memory of a broker that loads many pending delayed messages and compacts their logs; `make pending-delays`.

The messages are written into the logs of a broker that is stopped, which is less work than to send them.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.delay_brokers import Memory, metric
from benchmarks.delays import (
    DAY_MS,
    FAR_MS,
    GROWTH_MB_MAX,
    PARTITIONS,
    SEED,
    TOPIC,
    VALUE_BYTES,
    now_ms,
    send,
)
from zhumq import Admin
from zhumq.delays.persisted import MESSAGE, MESSAGE_KEY, Source, message_record
from zhumq.host.clock import SystemClock
from zhumq.host.disk import SystemDisk
from zhumq.model.delay_headers import DELIVER_AT_HEADER
from zhumq.model.ids import DELAYED_MESSAGES_TOPIC, ZERO_UUID, TopicPartition
from zhumq.protocol.messages.delays import DelayedHeader, DelayedRecord
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.storage.log_config import CleanupPolicy, LogConfig
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.process import BrokerProcess, broker_process

SHARDS: Final = 4
FIRST: Final = 1_000  # messages that are sent; what they need is not counted
FIRST_SERIAL: Final = 10_000  # behind those that were sent
BATCH: Final = 500
SEGMENT_BYTES: Final = 100 << 20
LOOK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 40.0  # Compaction looks for work every 15 s.


def write_pending(folder: Path, shard: int, count: int) -> None:
    """Append so many messages to the log of a shard, as the shard does. Its broker must not run."""
    draw = random.Random(SEED + shard)
    now, start = now_ms(), now_ms() + FAR_MS
    log = SegmentedLog.open(
        str(folder / f"{DELAYED_MESSAGES_TOPIC}-{shard}"),
        TopicPartition(DELAYED_MESSAGES_TOPIC, shard),
        LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=frozenset({CleanupPolicy.COMPACT})),
        disk=SystemDisk(),
        clock=SystemClock(),
    )
    # Only the keys differ: each has its due time and a serial number.
    value = message_record(
        0,
        TOPIC,
        Source(ZERO_UUID, 0),
        now,
        DelayedRecord(
            due_ms=start,
            offset=0,
            key=None,
            value=draw.randbytes(VALUE_BYTES),
            headers=[DelayedHeader(key=DELIVER_AT_HEADER, value=b"%d" % start)],
        ),
    ).value
    for first in range(FIRST_SERIAL, FIRST_SERIAL + count, BATCH):
        batch = build_batch(
            [
                Record(
                    key=MESSAGE_KEY.pack(MESSAGE, start + draw.randrange(39 * DAY_MS), serial),
                    value=value,
                    timestamp=now,
                )
                for serial in range(first, min(first + BATCH, FIRST_SERIAL + count))
            ]
        )
        log.append(batch, leader_epoch=max(log.leader_epochs.latest_epoch, 0), now_ms=now)
    log.close()


def wait_until_settled(broker: BrokerProcess, count: int) -> None:
    """Wait until all are pending, and nothing is compacted."""
    quiet_since = time.monotonic()
    while time.monotonic() < quiet_since + QUIET_SECONDS:
        is_compacting = any(broker.data_dir.glob("*/*.cleaned"))
        if is_compacting or metric(broker, "zhumq_delayed_messages_pending") < count:
            quiet_since = time.monotonic()
        time.sleep(LOOK_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=1_000_000)
    given = parser.parse_args()
    settings = {"delayed.message.topic.num.partitions": str(SHARDS)}
    with (
        tempfile.TemporaryDirectory(prefix="zhumq-delays-") as folder,
        broker_process(Path(folder) / "data", settings=settings) as broker,
    ):
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, settings={"delay.enable": "true"})
        send(broker.bootstrap, [b"first"] * FIRST, [now_ms() + FAR_MS] * FIRST)
        while metric(broker, "zhumq_delayed_messages_pending") < FIRST:
            time.sleep(LOOK_SECONDS)
        before = Memory.of(broker)
        broker.kill()
        for shard in range(SHARDS):
            write_pending(broker.data_dir, shard, given.pending // SHARDS)
        broker.start()
        wait_until_settled(broker, FIRST + given.pending // SHARDS * SHARDS)
        after = Memory.of(broker)
        print(
            f"memory: {before} with {FIRST:,} pending, {after} with {given.pending:,} more,"
            f" at most {after.most} MB on the way;"
            f" {metric(broker, 'zhumq_delayed_messages_in_memory'):,.0f} entries in memory"
        )
        return 0 if after.most - before.resident < GROWTH_MB_MAX else 1


if __name__ == "__main__":
    sys.exit(main())

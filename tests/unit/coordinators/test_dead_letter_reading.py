"""The records of dead letters."""

from typing import cast

import pytest
from conformance.invalid_batches import batch, record
from tests.manual_time import ManualClock

from zhumq.coordinators.dead_letters import plan_dead_letters
from zhumq.model.ids import TopicPartition
from zhumq.replication.partition import Partition
from zhumq.share.redelivery import DeadLetter
from zhumq.storage.log_config import LogConfig
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)


class Source:
    """A partition whose whole log can be read."""

    topic_partition = ORDERS
    log_start_offset = 0

    def __init__(self) -> None:
        self.log = SegmentedLog.open(
            "/data/orders-0", ORDERS, LogConfig(), disk=MemoryDisk(), clock=ManualClock()
        )

    def read(self, offset: int, max_bytes: int) -> object:
        return self.log.read(offset, max_bytes=max_bytes, up_to_offset=self.log.log_end_offset)


def test_a_batch_that_cannot_be_decoded_is_left_out_of_the_dead_letters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    for payload in (record(), record(value=b"\x7ev"), record()):
        source.log.append(batch(payload, now_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    dead_letter = DeadLetter(first_offset=0, last_offset=2, delivery_count=5, reason="no luck")
    planned = plan_dead_letters(cast("Partition", source), dead_letter)
    assert [each.offset for each in planned.records] == [0, 2]
    assert planned.last_offset == 2
    assert "no dead letter holds batch 1" in caplog.text

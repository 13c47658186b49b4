"""Copies to brokers that a reassignment adds are limited to the rate; other copies are not."""

import uuid

from tests.manual_time import ManualClock

from zhumq.metadata.image import ClusterImage, PartitionState, Topic
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.replication.move_throttle import UNLIMITED, MoveThrottle

T0 = TopicPartition("t", 0)
NEWCOMER = 4


def image(*in_sync: int) -> ClusterImage:
    state = PartitionState(
        replicas=tuple(map(BrokerId, (1, 2, 3, NEWCOMER))),
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(5),
        in_sync=tuple(map(BrokerId, in_sync)),
        adding=(BrokerId(NEWCOMER),),
    )
    topic = Topic(name="t", topic_id=uuid.UUID(int=1), partitions=(state,))
    return ClusterImage(
        version=1,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers={},
        topics={"t": topic},
        topics_by_id={topic.topic_id: topic},
    )


def throttle(rate: int) -> tuple[MoveThrottle, ManualClock]:
    clock = ManualClock()
    made = MoveThrottle(clock)
    made.see(image(1, 2, 3), rate)
    return made, clock


def test_the_pause_after_a_read_follows_from_the_rate() -> None:
    limited, clock = throttle(1_000)
    assert limited.pause_ms(T0, NEWCOMER) == 0
    limited.sent(T0, NEWCOMER, 3_000)
    assert limited.pause_ms(T0, NEWCOMER) == 3_000
    clock.ms += 2_999
    assert limited.pause_ms(T0, NEWCOMER) == 1
    clock.ms += 1
    assert limited.pause_ms(T0, NEWCOMER) == 0


def test_idle_time_earns_no_credit() -> None:
    limited, clock = throttle(1_000)
    clock.ms += 3_600_000
    limited.sent(T0, NEWCOMER, 1_000)
    assert limited.pause_ms(T0, NEWCOMER) == 1_000


def test_only_a_replica_that_is_being_added_is_throttled() -> None:
    limited, _ = throttle(1)
    limited.sent(T0, NEWCOMER, 1_000)
    assert limited.pause_ms(T0, NEWCOMER) > 0
    assert limited.pause_ms(T0, 2) == 0
    assert limited.pause_ms(TopicPartition("t", 7), NEWCOMER) == 0
    # Once it is in sync, producers wait for it.
    limited.see(image(1, 2, 3, NEWCOMER), 1)
    assert limited.pause_ms(T0, NEWCOMER) == 0


def test_a_replica_that_learns_of_its_move_before_the_leader_is_throttled() -> None:
    limited, _ = throttle(1)
    limited.sent(T0, 5, 1_000)
    assert limited.pause_ms(T0, 5) > 0


def test_bytes_sent_to_other_replicas_do_not_count() -> None:
    limited, _ = throttle(1)
    limited.sent(T0, 2, 1_000_000)
    assert limited.pause_ms(T0, NEWCOMER) == 0


def test_a_new_rate_applies_to_earlier_bytes_as_well() -> None:
    limited, clock = throttle(1_000)
    limited.sent(T0, NEWCOMER, 10_000)
    clock.ms += 5_000
    limited.see(image(1, 2, 3), 10_000)
    assert limited.pause_ms(T0, NEWCOMER) == 500
    limited.see(image(1, 2, 3), UNLIMITED)
    assert limited.pause_ms(T0, NEWCOMER) == 0


def test_without_a_rate_nothing_waits() -> None:
    free, _ = throttle(UNLIMITED)
    free.sent(T0, NEWCOMER, 1 << 40)
    assert free.pause_ms(T0, NEWCOMER) == 0

"""Directed schedules for named leaders with fewer than min.insync.replicas in sync."""

from collections.abc import Callable

from zhumq.consensus.contract import Mode, ReplicaSettings, Role
from zhumq.metadata import leadership
from zhumq.metadata.image import PartitionState
from zhumq.model.ids import BrokerId, LeaderEpoch
from zhumq.testing.replica_bench import ReplicaBench

SETTINGS = ReplicaSettings(min_in_sync_replicas=2)


def _left_alone_with_an_old_high_watermark() -> ReplicaBench:
    """Five messages are committed; replica 1 has all of them, knows of two, and leads alone."""
    bench = ReplicaBench(3, mode=Mode.FETCH, settings=SETTINGS)
    bench.assign(0, {0, 1, 2})
    bench.settle()
    bench.write(0, 5)
    bench.settle()
    assert bench.high_watermarks == {0: 5, 1: 5, 2: 5}
    bench.crash(0)
    bench.crash(1)
    bench.high_watermarks[1] = 2
    bench.start(1)
    return bench


def alone_it_admits_clients_and_commits_nothing() -> None:
    """Its high watermark stands still; what it is given becomes visible with the next replica."""
    bench = _left_alone_with_an_old_high_watermark()
    bench.crash(2)
    bench.assign(1, {1})
    bench.settle()
    leader = bench.replicas[1]
    assert leader.role is Role.LEADER
    assert leader.admits_clients
    assert not leader.serving
    assert not leader.accepts_all_acks
    bench.write(1, 3)
    bench.settle()
    assert bench.high_watermarks[1] == 2
    # It starts again, alone, and knows no more than before.
    bench.crash(1)
    bench.start(1)
    bench.assign(1, {1})
    bench.settle()
    assert bench.replicas[1].admits_clients
    assert bench.high_watermarks[1] == 2
    # Replica 2 is back, and in sync once it has everything.
    bench.start(2)
    bench.step(2, bench.assignment)
    bench.settle()
    bench.publish(bench.assignment.epoch, 1, {1, 2})
    bench.tell_all()
    bench.settle()
    assert bench.replicas[1].serving
    assert bench.high_watermarks[1] == 8


def alone_it_heals_nobody() -> None:
    """Of a damaged replica nobody knows how much was committed before the leader serves."""
    bench = _left_alone_with_an_old_high_watermark()
    bench.fetch_entries_max = 1
    bench.damage(2, 0)
    bench.assign(1, {1})
    log = bench.logs[2]
    while log.damaged_from is not None or log.flushed_offset < 4:
        bench.deliver_next()
    assert bench.replicas[1].admits_clients
    assert bench.states[2].recovering


def another_of_those_who_left_leads_after_it() -> None:
    """What it was given with acks=1 is lost with it; what was committed before is not."""
    bench = _left_alone_with_an_old_high_watermark()
    bench.crash(2)
    bench.assign(1, {1})
    bench.write(1, 3)
    bench.settle()
    bench.crash(1)
    # KIP-966: replica 2 left the in-sync set when that was too small to commit anything.
    bench.start(2)
    bench.assign(2, {2})
    bench.settle()
    assert bench.replicas[2].admits_clients
    bench.start(1)
    bench.step(1, bench.assignment)
    bench.settle()
    bench.publish(bench.assignment.epoch, 2, {1, 2})
    bench.tell_all()
    bench.settle()
    assert bench.replicas[2].serving
    assert bench.high_watermarks[2] == 5
    assert bench.logs[1].read_all(0, 99) == bench.logs[2].read_all(0, 99)


def who_left_a_small_set_may_lead_until_it_is_large_enough_again() -> None:
    """KIP-966: nothing is committed while too few are in sync, and again as soon as there are enough."""
    state = PartitionState(
        replicas=(BrokerId(0), BrokerId(1), BrokerId(2)),
        leader=BrokerId(0),
        leader_epoch=LeaderEpoch(1),
        in_sync=(BrokerId(0), BrokerId(1), BrokerId(2)),
        mode=Mode.FETCH,
    )
    policy = leadership.LeaderPolicy(min_in_sync=2)
    alone = leadership.with_in_sync(state, (BrokerId(0),), 2)
    assert leadership.choose_leader(alone, {BrokerId(1)}, policy, {}) == 1
    again = leadership.with_in_sync(alone, (BrokerId(0), BrokerId(2)), 2)
    assert leadership.choose_leader(again, {BrokerId(1)}, policy, {}) is None


AVAILABILITY_SCHEDULES: tuple[Callable[[], None], ...] = (
    alone_it_admits_clients_and_commits_nothing,
    alone_it_heals_nobody,
    another_of_those_who_left_leads_after_it,
    who_left_a_small_set_may_lead_until_it_is_large_enough_again,
)

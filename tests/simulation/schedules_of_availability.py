"""Directed schedules for named leaders with fewer than min.insync.replicas in sync."""

from collections.abc import Callable

from simulation.replica_bench import ReplicaBench

from zhumq.consensus.contract import Mode, ReplicaSettings, Role
from zhumq.metadata import leadership
from zhumq.metadata.image import PartitionState
from zhumq.model.ids import BrokerId, LeaderEpoch

SETTINGS = ReplicaSettings(min_in_sync_replicas=2)


def _left_alone_with_an_old_high_watermark() -> ReplicaBench:
    """Five messages are committed; replica 1 has all of them, has a high watermark of 2, and restarts."""
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
    """A leader alone in sync keeps its high watermark; appends become visible with the next replica."""
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
    # It restarts, still alone, with the same high watermark.
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


def alone_it_ends_no_recovery() -> None:
    """A damaged replica keeps recovering until its leader serves, and so knows what was committed."""
    bench = _left_alone_with_an_old_high_watermark()
    bench.fetch_entries_max = 1
    bench.damage(2, 0)
    bench.assign(1, {1})
    log = bench.logs[2]
    while log.damaged_from is not None or log.flushed_offset < 4:
        bench.deliver_next()
    assert bench.replicas[1].admits_clients
    assert bench.states[2].recovering


def another_eligible_replica_leads_after_it() -> None:
    """Records appended with acks=1 are lost with the leader; committed records are not."""
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


def a_replica_that_left_a_small_set_is_eligible_until_the_set_is_large_enough() -> None:
    """KIP-966: nothing is committed while too few replicas are in sync, so those that left may lead."""
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
    alone_it_ends_no_recovery,
    another_eligible_replica_leads_after_it,
    a_replica_that_left_a_small_set_is_eligible_until_the_set_is_large_enough,
)

"""Directed schedules for epochs that leaders begin without a record, which replicas accept."""

from collections.abc import Callable

from schedules import deliver_only_votes
from simulation.replica_bench import ReplicaBench

from zhumq.consensus.contract import Role


def _two_logs_of_which_neither_is_committed() -> ReplicaBench:
    """Replicas 0 and 1 hold two messages of epoch 1, replica 4 one of epoch 2; 2 and 3 hold none."""
    bench = ReplicaBench(5)
    bench.elect(0)
    # Epoch 1: replica 0 writes two messages that only replica 1 gets.
    bench.isolate(0, 1)
    bench.write(0, 2)
    bench.settle()
    # Epoch 2: 2 and 3 elect replica 4, which writes a message that no other replica gets.
    bench.crash(0)
    bench.crash(1)
    bench.campaign(4)
    deliver_only_votes(bench)
    bench.write(4, 1)
    bench.crash(4)
    bench.cuts.clear()
    bench.messages.clear()
    bench.isolate(3, 4)
    bench.start(0)
    bench.start(1)
    return bench


def a_majority_that_accepted_an_epoch_starts_again() -> None:
    """The start of an epoch alone commits old entries; a log of an epoch between must lose."""
    bench = _two_logs_of_which_neither_is_committed()
    # Epoch 3: replica 0 leads again, writes nothing, and commits with 1 and 2 what it has.
    bench.elect(0)
    assert bench.replicas[0].role is Role.LEADER
    assert bench.logs[2].log_end_offset == bench.high_watermarks[0] == 2
    # The replicas that committed it restart; 3 does not have it, and 4 asks for votes first.
    for node in (0, 1, 2):
        bench.crash(node)
    bench.cuts.clear()
    bench.messages.clear()
    for node in (0, 1, 2, 4):
        bench.start(node)
    bench.elect(4)
    assert bench.replicas[4].role is not Role.LEADER
    bench.elect(0)
    bench.settle()
    assert bench.replicas[0].role is Role.LEADER
    assert bench.logs[4].read_all(0, 99) == bench.logs[0].read_all(0, 99)


def a_follower_that_has_everything_but_the_epoch() -> None:
    """A follower that has its leader's whole log still votes for a log of an epoch between."""
    bench = _two_logs_of_which_neither_is_committed()
    for _ in range(2):
        bench.campaign(0)
        deliver_only_votes(bench)
    assert bench.replicas[0].role is Role.LEADER
    # Replica 1 sends its position to the leader of epoch 3, and receives no answer.
    bench.let_deadline_pass(0)
    while bench.replicas[1].leader_id != 0:
        bench.deliver_next()
    bench.cuts.add((0, 1))
    bench.settle()
    assert (
        bench.states[2].accepted_epoch == bench.replicas[0].epoch != bench.states[1].accepted_epoch
    )
    assert bench.high_watermarks[0] == 0
    for node in (0, 2):
        bench.crash(node)
    bench.cuts.clear()
    bench.messages.clear()
    bench.start(4)
    bench.elect(4)
    assert bench.replicas[4].role is Role.LEADER


def a_leader_loses_what_it_had_not_flushed_when_it_was_elected() -> None:
    """A replica accepts an epoch only when its disk has everything before the epoch's start."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.slow_disks = {2}
    bench.write(0, 3)
    bench.settle()
    assert bench.high_watermarks[0] == 3
    bench.crash(0)
    # Replica 2 wins with the records in its page cache, and no replica follows it.
    bench.campaign(2)
    deliver_only_votes(bench)
    assert bench.replicas[2].role is Role.LEADER
    bench.crash(2)
    bench.cuts.clear()
    bench.messages.clear()
    bench.slow_disks = set()
    bench.start(2)
    bench.elect(2)
    assert bench.replicas[2].role is not Role.LEADER
    bench.elect(1)
    assert bench.replicas[1].role is Role.LEADER
    bench.settle()
    assert bench.logs[2].log_end_offset == 3


def a_truncated_tail_comes_back() -> None:
    """A crash undoes the truncation after which an epoch was accepted."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.write(0, 1)
    bench.settle()
    bench.isolate(0)
    bench.write(0, 5)
    bench.elect(1)
    assert bench.replicas[1].epoch == 2
    # Replica 0 truncates its tail, which is not flushed yet, and accepts epoch 2.
    bench.cuts.clear()
    bench.slow_disks = {0}
    for _ in range(3):
        bench.let_deadline_pass(0)
        bench.settle()
    assert bench.logs[0].log_end_offset == 1
    assert bench.states[0].accepted_epoch == bench.replicas[1].epoch == 2
    # Replica 0 does not get what is committed then.
    bench.isolate(0)
    bench.write(1, 2)
    bench.settle()
    assert bench.high_watermarks[1] == 3
    bench.crash(0, undo_cut=True)
    assert bench.logs[0].log_end_offset == 6
    bench.crash(1)
    bench.cuts.clear()
    bench.messages.clear()
    bench.slow_disks = set()
    bench.start(0)
    bench.elect(0)
    assert bench.replicas[0].role is not Role.LEADER
    bench.elect(2)
    assert bench.replicas[2].role is Role.LEADER


def an_emptied_log_meets_a_leader_that_has_kept_more() -> None:
    """A follower whose log is deleted up to its end fetches from there, not from the leader's log start."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.write(0, 4)
    bench.settle()
    for node in (1, 2):
        bench.logs[node].delete_before(4)
        assert bench.logs[node].log_start_offset == bench.logs[node].log_end_offset == 4
    bench.crash(1)
    bench.start(1)
    bench.settle()
    assert bench.logs[1].log_end_offset == 4
    assert bench.replicas[1].vote_position == bench.replicas[0].vote_position
    # It can lead with an empty log, and the others follow it.
    bench.crash(0)
    bench.elect(1)
    assert bench.replicas[1].serving
    bench.write(1, 1)
    bench.start(0)
    for _ in range(3):
        bench.let_deadline_pass(0)
        bench.settle()
    assert {log.log_end_offset for log in bench.logs.values()} == {5}


ACCEPTANCE_SCHEDULES: tuple[Callable[[], None], ...] = (
    a_majority_that_accepted_an_epoch_starts_again,
    a_follower_that_has_everything_but_the_epoch,
    a_leader_loses_what_it_had_not_flushed_when_it_was_elected,
    a_truncated_tail_comes_back,
    an_emptied_log_meets_a_leader_that_has_kept_more,
)

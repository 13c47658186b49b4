"""Directed schedules: what random seeds rarely meet, move by move."""

from collections.abc import Callable
from dataclasses import replace

from zhumq.consensus.contract import InSyncProposal, LogPosition, Mode, Role, VoteAnswered
from zhumq.testing.replica_bench import ReplicaBench
from zhumq.testing.simulated_log import Entry


def figure_8() -> None:
    """Raft figure 8: an old entry on a majority of disks is overwritten all the same."""
    bench = ReplicaBench(5, fetch_entries_max=2)
    bench.elect(0)
    # Epoch 1: replica 0 writes four messages that only replica 1 gets.
    bench.isolate(0, 1)
    bench.write(0, 4)
    bench.settle()
    # Epoch 2: replica 4 is elected by 2 and 3, writes its marker, and dies alone with it.
    bench.crash(0)
    bench.crash(1)
    bench.campaign(4)
    _deliver_only_votes(bench)
    assert bench.logs[4].epoch_of(1) == 2
    bench.crash(4)
    # Epoch 3: replica 0 is back and gives its old messages to 2, but not its own marker.
    bench.cuts.clear()
    bench.isolate(3)
    bench.start(0)
    bench.start(1)
    bench.messages.clear()
    for _ in range(2):
        bench.campaign(0)
        _deliver_only_votes(bench)
    replica = bench.replicas[0]
    assert replica.role is Role.LEADER
    assert replica.epoch == 3
    bench.let_deadline_pass(0)
    _deliver_until(bench, lambda: _flushed(bench, 0, 2) >= 5)
    assert bench.logs[2].log_end_offset == 5
    _deliver_until(bench, lambda: _flushed(bench, 0, 1) >= 5)
    bench.messages.clear()
    bench.crash(0)
    # Epoch 4: the log of replica 4 ends in epoch 2, so 2 and 3 elect it, and 2 is overwritten.
    bench.cuts.clear()
    bench.isolate(1)
    bench.start(4)
    bench.elect(4)
    assert bench.replicas[4].role is Role.LEADER
    assert bench.logs[2].epoch_of(1) == 2


def a_long_tail_of_an_old_epoch() -> None:
    """A replica with many messages that nobody acknowledged comes back."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(0)
    bench.write(0, 10)
    bench.elect(1)
    bench.write(1, 2)
    bench.settle()
    bench.cuts.clear()
    bench.crash(0)
    bench.start(0)
    bench.crash(1)
    bench.messages.clear()
    bench.elect(0)
    bench.elect(2)
    bench.start(1)
    bench.settle()
    assert bench.logs[0].read_all(0, 99) == bench.logs[2].read_all(0, 99)


def late_votes() -> None:
    """Votes of a lost election arrive in a later one."""
    bench = ReplicaBench(3)
    bench.campaign(0)
    _deliver_until(bench, lambda: bench.replicas[0].role is Role.CANDIDATE)
    # The votes for 0 in epoch 1 are given, but are under way for long.
    _deliver_until(bench, lambda: bench.replicas[1].quorum_state.voted_for == 0)
    late = [each for each in bench.messages if isinstance(each[1].message, VoteAnswered)]
    late = [each for each in late if not each[1].message.pre_vote]
    assert late
    bench.messages.clear()
    # Epoch 2 is won by 1 with the vote of 2, who has heard nothing of all that.
    bench.isolate(0)
    bench.elect(1)
    bench.write(1)
    bench.settle()
    # 0 goes on alone: it cannot win, whatever arrives from epoch 1.
    bench.replicas[0].step(
        VoteAnswered(
            voter_id=2,
            asked_epoch=1,
            epoch=1,
            leader_id=None,
            granted=True,
            pre_vote=True,
            position=LogPosition(-1, 0),
        ),
        bench.now_ms,
    )
    bench.campaign(0)
    bench.cuts.clear()
    bench.messages.clear()
    for sender, outgoing in late:
        bench.deliver(sender, 0, outgoing.message)
    assert bench.replicas[0].role is not Role.LEADER


def epochs_that_only_one_side_has() -> None:
    """The follower's last epoch lies within what the leader holds of an older one."""
    bench = ReplicaBench(3)
    bench.elect(0)
    # Epoch 1 goes on with 0 and 1 while 2 is away.
    bench.isolate(2)
    bench.write(0, 9)
    bench.settle()
    # 2 has been made the leader of epoch 2 by a 1 that had lost its log since; what it wrote
    # lies below the end of epoch 1 in the log of 0.
    log = bench.logs[2]
    for _ in range(3):
        log.append(Entry(2, -1, -2))
    log.flush(log.begin_flush())
    bench.states = {each: replace(state, epoch=2) for each, state in bench.states.items()}
    for node in (0, 1, 2):
        bench.checkers.persisted(node, bench.states[node])
        bench.crash(node)
        bench.states[node] = replace(bench.states[node], voted_for=None, leader_id=None)
        bench.start(node)
    bench.cuts.clear()
    bench.messages.clear()
    bench.isolate(2)
    bench.elect(0)
    bench.cuts.clear()
    for _ in range(3):
        bench.let_deadline_pass(2)
        bench.settle()
    assert bench.logs[2].read_all(0, 99) == bench.logs[0].read_all(0, 99)


def a_cut_off_leader() -> None:
    """A leader that hears no majority resigns, and accepts nothing any more."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(0)
    for _ in range(10):
        if bench.replicas[0].role is not Role.LEADER:
            return
        bench.let_deadline_pass(0)
    raise AssertionError("a leader without followers leads on")


def a_leader_that_hears_of_a_newer_epoch() -> None:
    """Cut off one way, a leader learns from a vote request that it is over."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(0)
    bench.elect(1)
    bench.cuts.clear()
    bench.let_deadline_pass(1)
    bench.settle()
    bench.write(1)
    bench.settle()
    leaders = [each for each in bench.replicas.values() if each.role is Role.LEADER]
    assert len(leaders) == 1


def a_replica_that_missed_the_end_of_an_epoch_joins() -> None:
    """In sync is who has the whole of the earlier epochs, not who reached an old watermark."""
    bench = ReplicaBench(3, mode=Mode.FETCH, fetch_entries_max=1)
    bench.assign(0, {0, 1})
    bench.isolate(2)
    bench.settle()
    bench.write(0, 3)
    bench.settle()
    # 1 has all of it on its disk, but its high watermark was written down long ago.
    bench.crash(0)
    bench.high_watermarks[1] = 0
    bench.crash(1)
    bench.high_watermarks[1] = 0
    bench.start(1)
    bench.cuts.clear()
    bench.assign(1, {1})
    while not bench.proposals and bench.messages:
        bench.deliver_next()
    proposal = bench.proposals[-1]
    assert isinstance(proposal, InSyncProposal)
    bench.checkers.in_sync_changed(proposal.in_sync)


def _deliver_only_votes(bench: ReplicaBench) -> None:
    """Elections go through, but nobody fetches."""
    for _ in range(100):
        if not bench.messages:
            return
        sender, outgoing = bench.messages.pop(0)
        if type(outgoing.message).__name__.startswith("Vote"):
            bench.deliver(sender, outgoing.to, outgoing.message)


def _flushed(bench: ReplicaBench, leader: int, follower: int) -> int:
    return bench.replicas[leader]._progress.flushed(follower)


def _deliver_until(bench: ReplicaBench, is_done: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_done():
            return
        bench.deliver_next()
    raise AssertionError("it does not come to that")


SCHEDULES: tuple[Callable[[], None], ...] = (
    figure_8,
    a_long_tail_of_an_old_epoch,
    late_votes,
    epochs_that_only_one_side_has,
    a_cut_off_leader,
    a_leader_that_hears_of_a_newer_epoch,
    a_replica_that_missed_the_end_of_an_epoch_joins,
)

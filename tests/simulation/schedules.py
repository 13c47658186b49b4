"""Directed schedules: step by step through situations that random seeds rarely reach."""

from collections.abc import Callable
from dataclasses import replace

from simulation.replica_bench import ReplicaBench
from simulation.simulated_log import Entry

from zhumq.consensus.contract import (
    InSyncProposal,
    LogPosition,
    Mode,
    ReplicaSettings,
    Role,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.voters import Voters
from zhumq.metadata import modes
from zhumq.metadata.image import PartitionState
from zhumq.model.ids import BrokerId, LeaderEpoch


def figure_8() -> None:
    """Raft figure 8: an old entry on a majority of disks is overwritten all the same."""
    bench = ReplicaBench(5, fetch_entries_max=2)
    bench.elect(0)
    # Epoch 1: replica 0 writes four messages that only replica 1 gets.
    bench.isolate(0, 1)
    bench.write(0, 4)
    bench.settle()
    # Epoch 2: 2 and 3 elect replica 4, which alone accepts its epoch, and crashes.
    bench.crash(0)
    bench.crash(1)
    bench.campaign(4)
    deliver_only_votes(bench)
    assert bench.states[4].accepted_epoch == 2
    bench.crash(4)
    # Epoch 3: replica 0 is back and gives its old messages to 2, but not all up to its own epoch.
    bench.cuts.clear()
    bench.isolate(3)
    bench.start(0)
    bench.start(1)
    bench.messages.clear()
    for _ in range(2):
        bench.campaign(0)
        deliver_only_votes(bench)
    replica = bench.replicas[0]
    assert replica.role is Role.LEADER
    assert replica.epoch == 3
    bench.let_deadline_pass(0)
    _deliver_until(bench, lambda: _flushed(bench, 0, 2) >= 2)
    assert bench.logs[2].log_end_offset == 2
    bench.cuts |= {(0, 2), (2, 0)}
    _deliver_until(bench, lambda: _flushed(bench, 0, 1) >= 4)
    bench.messages.clear()
    bench.crash(0)
    # Epoch 4: replica 4 has accepted epoch 2, so 2 and 3 elect it, and 2 is overwritten.
    bench.cuts.clear()
    bench.isolate(1)
    bench.start(4)
    bench.elect(4)
    assert bench.replicas[4].role is Role.LEADER
    assert bench.logs[2].log_end_offset == 0


def a_long_tail_of_an_old_epoch() -> None:
    """A replica with many unacknowledged messages comes back."""
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
    """Votes of a lost election arrive in the next one, which another replica wins."""
    bench = ReplicaBench(3)
    bench.campaign(0)
    _deliver_until(bench, lambda: bench.replicas[0].role is Role.CANDIDATE)
    # The votes for 0 in epoch 1 are granted, but arrive much later.
    _deliver_until(bench, lambda: bench.replicas[1].quorum_state.voted_for == 0)
    _deliver_until(bench, lambda: bench.replicas[2].quorum_state.voted_for == 0)
    late = [each for each in bench.messages if isinstance(each[1].message, VoteAnswered)]
    bench.messages.clear()
    # 0 is a candidate in epoch 2; no message of it arrives, and 1 wins that epoch with the vote of 2.
    bench.campaign(0)
    _deliver_until(bench, lambda: bench.replicas[0].epoch == 2)
    bench.isolate(0)
    bench.messages.clear()
    bench.elect(1)
    assert bench.replicas[1].epoch == 2
    for sender, outgoing in late:
        bench.step(0, outgoing.message)
        assert sender != 0
    assert bench.replicas[0].role is Role.CANDIDATE


def epochs_that_only_one_side_has() -> None:
    """The follower's last epoch lies within what the leader holds of an older one."""
    bench = ReplicaBench(3)
    bench.elect(0)
    # Epoch 1 continues with 0 and 1 while 2 is isolated.
    bench.isolate(2)
    bench.write(0, 9)
    bench.settle()
    # 2 was elected leader of epoch 2 by 1, which has lost its log since; the entries of 2 lie
    # below the end of epoch 1 in the log of 0.
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


def an_isolated_leader() -> None:
    """A leader without contact to a majority resigns."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(0)
    for _ in range(10):
        if bench.replicas[0].role is not Role.LEADER:
            return
        bench.let_deadline_pass(0)
    raise AssertionError("a leader without followers leads on")


def a_leader_that_learns_of_a_newer_epoch() -> None:
    """A leader that was isolated learns from the new leader's messages that its epoch is over."""
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
    """A replica is in sync when it has all earlier epochs, not when it reaches an old high watermark."""
    bench = ReplicaBench(3, mode=Mode.FETCH, fetch_entries_max=1)
    bench.assign(0, {0, 1})
    bench.isolate(2)
    bench.settle()
    bench.write(0, 3)
    bench.settle()
    # 1 has all of it on its disk, but its checkpointed high watermark is old.
    bench.crash(0)
    bench.high_watermarks[1] = 0
    bench.crash(1)
    bench.high_watermarks[1] = 0
    bench.start(1)
    bench.cuts.clear()
    bench.slow_disks = {1}
    bench.assign(1, {1})
    while not bench.proposals and bench.messages:
        bench.deliver_next()
    proposal = bench.proposals[-1]
    assert isinstance(proposal, InSyncProposal)
    bench.checkers.in_sync_changed(proposal.in_sync)


def a_vote_in_the_current_epoch() -> None:
    """A vote that does not change the epoch is persisted too."""
    bench = ReplicaBench(3)
    question = VoteAsked(
        candidate_id=0,
        epoch=0,
        position=LogPosition(-1, 0),
        pre_vote=False,
        mode=Mode.RAFT,
        voters=bench.voters.ids,
    )
    bench.step(1, question)
    bench.step(1, replace(question, candidate_id=2))
    votes = [each[1].message for each in bench.messages]
    assert [vote.granted for vote in votes if isinstance(vote, VoteAnswered)] == [True, False]


def a_damaged_replica_and_one_without_the_records() -> None:
    """One replica of the majority is damaged: it must not elect the third replica."""
    bench = ReplicaBench(3, fetch_entries_max=1)
    bench.elect(0)
    bench.isolate(2)
    bench.write(0, 4)
    bench.settle()
    bench.damage(1, 0)
    _deliver_until(bench, lambda: 1 <= bench.logs[1].log_end_offset <= 2)
    bench.crash(0)
    bench.cuts.clear()
    bench.elect(2)
    assert bench.replicas[2].role is not Role.LEADER
    bench.start(0)
    bench.elect(0)
    bench.settle()
    assert bench.replicas[0].role is Role.LEADER
    assert not bench.states[1].recovering
    assert bench.logs[1].read_all(0, 99) == bench.logs[0].read_all(0, 99)


def what_a_damaged_follower_had_is_not_counted() -> None:
    """A follower acknowledges and is then damaged: with another one there is no majority."""
    bench = ReplicaBench(5, fetch_entries_max=1)
    bench.elect(0)
    bench.isolate(0, 1)
    bench.write(0, 3)
    bench.settle()
    bench.damage(1, 1)
    _deliver_until(bench, lambda: bench.logs[1].log_end_offset == 2)
    bench.messages.clear()
    bench.isolate(1)
    bench.cuts -= {(0, 2), (2, 0)}
    bench.let_deadline_pass(2)
    bench.settle()
    assert bench.high_watermarks[0] <= 2


def a_named_leader_that_has_not_flushed() -> None:
    """Raft committed on other disks; the next named leader is in sync only once its own disk has it."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.slow_disks = {2}
    bench.write(0, 3)
    bench.settle()
    for node in (0, 1, 2):
        bench.switch(node, Mode.FETCH)
    bench.assign(2, {2}, changing_mode=True)
    bench.settle()
    assert bench.replicas[2].role is Role.LEADER
    bench.let_deadline_pass(0)
    bench.settle()
    for proposal in bench.proposals:
        assert isinstance(proposal, InSyncProposal)
        bench.checkers.in_sync_changed(proposal.in_sync)
    bench.flush(2)
    bench.let_deadline_pass(0)
    bench.settle()
    assert bench.proposals


def raft_followers_of_a_named_leader() -> None:
    """A follower that does not know the mode change could still vote in raft: it is not in sync."""
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.switch(0, Mode.FETCH)
    bench.publish(2, 0, {0}, changing_mode=True)
    bench.step(0, bench.assignment)
    bench.settle()
    assert bench.replicas[0].role is Role.LEADER
    for node in (1, 2):
        bench.campaign(node)
        bench.settle()
        assert bench.replicas[node].leader_id == 0
    assert not bench.proposals
    bench.switch(1, Mode.FETCH)
    bench.step(1, bench.assignment)
    bench.settle()
    assert [each for each in bench.proposals if isinstance(each, InSyncProposal)]


def raft_after_a_small_in_sync_set() -> None:
    """Two of five are in sync: the other three must not elect a raft leader."""
    settings = ReplicaSettings(min_in_sync_replicas=2)
    bench = ReplicaBench(5, mode=Mode.FETCH, settings=settings)
    bench.isolate(0, 1)
    bench.assign(0, {0, 1})
    bench.settle()
    bench.write(0, 3)
    bench.settle()
    assert bench.high_watermarks[0] == 3
    partition = PartitionState(
        replicas=tuple(map(BrokerId, range(5))),
        leader=BrokerId(0),
        leader_epoch=LeaderEpoch(bench.assignment.epoch),
        in_sync=(BrokerId(0), BrokerId(1)),
        mode=Mode.FETCH,
    )
    if modes._to_raft(partition) is not None:
        for node in range(5):
            bench.switch(node, Mode.RAFT, epoch=bench.assignment.epoch + 1)
        bench.elect(4)


def raft_after_two_new_disks() -> None:
    """Fetch mode needs no votes, so one disk after the other is replaced: then raft needs votes."""
    bench = ReplicaBench(3, mode=Mode.FETCH)
    bench.assign(0, {0, 1, 2})
    bench.settle()
    bench.write(0, 3)
    for node in (1, 2):
        bench.wipe(node)
        bench.publish(bench.assignment.epoch, 0, {0, 1, 2} - {node})
        bench.start(node)
        bench.tell_all()
        bench.settle()
        assert not bench.states[node].recovering
    for node in range(3):
        bench.switch(node, Mode.RAFT, epoch=bench.assignment.epoch + 1)
    bench.elect(0)
    assert bench.replicas[0].role is Role.LEADER


def raft_after_a_named_leader_that_wrote_nothing() -> None:
    """A named leader commits an old entry; a tail of an epoch in between must not win."""
    settings = ReplicaSettings(min_in_sync_replicas=2)
    bench = ReplicaBench(3, mode=Mode.FETCH, settings=settings)
    bench.assign(0, {0, 1, 2})
    bench.settle()
    bench.isolate(2)
    bench.write(0, 1)
    bench.settle()
    # 2 leads epoch 2 alone: it writes another message at that offset.
    bench.assign(2, {0, 1, 2})
    bench.write(2, 1)
    # 0 leads epoch 3, and commits its log with 1.
    bench.assign(0, {0, 1})
    bench.settle()
    assert bench.replicas[0].serving
    bench.cuts.clear()
    bench.crash(0)
    for node in (1, 2):
        bench.switch(node, Mode.RAFT, epoch=bench.assignment.epoch + 1)
    bench.messages.clear()
    bench.elect(2)
    bench.elect(1)
    assert bench.replicas[1].role is Role.LEADER


def deliver_only_votes(bench: ReplicaBench) -> None:
    """Deliver vote messages, and drop fetches."""
    for _ in range(100):
        if not bench.messages:
            return
        sender, outgoing = bench.messages.pop(0)
        if type(outgoing.message).__name__.startswith("Vote"):
            bench.deliver(sender, outgoing.to, outgoing.message)


def majorities_of_old_and_of_new_voters() -> None:
    """Three of five voters are exchanged, and two of the old ones do not learn of it."""
    bench = ReplicaBench(8)
    old, bench.voters = Voters(range(5)), Voters((0, 1, 5, 6, 7))
    for node, replica in bench.replicas.items():
        replica.voters = old if node in (1, 2) else bench.voters
    bench.crash(3)
    bench.crash(4)
    # One of the two is a new voter too, follows the new leader and has everything.
    bench.isolate(2)
    bench.elect(5)
    bench.write(5)
    bench.settle()
    assert bench.replicas[5].role is Role.LEADER
    assert bench.logs[1].log_end_offset == bench.logs[5].log_end_offset
    # Then a partition separates the remaining old voters from the new ones.
    bench.cuts.clear()
    bench.isolate(0, 1, 2)
    bench.crash(5)
    bench.start(5)
    for _ in range(3):
        bench.elect(1)
        bench.elect(6)


def a_move_and_a_larger_in_sync_set_in_one_assignment() -> None:
    """One assignment brings a leader both, and the leader knows the new replica's position already."""
    settings = ReplicaSettings(min_in_sync_replicas=2)
    bench = ReplicaBench(4, mode=Mode.FETCH, settings=settings)
    bench.assign(0, {0, 2}, replicas=(0, 1, 2))
    bench.settle()
    # Replica 1 has everything, and the leader proposes it for the in-sync set.
    (proposal,) = {each for each in bench.proposals if isinstance(each, InSyncProposal)}
    assert proposal.in_sync == {0, 1, 2}
    # Replica 1 does not get the next message. Replica 3 gets it, though it is an observer.
    bench.cuts = {(0, 1), (1, 0)}
    bench.write(0)
    bench.settle()
    assert bench.logs[3].flushed_offset == bench.logs[2].flushed_offset == 1
    bench.publish(1, 0, {0, 1, 2}, replicas=(0, 1, 2, 3))
    bench.step(0, bench.assignment)
    assert bench.replicas[0].high_watermark == 0
    bench.cuts.clear()
    bench.tell_all()
    bench.let_deadline_pass(1)
    bench.settle()
    assert bench.replicas[0].high_watermark == 1


def _flushed(bench: ReplicaBench, leader: int, follower: int) -> int:
    return bench.replicas[leader]._progress[follower].flushed_offset


def _deliver_until(bench: ReplicaBench, is_done: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_done():
            return
        assert bench.messages, "no messages are left"
        bench.deliver_next()
    raise AssertionError("the condition does not become true")


SCHEDULES: tuple[Callable[[], None], ...] = (
    figure_8,
    a_long_tail_of_an_old_epoch,
    late_votes,
    epochs_that_only_one_side_has,
    an_isolated_leader,
    a_leader_that_learns_of_a_newer_epoch,
    a_replica_that_missed_the_end_of_an_epoch_joins,
    a_vote_in_the_current_epoch,
    a_damaged_replica_and_one_without_the_records,
    what_a_damaged_follower_had_is_not_counted,
    a_named_leader_that_has_not_flushed,
    raft_followers_of_a_named_leader,
    raft_after_a_small_in_sync_set,
    raft_after_two_new_disks,
    raft_after_a_named_leader_that_wrote_nothing,
    a_move_and_a_larger_in_sync_set_in_one_assignment,
    majorities_of_old_and_of_new_voters,
)

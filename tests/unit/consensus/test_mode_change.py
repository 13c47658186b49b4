"""A topic changes between raft and fetch mode without losing committed records."""

from dataclasses import replace

from simulation.replica_bench import ReplicaBench

from zhumq.consensus.contract import (
    InSyncProposal,
    LeadershipDeclined,
    Mode,
    QuorumState,
    Role,
)
from zhumq.consensus.mode_change import state_for_fetch, state_for_raft


def test_raft_begins_above_the_named_epochs_and_without_a_vote() -> None:
    named = QuorumState(epoch=4, leader_id=1, voted_for=1, mode=Mode.FETCH)
    assert state_for_raft(named, 5) == QuorumState(epoch=5, mode=Mode.RAFT)


def test_an_epoch_that_is_ahead_does_not_go_back() -> None:
    named = QuorumState(epoch=9, leader_id=1, mode=Mode.FETCH)
    assert state_for_raft(named, 5).epoch == 9


def test_raft_mode_forgets_unknown_votes_and_keeps_the_damage() -> None:
    unsure = QuorumState(epoch=4, mode=Mode.FETCH, recovering=True, votes_unknown=True)
    after = state_for_raft(unsure, 5)
    assert (after.votes_unknown, after.recovering) == (False, True)
    voting = replace(unsure, mode=Mode.RAFT)
    assert state_for_raft(voting, 5).votes_unknown, "the votes were given in this raft mode"


def test_a_replica_that_is_in_raft_mode_keeps_its_vote() -> None:
    state = QuorumState(epoch=9, voted_for=2)
    assert state_for_raft(state, 12) is state


def test_fetch_begins_with_the_vote_of_raft_and_the_damage() -> None:
    state = QuorumState(epoch=9, voted_for=2, recovering=True)
    after = state_for_fetch(state)
    assert (after.epoch, after.voted_for, after.recovering, after.mode) == (9, 2, True, Mode.FETCH)


def test_raft_to_fetch_to_raft_under_load() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.write(0, 3)
    bench.settle()
    to_fetch(bench, 1)
    assert bench.replicas[1].serving
    assert bench.replicas[1].epoch == 2
    bench.write(1, 3)
    bench.settle()
    epoch = bench.assignment.epoch + 1
    for node in (0, 1, 2):
        bench.switch(node, Mode.RAFT, epoch)
    bench.elect(2)
    assert bench.replicas[2].epoch == 4
    bench.write(2, 3)
    bench.settle()
    to_fetch(bench, 0)
    bench.write(0, 3)
    bench.settle()
    written = bench.logs[0].read_all(0, 99)
    assert [each.sequence for each in written if each.sequence >= 0] == list(range(1, 13))
    assert bench.high_watermarks == dict.fromkeys(range(3), len(written))
    assert all(log.read_all(0, 99) == written for log in bench.logs.values())


def test_a_named_leader_that_lacks_what_raft_committed_is_not_elected() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(2)
    bench.write(0, 3)
    bench.settle()
    bench.cuts.clear()
    for node in (0, 1, 2):
        bench.switch(node, Mode.FETCH)
    bench.messages.clear()
    bench.assign(2, {2}, changing_mode=True)
    bench.settle()
    assert bench.replicas[2].role is Role.UNATTACHED
    assert any(isinstance(each, LeadershipDeclined) for each in bench.proposals)


def test_a_named_epoch_below_that_of_raft_is_refused() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.elect(0)
    bench.switch(0, Mode.FETCH)
    bench.publish(0, 0, {0}, changing_mode=True)
    bench.step(0, bench.assignment)
    declined = bench.proposals[-1]
    assert isinstance(declined, LeadershipDeclined)
    assert declined.epoch == bench.replicas[0].epoch


def test_a_named_leader_that_does_not_know_its_votes_declines() -> None:
    bench = ReplicaBench(3)
    bench.crash(2)
    bench.checkers.wiped(2)
    bench.states[2] = QuorumState(mode=Mode.FETCH, recovering=True, votes_unknown=True)
    bench.start(2)
    bench.publish(1, 2, {2}, changing_mode=True)
    bench.step(2, bench.assignment)
    assert bench.replicas[2].role is Role.UNATTACHED
    declined = bench.proposals[-1]
    assert isinstance(declined, LeadershipDeclined)
    assert declined.damaged


def test_unknown_votes_from_before_fetch_mode_no_longer_count() -> None:
    bench = ReplicaBench(3)
    bench.crash(2)
    bench.checkers.wiped(2)
    bench.states[2] = QuorumState(mode=Mode.FETCH, votes_unknown=True)
    bench.start(2)
    # Outside of a mode change a named leader needs no votes.
    bench.publish(1, 2, {2})
    bench.step(2, bench.assignment)
    assert bench.replicas[2].role is Role.LEADER
    assert bench.states[2].votes_unknown
    # A mode change proves that raft mode has started and ended since, although the replica missed it.
    bench.publish(3, 2, {2}, changing_mode=True)
    bench.step(2, bench.assignment)
    assert bench.replicas[2].role is Role.CANDIDATE
    assert not bench.states[2].votes_unknown


def test_a_named_leader_declines_in_an_epoch_that_another_replica_has_led() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.crash(2)
    bench.states[2] = replace(bench.states[2], voted_for=None)
    bench.start(2)
    bench.switch(2, Mode.FETCH)
    bench.publish(1, 2, {2}, changing_mode=True)
    bench.step(2, bench.assignment)
    assert bench.replicas[2].role is Role.UNATTACHED
    assert isinstance(bench.proposals[-1], LeadershipDeclined)


def test_nothing_is_committed_before_a_majority_is_in_sync() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    for node in (0, 1, 2):
        bench.switch(node, Mode.FETCH)
    bench.messages.clear()
    bench.assign(0, {0}, changing_mode=True)
    bench.settle()
    assert bench.replicas[0].role is Role.LEADER
    bench.write(0, 1)
    bench.settle()
    assert not bench.replicas[0].serving
    assert bench.high_watermarks[0] == 0


def to_fetch(bench: ReplicaBench, leader: int) -> None:
    """All replicas change to fetch mode; the controller accepts every proposal."""
    for node in (0, 1, 2):
        bench.switch(node, Mode.FETCH)
    bench.messages.clear()
    bench.proposals.clear()
    bench.assign(leader, {leader}, changing_mode=True)
    bench.settle()
    for _ in range(5):
        for node in (0, 1, 2):
            if bench.replicas[node].role is Role.FOLLOWER:
                bench.let_deadline_pass(node)
        bench.settle()
        while bench.proposals:
            proposal = bench.proposals.pop(0)
            if isinstance(proposal, InSyncProposal) and (
                proposal.version == bench.assignment.version
            ):
                majority = bench.voters.is_majority(proposal.in_sync)
                in_sync = set(proposal.in_sync)
                bench.publish(bench.assignment.epoch, leader, in_sync, changing_mode=not majority)
                bench.tell_all()
                bench.settle()

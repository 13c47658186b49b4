"""Fetch mode: in-sync sets, fencing, restarts, and leaders that the controller names."""

from dataclasses import replace

import pytest
from simulation.replica_bench import ReplicaBench

from zhumq.consensus.contract import (
    BrokerLost,
    FetchAnswered,
    FetchArrived,
    InSyncProposal,
    LeaderAnnounced,
    LeadershipDeclined,
    LogPosition,
    Mode,
    QuorumState,
    ReplicaSettings,
    Role,
    VoteAnswered,
    VoteAsked,
)
from zhumq.model.errors import ErrorCode

ALL_REPLICAS = {0, 1, 2}


def led_by_0(in_sync: set[int] | None = None, *, min_in_sync: int = 2) -> ReplicaBench:
    settings = ReplicaSettings(min_in_sync_replicas=min_in_sync)
    bench = ReplicaBench(3, mode=Mode.FETCH, settings=settings)
    bench.assign(0, in_sync or ALL_REPLICAS)
    bench.settle()
    return bench


def accept(bench: ReplicaBench) -> InSyncProposal:
    """The controller accepts the last proposal."""
    proposal = bench.proposals.pop()
    assert isinstance(proposal, InSyncProposal)
    changing_mode = bench.assignment.changing_mode and not bench.voters.is_majority(
        proposal.in_sync
    )
    bench.publish(
        bench.assignment.epoch,
        bench.assignment.leader_id,
        set(proposal.in_sync),
        changing_mode=changing_mode,
    )
    bench.tell_all()
    bench.settle()
    return proposal


# Committing


def test_committed_is_what_every_replica_in_sync_has_flushed() -> None:
    bench = led_by_0()
    bench.slow_disks = {2}
    bench.write(0, 2)
    bench.settle()
    assert bench.high_watermarks[0] == 0
    bench.flush(2)
    bench.settle()
    assert bench.high_watermarks == {0: 2, 1: 2, 2: 2}


def test_with_too_few_in_sync_nothing_is_accepted_nor_committed() -> None:
    bench = led_by_0({0})
    assert not bench.replicas[0].accepts_all_acks
    assert not bench.replicas[0].serving
    bench.write(0, 1)
    bench.settle()
    assert bench.high_watermarks[0] == 0
    accept(bench)
    assert bench.replicas[0].accepts_all_acks
    assert bench.high_watermarks[0] == 1


def test_a_proposed_member_counts_before_the_controller_has_answered() -> None:
    bench = led_by_0({0, 1})
    assert isinstance(bench.proposals[-1], InSyncProposal)
    assert bench.proposals[-1].in_sync == ALL_REPLICAS
    bench.isolate(2)
    bench.write(0, 1)
    bench.settle()
    # The controller may have accepted it by now, and may name 2 next.
    assert bench.high_watermarks[0] == 0


def test_a_shrunk_set_counts_only_once_it_is_accepted() -> None:
    bench = led_by_0()
    bench.isolate(2)
    bench.step(0, BrokerLost(broker_id=2))
    bench.write(0, 1)
    bench.settle()
    assert bench.high_watermarks[0] == 0
    assert accept(bench).in_sync == {0, 1}
    assert bench.high_watermarks[0] == 1


def test_a_leader_does_not_propose_itself_away() -> None:
    bench = led_by_0()
    bench.step(0, BrokerLost(broker_id=0))
    assert not bench.proposals
    assert bench.replicas[0].serving


def test_a_follower_that_falls_behind_is_proposed_out_at_a_deadline_only() -> None:
    bench = led_by_0()
    bench.isolate(2)
    bench.now_ms += 10 * bench.settings.replica_lag_max_ms
    bench.write(0, 1)
    bench.settle()
    assert not bench.proposals
    for node in (1, 0):
        bench.let_deadline_pass(node)
        bench.settle()
    assert isinstance(bench.proposals[-1], InSyncProposal)
    assert 2 not in bench.proposals[-1].in_sync


def test_a_follower_that_reaches_the_watermark_but_never_the_end_stays_out() -> None:
    bench = led_by_0({0, 1})
    bench.proposals.clear()
    bench.publish(bench.assignment.epoch, 0, {0, 1})
    bench.isolate(2)
    bench.tell_all()
    bench.proposals.clear()
    bench.now_ms += 10 * bench.settings.replica_lag_max_ms
    bench.step(0, bench.assignment)
    assert not [each for each in bench.proposals if 2 in getattr(each, "in_sync", ())]


def test_an_unanswered_proposal_is_made_again() -> None:
    bench = led_by_0({0, 1})
    first = bench.proposals.pop()
    while not bench.proposals:
        bench.let_deadline_pass(0)
    assert bench.proposals[-1] == first


# Fencing


def test_an_older_assignment_is_ignored() -> None:
    bench = led_by_0()
    old = bench.assignment
    bench.assign(1, ALL_REPLICAS)
    bench.settle()
    bench.step(0, old)
    assert bench.replicas[0].role is Role.FOLLOWER
    assert bench.replicas[0].leader_id == 1


def test_a_leader_that_learns_of_a_newer_epoch_accepts_nothing_more() -> None:
    bench = led_by_0()
    bench.publish(bench.assignment.epoch + 1, 1, ALL_REPLICAS)
    bench.step(2, bench.assignment)
    fetch = bench.messages.pop()[1].message
    assert isinstance(fetch, FetchArrived)
    bench.deliver(2, 0, fetch)
    assert bench.replicas[0].role is Role.UNATTACHED
    answers = {each.to: each.message for _, each in bench.messages}
    assert isinstance(answers[2], FetchAnswered)
    assert answers[2].error is ErrorCode.UNKNOWN_LEADER_EPOCH
    # A fetch of the old epoch that still waits is answered as well.
    assert isinstance(answers[1], FetchAnswered)
    assert answers[1].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_of_an_older_epoch_is_fenced_and_not_counted() -> None:
    bench = led_by_0()
    fetch = FetchArrived(
        replica_id=2,
        epoch=0,
        fetch_offset=1,
        last_fetched_epoch=1,
        flushed_offset=1,
        mode=Mode.FETCH,
        recovering=False,
        sequence=2**50,
        accepted_epoch=-1,
    )
    bench.step(0, fetch)
    answer = bench.messages.pop()[1].message
    assert isinstance(answer, FetchAnswered)
    assert answer.error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_restarted_leader_asks_for_a_new_epoch() -> None:
    bench = led_by_0()
    bench.crash(0)
    bench.start(0)
    assert bench.replicas[0].role is Role.UNATTACHED
    bench.step(0, bench.assignment)
    assert bench.replicas[0].role is Role.UNATTACHED
    declined = bench.proposals[-1]
    assert isinstance(declined, LeadershipDeclined)
    assert (declined.epoch, declined.damaged) == (1, False)
    bench.assign(0, ALL_REPLICAS)
    bench.settle()
    assert bench.replicas[0].serving


def test_a_new_leader_without_the_tail_makes_followers_truncate() -> None:
    bench = led_by_0()
    bench.slow_disks = {0}
    bench.isolate(2)
    bench.write(0, 3)
    bench.settle()
    bench.cuts.clear()
    bench.slow_disks = set()
    bench.assign(2, ALL_REPLICAS)
    bench.settle()
    assert bench.logs[1].read_all(0, 99) == bench.logs[2].read_all(0, 99)
    assert bench.logs[0].read_all(0, 99) == bench.logs[2].read_all(0, 99)


def test_without_a_leader_no_replica_has_a_deadline() -> None:
    bench = led_by_0()
    bench.assign(None, ALL_REPLICAS)
    assert {each.role for each in bench.replicas.values()} == {Role.UNATTACHED}
    assert {each.next_deadline_ms for each in bench.replicas.values()} == {None}


def test_an_unclean_leader_may_undo_what_was_committed() -> None:
    bench = ReplicaBench(3, mode=Mode.FETCH)
    bench.isolate(2)
    bench.assign(0, {0, 1})
    bench.settle()
    bench.write(0, 3)
    bench.settle()
    assert bench.high_watermarks[1] == 3
    bench.crash(0)
    bench.cuts.clear()
    bench.checkers.excused |= ALL_REPLICAS
    bench.checkers.on_role_changed = lambda *_: None  # type: ignore[method-assign]
    bench.checkers.serves = lambda *_: None  # type: ignore[method-assign]
    bench.checkers.raised = lambda *_, **__: None  # type: ignore[method-assign]
    bench.publish(bench.assignment.epoch + 1, 2, {2})
    bench.assignment = replace(bench.assignment, unclean_epoch=bench.assignment.epoch)
    bench.tell_all()
    bench.settle()
    assert bench.logs[1].read_all(0, 99) == bench.logs[2].read_all(0, 99)


# Damage


def test_a_damaged_leader_asks_to_be_replaced() -> None:
    bench = led_by_0()
    bench.damage(0, 0)
    assert bench.replicas[0].role is Role.UNATTACHED
    declined = bench.proposals[-1]
    assert isinstance(declined, LeadershipDeclined)
    assert declined.damaged


def test_a_damaged_follower_is_proposed_out_and_back_in_once_recovered() -> None:
    bench = led_by_0()
    bench.write(0, 3)
    bench.settle()
    bench.fetch_entries_max = 1
    bench.damage(2, 1)
    while not bench.proposals:
        bench.deliver_next()
    assert accept(bench).in_sync == {0, 1}
    for _ in range(6):
        bench.let_deadline_pass(2)
        bench.settle()
    assert not bench.states[2].recovering
    assert accept(bench).in_sync == ALL_REPLICAS
    assert bench.logs[2].read_all(0, 99) == bench.logs[0].read_all(0, 99)


# Messages of raft


def test_a_raft_candidate_gets_no_vote_here() -> None:
    bench = led_by_0()
    bench.messages.clear()
    question = VoteAsked(
        candidate_id=1,
        epoch=9,
        position=LogPosition(9, 9),
        pre_vote=False,
        mode=Mode.RAFT,
        voters=(0, 1, 2),
    )
    bench.step(2, question)
    answer = bench.messages.pop()[1].message
    assert isinstance(answer, VoteAnswered)
    assert not answer.granted
    assert bench.replicas[2].epoch == 1
    bench.step(2, LeaderAnnounced(leader_id=1, epoch=9))
    assert bench.replicas[2].leader_id == 0


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_named_leader_declines_once_it_cannot_win_the_votes(refusals: int) -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.switch(2, Mode.FETCH)
    bench.publish(2, 2, {2}, changing_mode=True)
    bench.isolate(2)
    bench.step(2, bench.assignment)
    assert bench.replicas[2].role is Role.CANDIDATE
    for voter in range(refusals):
        refusal = VoteAnswered(
            voter_id=voter,
            asked_epoch=2,
            epoch=2,
            leader_id=None,
            granted=False,
            pre_vote=False,
            position=LogPosition(1, 1),
        )
        bench.step(2, refusal)
    assert (bench.replicas[2].role is Role.CANDIDATE) is (refusals == 1)
    assert any(isinstance(each, LeadershipDeclined) for each in bench.proposals) is (refusals == 2)


def test_epochs_and_votes_are_kept_across_a_restart() -> None:
    bench = led_by_0()
    bench.crash(1)
    bench.start(1)
    assert bench.states[1] == QuorumState(epoch=1, leader_id=0, mode=Mode.FETCH, accepted_epoch=1)
    assert bench.replicas[1].leader_id is None

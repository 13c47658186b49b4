"""Raft mode: elections, commits, divergence, damage."""

from dataclasses import replace

import pytest
from simulation.replica_bench import ReplicaBench
from simulation.simulated_log import Entry, SimulatedLog

from zhumq.consensus.contract import (
    NOTHING,
    BrokerLost,
    ConsensusBroken,
    DeadlinePassed,
    EpochEnd,
    FetchAnswered,
    FetchArrived,
    LeaderAnnounced,
    LeaderAssigned,
    LogPosition,
    Mode,
    Outgoing,
    QuorumState,
    ReplicaSettings,
    Role,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.voters import Voters
from zhumq.model.errors import ErrorCode

ELECTION_TIMEOUT_MS = ReplicaSettings().election_timeout_ms


def vote(
    candidate: int,
    epoch: int,
    *,
    pre_vote: bool = False,
    voters: tuple[int, ...] = (0, 1, 2),
) -> VoteAsked:
    return VoteAsked(
        candidate_id=candidate,
        epoch=epoch,
        position=LogPosition(-1, 0),
        pre_vote=pre_vote,
        mode=Mode.RAFT,
        voters=voters,
    )


def answers(bench: ReplicaBench) -> list[VoteAnswered]:
    messages = [outgoing.message for _, outgoing in bench.messages]
    return [each for each in messages if isinstance(each, VoteAnswered)]


def test_a_candidate_with_another_voter_set_gets_no_vote() -> None:
    bench = ReplicaBench(3)
    for pre_vote in (True, False):
        bench.step(1, vote(0, 1, pre_vote=pre_vote, voters=(0, 1, 7)))
        assert not answers(bench)[-1].granted
        bench.step(1, vote(0, 1, pre_vote=pre_vote))
        assert answers(bench)[-1].granted


def test_a_leader_is_elected_and_commits_on_a_majority() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    assert bench.replicas[0].role is Role.LEADER
    assert bench.replicas[0].serving
    bench.write(0, 3)
    bench.settle()
    assert bench.high_watermarks == {0: 3, 1: 3, 2: 3}
    assert {each.leader_id for each in bench.replicas.values()} == {0}


def test_a_replica_that_was_moved_away_gets_no_vote() -> None:
    bench = ReplicaBench(3)
    for asked in (vote(7, 1, pre_vote=True), vote(7, 1), vote(2, 1)):
        bench.step(1, asked)
    assert [answer.granted for answer in answers(bench)] == [False, False, True]


def test_a_single_replica_leads_itself_at_once() -> None:
    bench = ReplicaBench(1)
    bench.let_deadline_pass(0)
    assert bench.now_ms == 0
    bench.write(0, 2)
    assert bench.high_watermarks[0] == 2
    assert bench.replicas[0].next_deadline_ms is None


def test_a_restarted_voter_remembers_its_vote() -> None:
    bench = ReplicaBench(3)
    bench.step(1, vote(0, 5))
    bench.crash(1)
    bench.start(1)
    bench.messages.clear()
    bench.step(1, vote(2, 5))
    bench.step(1, vote(0, 5))
    assert [each.granted for each in answers(bench)] == [False, True]


def test_a_pre_vote_uses_up_no_vote_and_no_epoch() -> None:
    bench = ReplicaBench(3)
    bench.step(1, vote(0, 0, pre_vote=True))
    assert [each.granted for each in answers(bench)] == [True]
    assert bench.states[1] == QuorumState()


def test_a_replica_with_contact_to_its_leader_refuses_a_pre_vote() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.step(1, replace(vote(2, 1, pre_vote=True), position=LogPosition(9, 99)))
    assert [each.granted for each in answers(bench)] == [False]
    bench.messages.clear()
    bench.now_ms += ELECTION_TIMEOUT_MS
    bench.step(1, replace(vote(2, 1, pre_vote=True), position=LogPosition(9, 99)))
    assert [each.granted for each in answers(bench)] == [True]


def test_a_cut_off_replica_does_not_raise_the_epoch() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(2)
    for _ in range(20):
        bench.let_deadline_pass(2)
        bench.settle()
    assert bench.replicas[2].epoch == 1
    assert bench.replicas[0].role is Role.LEADER


def test_a_lost_broker_starts_an_election_at_once() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.crash(0)
    before_ms = bench.now_ms
    for node in (1, 2):
        bench.step(node, BrokerLost(broker_id=0))
    bench.let_deadline_pass(1)
    bench.settle()
    assert bench.replicas[1].role is Role.LEADER
    assert bench.now_ms - before_ms <= ReplicaSettings().campaign_jitter_ms


def test_the_loss_of_another_broker_starts_no_election() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.step(1, BrokerLost(broker_id=2))
    assert bench.replicas[1].role is Role.FOLLOWER


def test_a_leader_counts_its_own_log_only_up_to_what_is_flushed() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(2)
    bench.slow_disks = {0}
    bench.write(0, 1)
    bench.settle()
    assert bench.logs[1].flushed_offset == 1
    assert bench.high_watermarks[0] == 0
    bench.flush(0)
    assert bench.high_watermarks[0] == 1


def test_a_follower_counts_only_up_to_what_it_has_flushed() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(2)
    bench.slow_disks = {1}
    bench.write(0, 1)
    bench.settle()
    assert bench.logs[1].log_end_offset == 1
    assert bench.high_watermarks[0] == 0
    bench.flush(1)
    bench.settle()
    assert bench.high_watermarks[0] == 1


def test_two_flushed_followers_commit_what_the_leader_has_not_flushed() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.slow_disks = {0}
    bench.write(0, 1)
    bench.settle()
    assert bench.high_watermarks[0] == 1


def test_an_elected_leader_does_not_serve_before_its_epoch_is_accepted() -> None:
    bench = ReplicaBench(3)
    bench.campaign(0)
    while bench.replicas[0].role is not Role.LEADER:
        bench.deliver_next()
    assert not bench.replicas[0].serving
    bench.settle()
    assert bench.replicas[0].serving


def test_a_returning_leader_truncates_what_no_majority_acknowledged() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(0)
    bench.write(0, 5)
    bench.elect(1)
    bench.write(1, 2)
    bench.settle()
    bench.cuts.clear()
    bench.let_deadline_pass(1)
    bench.settle()
    # The new leader has announced itself to the others; the old leader learns of it now.
    bench.step(0, LeaderAnnounced(leader_id=1, epoch=2))
    bench.settle()
    assert bench.logs[0].read_all(0, 99) == bench.logs[1].read_all(0, 99)
    assert bench.high_watermarks[0] == bench.high_watermarks[1]


def test_a_follower_too_far_behind_starts_over_where_the_leader_begins() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(2)
    bench.write(0, 9)
    bench.settle()
    bench.logs[0].delete_before(6)
    bench.cuts.clear()
    bench.let_deadline_pass(2)
    bench.settle()
    assert bench.logs[2].log_start_offset == 6
    assert bench.logs[2].read_all(6, 99) == bench.logs[0].read_all(6, 99)


def test_a_leader_without_a_majority_resigns_and_reports_it() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.isolate(0)
    while bench.replicas[0].role is Role.LEADER:
        bench.let_deadline_pass(0)
    assert bench.replicas[0].leader_id is None
    bench.cuts.clear()
    bench.let_deadline_pass(1)
    bench.settle()
    assert bench.replicas[1].role is not Role.FOLLOWER or bench.replicas[1].leader_id != 0


def test_an_answer_from_before_the_election_does_not_end_it() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    refusal = FetchAnswered(
        responder_id=0,
        epoch=1,
        leader_id=None,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        fetch_offset=0,
        last_fetched_epoch=-1,
        sequence=0,
        high_watermark=0,
        serving=False,
        epoch_start_offset=0,
    )
    bench.step(1, refusal)
    assert bench.replicas[1].leader_id == 0
    bench.step(1, replace(refusal, sequence=2**50))
    assert bench.replicas[1].leader_id is None
    # The leader has resigned: a late announcement does not bring it back.
    bench.step(1, LeaderAnnounced(leader_id=0, epoch=1))
    assert bench.replicas[1].leader_id is None


def test_a_wiped_replica_asks_every_voter_before_it_votes_again() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.write(0, 3)
    bench.settle()
    bench.wipe(2)
    bench.crash(1)
    bench.start(2)
    bench.settle()
    for _ in range(4):
        bench.let_deadline_pass(2)
        bench.settle()
    # It has all records again, but replica 1 may have its vote.
    assert bench.logs[2].read_all(0, 99) == bench.logs[0].read_all(0, 99)
    assert bench.states[2].votes_unknown
    assert bench.states[2].recovering
    bench.write(0, 1)
    bench.settle()
    assert bench.high_watermarks[0] == 3
    bench.start(1)
    for _ in range(4):
        bench.let_deadline_pass(2)
        bench.settle()
    assert not bench.states[2].votes_unknown
    assert not bench.states[2].recovering
    assert bench.high_watermarks[0] == 4


def test_a_wiped_replica_recovers_with_the_answer_of_the_last_voter_without_new_records() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.write(0, 3)
    bench.settle()
    bench.wipe(2)
    # All answers of the leader arrive before the first answer of replica 1.
    bench.start(2)
    late: list[tuple[int, Outgoing]] = []
    while bench.messages:
        sender, outgoing = bench.messages.pop(0)
        if 1 in (sender, outgoing.to):
            late.append((sender, outgoing))
        else:
            bench.deliver(sender, outgoing.to, outgoing.message)
    assert bench.logs[2].read_all(0, 99) == bench.logs[0].read_all(0, 99)
    assert bench.states[2].recovering
    for sender, outgoing in late:
        bench.deliver(sender, outgoing.to, outgoing.message)
    answers = [each for each in bench.messages if each[0] == 1 and each[1].to == 2]
    bench.messages.clear()
    for sender, outgoing in answers:
        bench.deliver(sender, outgoing.to, outgoing.message)
    assert not bench.states[2].recovering


def test_an_answer_to_an_earlier_position_is_ignored() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.write(0, 2)
    bench.settle()
    late = FetchAnswered(
        responder_id=0,
        epoch=1,
        leader_id=0,
        error=ErrorCode.NONE,
        fetch_offset=1,
        last_fetched_epoch=1,
        sequence=1,
        high_watermark=3,
        serving=True,
        epoch_start_offset=0,
        records=(Entry(1, -1, 77),),
    )
    bench.step(1, late)
    assert bench.logs[1].read_all(0, 99) == bench.logs[0].read_all(0, 99)


def test_truncation_below_the_high_watermark_stops_the_replica() -> None:
    log = SimulatedLog()
    for _ in range(4):
        log.append(Entry(1, -1, -1))
    log.flush(log.begin_flush())
    replica = _replica(log, QuorumState(epoch=2, leader_id=0), high_watermark=4)
    answer = FetchAnswered(
        responder_id=0,
        epoch=2,
        leader_id=0,
        error=ErrorCode.NONE,
        fetch_offset=4,
        last_fetched_epoch=1,
        sequence=1,
        high_watermark=0,
        serving=True,
        epoch_start_offset=0,
        diverging=EpochEnd(1, 2),
    )
    with pytest.raises(ConsensusBroken, match="below its high watermark 4"):
        replica.step(answer, 0)


def test_two_leaders_of_one_epoch_are_an_error() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    with pytest.raises(ConsensusBroken, match="both lead epoch 1"):
        bench.replicas[0].step(LeaderAnnounced(leader_id=2, epoch=1), 0)


def test_a_damaged_leader_resigns_and_recovers_from_the_next_one() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.write(0, 4)
    bench.settle()
    bench.damage(0, 2)
    assert bench.replicas[0].role is not Role.LEADER
    assert bench.states[0].recovering
    # The replica keeps unreadable data until a leader has sent it again.
    assert bench.logs[0].log_end_offset == 4
    bench.elect(1)
    bench.let_deadline_pass(0)
    bench.settle()
    bench.let_deadline_pass(0)
    bench.settle()
    assert not bench.states[0].recovering
    assert bench.logs[0].read_all(0, 99) == bench.logs[1].read_all(0, 99)


def test_a_damaged_replica_neither_votes_nor_campaigns() -> None:
    bench = ReplicaBench(3)
    bench.damage(1, 0)
    bench.messages.clear()
    bench.step(1, vote(0, 7))
    assert [each.granted for each in answers(bench)] == [False]
    bench.crash(1)
    bench.start(1)
    bench.messages.clear()
    for _ in range(3):
        bench.let_deadline_pass(1)
    assert all(isinstance(outgoing.message, FetchArrived) for _, outgoing in bench.messages)
    assert {outgoing.to for _, outgoing in bench.messages} == {0, 2}


def test_an_assignment_of_another_mode_changes_nothing() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    assigned = LeaderAssigned(version=9, epoch=9, leader_id=2, in_sync=frozenset({2}))
    bench.step(1, assigned)
    assert bench.replicas[1].leader_id == 0


def test_an_idle_follower_has_a_deadline_and_nothing_to_do() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    replica = bench.replicas[1]
    assert replica.take_ready() is NOTHING
    assert replica.next_deadline_ms is not None
    replica.step(DeadlinePassed(), bench.now_ms)
    assert replica.take_ready() is NOTHING


def _replica(log: SimulatedLog, state: QuorumState, *, high_watermark: int) -> RaftReplica:
    return RaftReplica(
        1,
        Voters(range(3)),
        log,
        ReplicaSettings(),
        state,
        high_watermark=high_watermark,
        incarnation=1,
        draw=lambda low, high: low,
        now_ms=0,
    )

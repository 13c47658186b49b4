"""Replicas that lose their leader at the same time campaign one after the other."""

from dataclasses import replace

from simulation.replica_bench import ReplicaBench
from simulation.simulated_log import Entry

from zhumq.consensus.contract import (
    BrokerLost,
    DeadlinePassed,
    InSyncProposal,
    LogPosition,
    Mode,
    ReplicaSettings,
    Role,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.voters import Voters

JITTER_MS = ReplicaSettings().campaign_jitter_ms
ELECTION_TIMEOUT_MS = ReplicaSettings().election_timeout_ms
EMPTY = LogPosition(-1, 0)


def question(
    candidate: int, epoch: int, position: LogPosition = EMPTY, *, pre_vote: bool = True
) -> VoteAsked:
    return VoteAsked(
        candidate_id=candidate,
        epoch=epoch,
        position=position,
        pre_vote=pre_vote,
        mode=Mode.RAFT,
        voters=(0, 1, 2),
    )


def due_in_ms(bench: ReplicaBench, node: int) -> int:
    due_ms = bench.replicas[node].next_deadline_ms
    assert due_ms is not None
    return due_ms - bench.now_ms


def test_replicas_have_an_order_of_candidacy_after_a_lost_leader() -> None:
    voters = Voters((3, 1, 2))
    assert voters.ids == (1, 2, 3)
    assert [voters.rank(each, None) for each in (3, 1, 2)] == [0, 1, 2]
    assert [voters.rank(each, 3) for each in (1, 2)] == [0, 1]
    assert voters.rank(9, None) == 3


def test_followers_of_a_lost_leader_campaign_one_after_the_other() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    for node in (1, 2):
        bench.step(node, BrokerLost(broker_id=0))
    assert due_in_ms(bench, 1) < JITTER_MS <= due_in_ms(bench, 2) < ELECTION_TIMEOUT_MS


def test_a_voter_that_grants_a_pre_vote_delays_its_own_candidacy() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    bench.step(2, BrokerLost(broker_id=0))
    position = bench.replicas[1].vote_position
    bench.step(2, question(1, bench.replicas[2].epoch, position))
    assert due_in_ms(bench, 2) >= 4 * JITTER_MS


def test_of_two_candidates_at_the_same_time_the_first_in_order_continues() -> None:
    bench = ReplicaBench(3)
    for node in (0, 1):
        bench.replicas[node].campaign_soon(bench.now_ms)
        bench.step(node, DeadlinePassed())
        assert bench.replicas[node].role is Role.PROSPECTIVE
    bench.settle()
    assert bench.replicas[0].role is Role.LEADER
    assert bench.replicas[0].epoch == 1


def test_a_candidate_gives_precedence_to_one_with_a_longer_log() -> None:
    bench = ReplicaBench(3)
    bench.replicas[0].campaign_soon(bench.now_ms)
    bench.step(0, DeadlinePassed())
    bench.step(0, question(2, 0, LogPosition(0, 5)))
    assert bench.replicas[0].role is Role.UNATTACHED
    assert due_in_ms(bench, 0) >= 4 * JITTER_MS


def test_a_voter_with_a_longer_log_than_the_candidate_campaigns_soon() -> None:
    bench = ReplicaBench(3)
    bench.logs[1].append(Entry(0, -1, -1))
    bench.step(1, question(0, 0))
    assert due_in_ms(bench, 1) <= JITTER_MS
    # Not while it has contact with the leader: only the candidate may be cut off from it.
    bench = ReplicaBench(3)
    bench.elect(0)
    before_ms = due_in_ms(bench, 1)
    bench.step(1, question(2, bench.replicas[1].epoch))
    assert due_in_ms(bench, 1) == before_ms


def test_after_split_votes_a_candidate_retries_before_the_election_timeout() -> None:
    bench = ReplicaBench(3)
    candidate = bench.replicas[0]
    bench.campaign(0)
    while candidate.role is not Role.CANDIDATE:
        bench.deliver_next()
    refusal = VoteAnswered(
        voter_id=1,
        asked_epoch=candidate.epoch,
        epoch=candidate.epoch,
        leader_id=None,
        granted=False,
        pre_vote=False,
        position=EMPTY,
    )
    # The third voter may be dead: the candidate does not wait for its answer.
    bench.step(0, refusal)
    assert candidate.role is Role.CANDIDATE
    assert due_in_ms(bench, 0) <= 3 * JITTER_MS


def test_a_new_partition_need_not_wait_for_a_timeout() -> None:
    bench = ReplicaBench(3)
    bench.replicas[1].campaign_soon(bench.now_ms)
    assert due_in_ms(bench, 1) == 0
    bench.step(1, DeadlinePassed())
    bench.settle()
    assert bench.replicas[1].role is Role.LEADER
    # A follower or a leader does not campaign.
    bench.replicas[0].campaign_soon(bench.now_ms)
    assert bench.replicas[0].role is Role.FOLLOWER
    assert due_in_ms(bench, 0) > 0


def test_a_follower_with_contact_to_an_idle_leader_refuses_other_candidates() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    follower = bench.replicas[1]
    later_ms = bench.now_ms + 50_000
    follower._session_contact_ms = lambda _: later_ms - 100
    bench.messages.clear()
    bench.now_ms = later_ms
    bench.step(1, question(2, follower.epoch, follower.vote_position))
    [(_, outgoing)] = bench.messages
    assert isinstance(outgoing.message, VoteAnswered)
    assert not outgoing.message.granted


def test_an_idle_follower_is_not_due_while_its_leader_makes_contact() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    follower = bench.replicas[1]
    bench.now_ms += 20_000
    follower._session_contact_ms = lambda _: bench.now_ms - 100
    assert due_in_ms(bench, 1) > 0
    follower._session_contact_ms = lambda _: 0
    assert due_in_ms(bench, 1) < 0


def test_a_partition_that_moves_gets_new_followers_while_it_is_led() -> None:
    bench = ReplicaBench(4, mode=Mode.FETCH)
    bench.assign(0, {0, 1})
    bench.publish(bench.assignment.epoch, 0, {0, 1})
    assigned = replace(bench.assignment, version=bench.assignment.version + 1, replicas=(0, 1, 3))
    for node in (0, 1, 3):
        bench.step(node, assigned)
    bench.settle()
    leader = bench.replicas[0]
    assert leader.role is Role.LEADER
    assert leader.voters.ids == (0, 1, 3)
    bench.write(0, 2)
    bench.settle()
    requests = [each for each in bench.proposals if isinstance(each, InSyncProposal)]
    assert requests
    assert requests[-1].in_sync == {0, 1, 3}

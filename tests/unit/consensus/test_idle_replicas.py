"""One heartbeat between two brokers keeps all their idle partitions alive."""

from collections.abc import Callable

import pytest
from simulation.replica_bench import ReplicaBench
from simulation.simulated_log import SimulatedLog

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import (
    NOTHING,
    DeadlinePassed,
    FetchAnswered,
    InSyncProposal,
    LeaderAssigned,
    Mode,
    QuorumState,
    ReplicaSettings,
    Role,
)
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.voters import Voters
from zhumq.model.errors import ErrorCode

DAY_MS = 24 * 3_600 * 1_000


class Heartbeats:
    """The last contact with each broker."""

    def __init__(self) -> None:
        self.at_ms: dict[int, int] = {}

    def __call__(self, replica_id: int) -> int:
        return self.at_ms.get(replica_id, -DAY_MS)


def follower(heartbeats: Callable[[int], int], mode: Mode) -> RaftReplica | AssignedReplica:
    kind = RaftReplica if mode is Mode.RAFT else AssignedReplica
    replica = kind(
        1,
        Voters(range(3)),
        SimulatedLog(),
        ReplicaSettings(),
        QuorumState(epoch=1, leader_id=0, mode=mode),
        high_watermark=0,
        incarnation=1,
        draw=lambda low, high: low,
        now_ms=0,
        session_contact_ms=heartbeats,
    )
    if mode is Mode.FETCH:
        assigned = LeaderAssigned(version=1, epoch=1, leader_id=0, in_sync=frozenset({0, 1, 2}))
        replica.step(assigned, 0)
    replica.take_ready()
    assert replica.role is Role.FOLLOWER
    return replica


def test_a_leader_checks_followers_only_while_there_are_any() -> None:
    leader = AssignedReplica(
        0,
        Voters([0]),
        SimulatedLog(),
        ReplicaSettings(),
        QuorumState(mode=Mode.FETCH),
        high_watermark=0,
        incarnation=1,
        draw=lambda low, high: low,
        now_ms=0,
        session_contact_ms=Heartbeats(),
    )

    def assign(version: int, replicas: tuple[int, ...], in_sync: set[int]) -> None:
        assigned = LeaderAssigned(
            version=version, epoch=1, leader_id=0, in_sync=frozenset(in_sync), replicas=replicas
        )
        leader.step(assigned, version)
        leader.take_ready()

    assign(1, (0,), {0})
    assert leader.role is Role.LEADER
    assert leader.next_deadline_ms is None
    assign(2, (0, 1), {0})
    due_ms = leader.next_deadline_ms
    assert due_ms is not None
    assign(3, (0, 1), {0, 1})
    assert leader.next_deadline_ms == due_ms
    leader.step(DeadlinePassed(), due_ms)
    assert leader.next_deadline_ms is not None
    assign(4, (0,), {0})
    leader.step(DeadlinePassed(), leader.next_deadline_ms)
    assert leader.next_deadline_ms is None


@pytest.mark.parametrize("mode", list(Mode))
def test_an_idle_follower_of_a_live_broker_sends_nothing(mode: Mode) -> None:
    heartbeats = Heartbeats()
    replica = follower(heartbeats, mode)
    now_ms = steps = 0
    while now_ms < 60_000:
        assert replica.next_deadline_ms is not None
        now_ms = max(replica.next_deadline_ms, now_ms)
        heartbeats.at_ms[0] = now_ms - 100
        replica.step(DeadlinePassed(), now_ms)
        assert replica.take_ready() is NOTHING
        steps += 1
    assert steps <= 60_000 // 400


def test_a_follower_campaigns_once_the_leaders_broker_is_silent() -> None:
    heartbeats = Heartbeats()
    replica = follower(heartbeats, Mode.RAFT)
    heartbeats.at_ms[0] = 5_000
    now_ms = 0
    while replica.role is not Role.PROSPECTIVE:
        assert replica.next_deadline_ms is not None
        now_ms = max(replica.next_deadline_ms, now_ms)
        replica.step(DeadlinePassed(), now_ms)
    assert now_ms >= 5_000 + ReplicaSettings().election_timeout_ms


def test_a_leader_stays_while_it_has_contact_with_a_majority_of_the_brokers() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    leader = bench.replicas[0]
    heartbeats = Heartbeats()
    leader._session_contact_ms = heartbeats
    heartbeats.at_ms[1] = 50_000
    leader.step(DeadlinePassed(), 50_500)
    assert leader.role is Role.LEADER
    leader.step(DeadlinePassed(), 50_000 + ReplicaSettings().election_timeout_ms)
    assert leader.role is Role.UNATTACHED


def test_the_last_contact_of_an_ended_session_counts() -> None:
    bench = ReplicaBench(3)
    bench.elect(0)
    leader = bench.replicas[0]
    leader._session_contact_ms = Heartbeats()
    leader.note_last_contact(1, 50_000)
    leader.step(DeadlinePassed(), 50_500)
    assert leader.role is Role.LEADER
    leader.step(DeadlinePassed(), 50_000 + ReplicaSettings().election_timeout_ms)
    assert leader.role is Role.UNATTACHED


def test_a_session_does_not_count_for_a_replica_that_has_not_fetched_in_this_epoch() -> None:
    bench = ReplicaBench(3)
    bench.campaign(0)
    while bench.replicas[0].role is not Role.LEADER:
        bench.deliver_next()
    leader = bench.replicas[0]
    heartbeats = Heartbeats()
    leader._session_contact_ms = heartbeats
    heartbeats.at_ms = {1: 50_000, 2: 50_000}
    leader.step(DeadlinePassed(), 50_500)
    assert leader.role is Role.UNATTACHED


def test_an_idle_follower_stays_in_sync_while_its_broker_makes_contact() -> None:
    bench = ReplicaBench(3, mode=Mode.FETCH)
    bench.assign(0, {0, 1, 2})
    bench.settle()
    leader = bench.replicas[0]
    heartbeats = Heartbeats()
    leader._session_contact_ms = heartbeats
    heartbeats.at_ms = {1: 50_000, 2: 1}
    leader.step(DeadlinePassed(), 50_500)
    proposal = leader.take_ready().propose
    assert isinstance(proposal, InSyncProposal)
    assert proposal.in_sync == {0, 1}


def test_an_unattached_replica_that_is_answered_by_a_leader_follows_it() -> None:
    bench = ReplicaBench(3)
    answer = FetchAnswered(
        responder_id=2,
        epoch=0,
        leader_id=2,
        error=ErrorCode.NONE,
        fetch_offset=0,
        last_fetched_epoch=-1,
        sequence=1,
        high_watermark=0,
        serving=False,
        epoch_start_offset=0,
    )
    bench.step(0, answer)
    assert bench.replicas[0].leader_id == 2

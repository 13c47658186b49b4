"""The contract of raft and assigned replicas with their driver."""

import pytest
from simulation.replica_bench import ReplicaBench

from zhumq.consensus.contract import (
    NOTHING,
    BrokerLost,
    DeadlinePassed,
    FetchAnswered,
    Flushed,
    LeaderAnnounced,
    LogPosition,
    Mode,
    Role,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.replica import ReplicaCore
from zhumq.model.errors import ErrorCode

both_modes = pytest.mark.parametrize("mode", list(Mode))


def led_by_0(mode: Mode) -> ReplicaBench:
    bench = ReplicaBench(3, mode=mode)
    if mode is Mode.RAFT:
        bench.elect(0)
    else:
        bench.assign(0, {0, 1, 2})
        bench.settle()
    assert bench.replicas[0].role is Role.LEADER
    return bench


def change_leader(bench: ReplicaBench, mode: Mode, node: int) -> None:
    if mode is Mode.RAFT:
        leaders = [each for each, one in bench.replicas.items() if one.role is Role.LEADER]
        for leader in leaders:
            bench.crash(leader)
        bench.elect(node)
        for leader in leaders:
            bench.start(leader)
        bench.let_deadline_pass(node)
    else:
        bench.assign(node, set(bench.replicas))
    bench.settle()
    assert bench.replicas[node].role is Role.LEADER


@both_modes
def test_a_new_replica_has_no_leader_and_does_not_serve(mode: Mode) -> None:
    replica: ReplicaCore = ReplicaBench(3, mode=mode).replicas[0]
    assert replica.role is Role.UNATTACHED
    assert replica.leader_id is None
    assert not replica.serving
    assert not replica.accepts_all_acks
    assert replica.high_watermark == 0


@both_modes
def test_a_ready_is_taken_once(mode: Mode) -> None:
    bench = led_by_0(mode)
    assert bench.replicas[0].take_ready() is NOTHING


@both_modes
def test_the_epoch_is_persisted_in_the_ready_that_sends_it(mode: Mode) -> None:
    bench = ReplicaBench(1, mode=mode)
    replica = bench.replicas[0]
    if mode is Mode.RAFT:
        replica.step(DeadlinePassed(), 0)
    else:
        bench.publish(1, 0, {0})
        replica.step(bench.assignment, 0)
    ready = replica.take_ready()
    assert ready.persist_quorum_state is not None
    assert ready.persist_quorum_state.epoch == 1
    assert ready.persist_quorum_state.leader_id == 0
    assert ready.append == ()
    # A single replica commits what is on its disk.
    assert ready.role is not None
    assert ready.role.serving


@both_modes
def test_a_leader_serves_without_a_record_of_its_own(mode: Mode) -> None:
    bench = led_by_0(mode)
    assert bench.replicas[0].serving
    assert {each.log_end_offset for each in bench.logs.values()} == {0}
    bench.write(0, 2)
    bench.settle()
    change_leader(bench, mode, 1)
    assert bench.replicas[1].serving
    assert {each.log_end_offset for each in bench.logs.values()} == {2}
    assert bench.high_watermarks[1] == 2


@both_modes
def test_followers_learn_the_high_watermark_from_answers(mode: Mode) -> None:
    bench = led_by_0(mode)
    bench.write(0, 5)
    bench.settle()
    assert bench.high_watermarks == {0: 5, 1: 5, 2: 5}


@both_modes
def test_nothing_flushed_on_the_others_nothing_committed(mode: Mode) -> None:
    bench = led_by_0(mode)
    bench.slow_disks = {1, 2}
    bench.write(0, 5)
    bench.settle()
    assert bench.high_watermarks[0] == 0


@both_modes
def test_what_was_committed_survives_any_change_of_leader(mode: Mode) -> None:
    bench = led_by_0(mode)
    for turn in range(1, 7):
        bench.write((turn - 1) % 3, 3)
        bench.settle()
        change_leader(bench, mode, turn % 3)
    leader = bench.logs[0].read_all(0, 999)
    assert [each.sequence for each in leader if each.sequence >= 0] == list(range(1, 19))
    assert all(log.read_all(0, 999) == leader for log in bench.logs.values())


@both_modes
def test_a_power_loss_of_all_loses_nothing_committed(mode: Mode) -> None:
    bench = led_by_0(mode)
    bench.write(0, 3)
    bench.settle()
    bench.slow_disks = {0, 1, 2}
    bench.write(0, 3)
    bench.settle()
    assert bench.logs[1].log_end_offset == 6
    for node in (0, 1, 2):
        bench.crash(node)
    bench.slow_disks = set()
    bench.messages.clear()
    for node in (0, 1, 2):
        bench.start(node)
    change_leader(bench, mode, 1)
    assert bench.high_watermarks[1] == 3
    assert bench.logs[0].read_all(0, 99) == bench.logs[1].read_all(0, 99)


@both_modes
def test_a_wiped_log_is_fetched_from_the_beginning(mode: Mode) -> None:
    bench = led_by_0(mode)
    bench.write(0, 40)
    bench.settle()
    bench.damage(2, 0)
    for _ in range(3):
        bench.let_deadline_pass(2)
        bench.settle()
    assert bench.logs[2].read_all(0, 99) == bench.logs[0].read_all(0, 99)
    assert not bench.states[2].recovering


@both_modes
def test_a_fetch_is_answered_again_with_what_is_new(mode: Mode) -> None:
    bench = led_by_0(mode)
    fetch = bench._parked[(0, 1)]
    before = bench.replicas[0].fetch_answer(fetch)
    bench.isolate(1)
    bench.write(0, 1)
    after = bench.replicas[0].fetch_answer(fetch)
    assert before.error is after.error is ErrorCode.NONE
    assert (before.sequence, before.fetch_offset) == (after.sequence, after.fetch_offset)


@both_modes
def test_a_follower_names_the_leader(mode: Mode) -> None:
    bench = led_by_0(mode)
    fetch = bench._parked[(0, 1)]
    answer = bench.replicas[2].fetch_answer(fetch)
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.leader_id == 0


@both_modes
@pytest.mark.parametrize("node", [0, 1])
def test_every_input_is_taken_by_every_role(mode: Mode, node: int) -> None:
    bench = led_by_0(mode)
    position = LogPosition(0, 0)
    strays = (
        VoteAnswered(
            voter_id=2,
            asked_epoch=1,
            epoch=1,
            leader_id=None,
            granted=True,
            pre_vote=False,
            position=position,
        ),
        VoteAsked(
            candidate_id=2,
            epoch=0,
            position=position,
            pre_vote=True,
            mode=Mode.RAFT,
            voters=(0, 1, 2),
        ),
        LeaderAnnounced(leader_id=2, epoch=0),
        BrokerLost(broker_id=77),
        Flushed(end_offset=0),
        bench.assignment,
        DeadlinePassed(),
        FetchAnswered(
            responder_id=77,
            epoch=1,
            leader_id=None,
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            fetch_offset=0,
            last_fetched_epoch=-1,
            sequence=0,
            high_watermark=0,
            serving=False,
            epoch_start_offset=0,
        ),
    )
    before = bench.replicas[node].role
    for stray in strays:
        bench.step(node, stray)
    bench.settle()
    assert bench.replicas[node].role is before
    bench.write(0, 1)
    bench.settle()
    assert bench.high_watermarks[0] == 1

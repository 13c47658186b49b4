"""SyncGroup, Heartbeat, LeaveGroup and the session timeout, with Kafka's errors where Kafka has them."""

import pytest
from group_driver import GROUP, Driver, protocols

from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


def completing_group(driver: Driver, size: int = 2) -> list[str]:
    """Members that have joined generation 1 and not synced; the leader first."""
    ids = [driver.member() for _ in range(size)]
    for member_id in ids:
        driver.join(member_id, settle=False)
    driver.advance(0)
    return ids


def test_followers_wait_for_the_leader_and_each_gets_its_own() -> None:
    driver = Driver()
    leader, follower = completing_group(driver)
    waiting = driver.sync(follower, 1)
    assert driver.is_parked(waiting)
    done = driver.sync(leader, 1, {leader: b"l", follower: b"f", "unknown": b"s"})
    assert driver.synced(done).assignment == b"l"
    assert driver.synced(waiting).assignment == b"f"
    assert driver.synced(waiting).protocol_name == "range"
    assert driver.synced(waiting).protocol_type == "consumer"


def test_the_assignment_is_recorded_once_and_before_any_member_gets_it() -> None:
    driver = Driver()
    leader, follower = completing_group(driver)
    driver.sync(follower, 1)
    assert driver.log == []
    driver.sync(leader, 1, {leader: b"l"})
    assert len(driver.log) == 1


def test_a_follower_that_syncs_later_gets_its_assignment_at_once() -> None:
    driver = Driver()
    leader, follower = completing_group(driver)
    driver.sync(leader, 1, {follower: b"f"})
    assert driver.synced(driver.sync(follower, 1)).assignment == b"f"
    assert driver.synced(driver.sync(follower, 1)).assignment == b"f", (
        "also when it repeats the request"
    )


def test_a_member_without_an_assignment_from_the_leader_gets_nothing() -> None:
    driver = Driver()
    leader, follower = completing_group(driver)
    driver.sync(leader, 1, {leader: b"l"})
    response = driver.synced(driver.sync(follower, 1))
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"")


def test_sync_of_another_generation_is_illegal() -> None:
    driver = Driver()
    leader, _ = completing_group(driver)
    for generation in (0, 2, -1):
        error = driver.synced(driver.sync(leader, generation)).error_code
        assert error == ErrorCode.ILLEGAL_GENERATION


def test_sync_of_an_unknown_member_or_group_is_refused() -> None:
    driver = Driver()
    assert driver.synced(driver.sync("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    completing_group(driver)
    assert driver.synced(driver.sync("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_during_the_next_rebalance_sends_the_member_back_to_join() -> None:
    driver = Driver()
    (leader, follower), generation = driver.stable_group(2)
    driver.join(leader)
    error = driver.synced(driver.sync(follower, generation)).error_code
    assert error == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        ("consumer", "range", ErrorCode.NONE),
        (None, None, ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_member_that_names_the_protocol_must_name_the_groups(
    protocol_type: str | None, protocol_name: str | None, error: ErrorCode
) -> None:
    driver = Driver()
    (leader,) = completing_group(driver, 1)
    token = driver.sync(leader, 1, protocol_type=protocol_type, protocol_name=protocol_name)
    assert driver.synced(token).error_code == error


def test_a_repeated_sync_takes_the_place_of_the_parked_one_which_is_answered_too() -> None:
    driver = Driver()
    leader, follower = completing_group(driver)
    first, second = driver.sync(follower, 1), driver.sync(follower, 1)
    assert driver.synced(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(leader, 1, {follower: b"f"})
    assert driver.synced(second).assignment == b"f"


def test_members_that_join_and_never_sync_are_out_after_the_rebalance_timeout() -> None:
    driver = Driver()
    leader, silent = completing_group(driver)
    driver.sync(leader, 1, {leader: b"l", silent: b"s"})
    for _ in range(12):
        assert driver.heartbeat(leader, 1) == driver.heartbeat(silent, 1) == ErrorCode.NONE
        driver.advance(5_000)
    assert driver.heartbeat(silent, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_does_not_keep_the_others_waiting_for_ever() -> None:
    driver = Driver()
    leader, follower = completing_group(driver)
    waiting = driver.sync(follower, 1)
    for _ in range(12):
        driver.heartbeat(leader, 1)
        driver.advance(5_000)
    assert driver.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    response = driver.joined(driver.join(follower))
    assert (response.leader, response.generation_id) == (follower, 2)


def test_an_assignment_too_large_to_be_recorded_is_no_assignment() -> None:
    driver = Driver(GroupSettings(group_record_bytes_max=1_000))
    leader, follower = completing_group(driver)
    waiting = driver.sync(follower, 1)
    done = driver.sync(leader, 1, {leader: bytes(2_000)})
    assert driver.synced(done).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.synced(waiting).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.log == []
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_requests_without_a_group_name_are_refused() -> None:
    driver = Driver()
    sync = driver.ask(SyncGroupRequest(), 5)
    beat = driver.ask(HeartbeatRequest(), 4)
    leave = driver.ask(LeaveGroupRequest(), 5)
    assert isinstance(sync, SyncGroupResponse)
    assert isinstance(beat, HeartbeatResponse)
    assert isinstance(leave, LeaveGroupResponse)
    assert sync.error_code == beat.error_code == leave.error_code == ErrorCode.INVALID_GROUP_ID


def test_heartbeats_keep_a_member_alive() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    for _ in range(10):
        driver.advance(9_999)
        assert driver.heartbeat(member_id, generation) == ErrorCode.NONE


def test_a_member_whose_session_expires_is_removed() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    driver.advance(5_000)
    driver.heartbeat(second, generation)
    driver.advance(5_000)
    assert driver.heartbeat(first, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(second, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_renews_the_session() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    driver.advance(9_000)
    assert driver.commit(1, member_id=member_id, generation=generation) == ErrorCode.NONE
    driver.advance(9_000)
    assert driver.heartbeat(member_id, generation) == ErrorCode.NONE


def test_a_heartbeat_of_another_generation_is_illegal() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    assert driver.heartbeat(member_id, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(member_id, generation + 1) == ErrorCode.ILLEGAL_GENERATION


def test_a_heartbeat_between_join_and_sync_is_fine() -> None:
    driver = Driver()
    leader, _ = completing_group(driver)
    assert driver.heartbeat(leader, 1) == ErrorCode.NONE


def test_when_the_last_member_is_gone_the_group_is_empty_and_recorded_so() -> None:
    driver = Driver()
    driver.stable_group()
    driver.advance(10_000)
    assert len(driver.log) == 2
    assert driver.commit(1) == ErrorCode.NONE


def test_who_leaves_is_out_at_once_and_the_others_rebalance() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    response = driver.leave(second)
    assert [(each.member_id, each.error_code) for each in response.members] == [(second, 0)]
    assert driver.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(second, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_several_can_leave_at_once_each_with_its_own_answer() -> None:
    driver = Driver()
    (first, second, third), generation = driver.stable_group(3)
    response = driver.leave(second, "unknown", third)
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert response.error_code == ErrorCode.NONE
    assert driver.joined(driver.join(first)).generation_id == generation + 1


def test_leaving_a_group_that_does_not_exist_is_an_error_of_every_member() -> None:
    driver = Driver()
    response = driver.leave("a", "b")
    assert [each.error_code for each in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_one_member_leaves_and_its_error_is_the_answers(version: int) -> None:
    driver = Driver()
    (member_id,), _ = driver.stable_group()
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        response = driver.ask(LeaveGroupRequest(group_id=GROUP, member_id=member_id), version)
        assert isinstance(response, LeaveGroupResponse)
        assert (response.error_code, response.members) == (expected, [])


def test_a_parked_join_is_answered_when_its_member_leaves() -> None:
    driver = Driver()
    (first, second), _ = driver.stable_group(2)
    join = driver.join(first)
    driver.leave(first)
    assert driver.joined(join).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joined(driver.join(second)).leader == second


def test_a_parked_sync_is_answered_when_its_member_leaves() -> None:
    driver = Driver()
    _, follower = completing_group(driver)
    sync = driver.sync(follower, 1)
    driver.leave(follower)
    assert driver.synced(sync).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_to_leave_ends_a_rebalance_for_the_others() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    join = driver.join(first)
    driver.leave(second)
    assert driver.joined(join).generation_id == generation + 1


def test_an_id_that_was_only_handed_out_can_be_given_back_without_a_rebalance() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    pending = driver.member(offered=protocols("range"))
    response = driver.leave(pending)
    assert response.members[0].error_code == ErrorCode.NONE
    assert driver.heartbeat(member_id, generation) == ErrorCode.NONE


def test_giving_an_id_back_can_end_the_wait_of_a_rebalance() -> None:
    driver = Driver()
    (first,), _ = driver.stable_group()
    pending = driver.member()
    join = driver.join(first)
    assert driver.is_parked(join)
    driver.leave(pending)
    assert not driver.is_parked(join)

"""JoinGroup: admission, leader, protocol vote, and rebalance delays."""

import pytest
from group_driver import Driver, protocols, subscription

from zhumq.groups.classic import TRANSITIONS, ClassicGroupState
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode


def test_a_member_without_an_id_is_given_one_and_asked_to_come_back() -> None:
    driver = Driver()
    response = driver.joined(driver.join("", client_id="my-app"))
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id == "my-app-0001"
    assert driver.log == [], "a generated id alone is not recorded"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_member_is_in_with_its_first_request(version: int) -> None:
    driver = Driver()
    response = driver.joined(driver.join("", version=version))
    assert response.error_code == ErrorCode.NONE
    assert response.generation_id == 1
    assert response.leader == response.member_id
    assert [member.member_id for member in response.members] == [response.member_id]


def test_only_the_leader_gets_the_list_of_members() -> None:
    driver = Driver()
    first, second = driver.member(), driver.member()
    joins = [driver.join(first, settle=False), driver.join(second, settle=False)]
    driver.advance(0)
    leader, follower = (driver.joined(token) for token in joins)
    assert leader.leader == follower.leader == first
    assert [member.member_id for member in leader.members] == [first, second]
    assert leader.members[0].metadata == subscription("topic")
    assert follower.members == []
    assert leader.generation_id == follower.generation_id == 1
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")


def test_only_a_member_without_an_id_can_create_a_group() -> None:
    driver = Driver()
    response = driver.joined(driver.join("made-up"))
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.member_id == "made-up"


def test_an_id_the_group_never_gave_is_unknown() -> None:
    driver = Driver()
    driver.stable_group()
    assert driver.joined(driver.join("made-up")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_needs_a_name() -> None:
    driver = Driver()
    assert driver.joined(driver.join("", group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_name_that_no_record_can_hold_is_refused() -> None:
    driver = Driver()
    for group_id in ("x" * 32_768, "\u00fc" * 20_000):
        response = driver.joined(driver.join("", group_id=group_id))
        assert response.error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.commit(1, group_id="x" * 32_768) == ErrorCode.INVALID_GROUP_ID
    response = driver.joined(driver.join("", offered=protocols("p" * 40_000)))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    response = driver.joined(driver.join("", instance_id="i" * 250))
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_client_with_an_endless_name_gets_a_bounded_id() -> None:
    driver = Driver()
    response = driver.joined(driver.join("", version=3, client_id="c" * 32_767))
    assert response.error_code == ErrorCode.NONE
    assert len(response.member_id) < 300
    driver.sync(response.member_id, 1)
    assert len(driver.log) == 1


@pytest.mark.parametrize(
    ("session_timeout_ms", "error"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
        (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_the_session_timeout_has_limits(session_timeout_ms: int, error: ErrorCode) -> None:
    driver = Driver()
    token = driver.join("", session_timeout_ms=session_timeout_ms)
    assert driver.joined(token).error_code == error


def test_a_member_that_offers_no_protocol_cannot_take_part() -> None:
    driver = Driver()
    token = driver.join("", protocol_type="")
    assert driver.joined(token).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_all_members_must_mean_the_same_kind_of_group() -> None:
    driver = Driver()
    driver.stable_group()
    token = driver.join("", protocol_type="connect")
    assert driver.joined(token).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_without_a_common_protocol_cannot_take_part() -> None:
    driver = Driver()
    driver.stable_group()
    token = driver.join("", offered=protocols("sticky"))
    assert driver.joined(token).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_connect_group_is_as_good_as_a_consumer_group() -> None:
    driver = Driver()
    offered = protocols(("sessioned", b"\x00\x02worker"), ("compatible", b"x"))
    token = driver.join("", version=3, protocol_type="connect", offered=offered)
    response = driver.joined(token)
    assert (response.protocol_type, response.protocol_name) == ("connect", "sessioned")
    assert response.members[0].metadata == b"\x00\x02worker"
    assert (
        driver.synced(driver.sync(response.member_id, 1, {response.member_id: b"tasks"})).assignment
        == b"tasks"
    )


def test_the_protocol_is_the_common_one_with_most_votes() -> None:
    driver = Driver()
    ids = [driver.member(offered=protocols("range", "sticky")) for _ in range(3)]
    offers = [
        protocols("range", "sticky"),
        protocols("sticky", "range"),
        protocols("only-mine", "sticky", "range"),
    ]
    joins = [
        driver.join(member_id, offered=offered, settle=False)
        for member_id, offered in zip(ids, offers, strict=True)
    ]
    driver.advance(0)
    assert {driver.joined(token).protocol_name for token in joins} == {"sticky"}


def test_a_protocol_named_twice_counts_once() -> None:
    driver = Driver()
    offered = protocols(("range", b"first"), ("range", b"second"))
    response = driver.joined(driver.join("", version=3, offered=offered))
    assert response.members[0].metadata == b"first"


@pytest.mark.parametrize("version", [5, 6])
def test_an_error_before_version_7_has_an_empty_protocol_name(version: int) -> None:
    driver = Driver()
    assert driver.joined(driver.join("unknown", version=version)).protocol_name == ""
    assert driver.joined(driver.join("unknown", version=7)).protocol_name is None


def test_a_new_member_makes_all_others_join_again() -> None:
    driver = Driver()
    (first,), generation = driver.stable_group()
    second = driver.member()
    join = driver.join(second)
    assert driver.is_parked(join), "the group waits for its other member"
    assert driver.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = driver.join(first)
    assert (
        driver.joined(join).generation_id == driver.joined(rejoin).generation_id == generation + 1
    )


def test_an_id_that_was_only_handed_out_does_not_disturb_a_stable_group() -> None:
    driver = Driver()
    (first,), generation = driver.stable_group()
    driver.member()
    assert driver.heartbeat(first, generation) == ErrorCode.NONE


def test_a_rebalance_waits_for_ids_that_were_handed_out() -> None:
    driver = Driver()
    (first,), _ = driver.stable_group()
    second, pending = driver.member(), driver.member(session_timeout_ms=8_000)
    joins = [driver.join(second), driver.join(first)]
    assert all(driver.is_parked(token) for token in joins)
    driver.join(pending)
    assert not any(driver.is_parked(token) for token in joins)


def test_an_id_that_is_never_used_expires_after_the_session_timeout() -> None:
    driver = Driver()
    (first,), _ = driver.stable_group()
    second, pending = driver.member(), driver.member(session_timeout_ms=8_000)
    joins = [driver.join(second), driver.join(first)]
    driver.advance(7_999)
    assert driver.is_parked(joins[0])
    driver.advance(1)
    assert not driver.is_parked(joins[0])
    assert driver.joined(driver.join(pending)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_rejoin_in_the_rebalance_timeout_is_out() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    join = driver.join(first)
    assert driver.is_parked(join)
    for _ in range(11):
        driver.advance(5_000)
        assert driver.heartbeat(second, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(5_000)
    assert [member.member_id for member in driver.joined(join).members] == [first]
    assert driver.heartbeat(second, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_version_0_waits_for_the_session_timeout_instead() -> None:
    driver = Driver()
    (first, second), _ = driver.stable_group(2)
    driver.join(first, version=0, rebalance_timeout_ms=-1)
    driver.join(second, version=0, rebalance_timeout_ms=-1)
    driver.sync(first, 2)
    driver.sync(second, 2)
    join = driver.join(first, version=0, rebalance_timeout_ms=-1)
    driver.advance(5_000)
    driver.heartbeat(second, 2)
    driver.advance(4_999)
    assert driver.is_parked(join)
    driver.advance(1)
    assert not driver.is_parked(join)


def test_a_rebalance_waits_for_the_longest_rebalance_timeout() -> None:
    driver = Driver()
    ids = [driver.member(), driver.member()]
    driver.join(ids[0], rebalance_timeout_ms=20_000, settle=False)
    driver.join(ids[1], rebalance_timeout_ms=90_000)
    driver.sync(ids[0], 1)
    join = driver.join(ids[0], rebalance_timeout_ms=20_000)
    for _ in range(17):
        driver.advance(5_000)
        driver.heartbeat(ids[1], 1)
    assert driver.is_parked(join)
    driver.advance(5_000)
    assert not driver.is_parked(join)


def test_a_leader_that_did_not_rejoin_is_replaced() -> None:
    driver = Driver()
    (leader, follower), _ = driver.stable_group(2)
    join = driver.join(follower, offered=protocols(("range", subscription("other"))))
    driver.advance(60_000)
    response = driver.joined(join)
    assert response.leader == follower
    assert driver.heartbeat(leader, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_asks_again_is_answered_at_once() -> None:
    driver = Driver()
    (_, follower), generation = driver.stable_group(2)
    response = driver.joined(driver.join(follower))
    assert response.generation_id == generation
    assert response.members == []


def test_a_leader_that_rejoins_starts_a_new_assignment() -> None:
    driver = Driver()
    (leader, follower), generation = driver.stable_group(2)
    assert driver.is_parked(driver.join(leader))
    assert driver.heartbeat(follower, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_changed_subscription_makes_the_group_rebalance() -> None:
    driver = Driver()
    (leader, follower), generation = driver.stable_group(2)
    changed = protocols(("range", subscription("topic", "another")))
    join = driver.join(follower, offered=changed)
    assert driver.is_parked(join)
    assert driver.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    response = driver.joined(driver.join(leader))
    assert response.members[1].metadata == subscription("topic", "another")


def test_between_join_and_sync_a_lost_answer_is_repeated() -> None:
    driver = Driver()
    first = driver.member()
    original = driver.joined(driver.join(first))
    repeated = driver.joined(driver.join(first))
    assert repeated == original


def test_between_join_and_sync_a_changed_subscription_starts_over() -> None:
    driver = Driver()
    first, second = driver.member(), driver.member()
    driver.join(first, settle=False)
    driver.join(second)
    sync = driver.sync(second, 1)
    join = driver.join(first, offered=protocols(("range", subscription("another"))))
    assert driver.is_parked(join)
    assert driver.synced(sync).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_repeated_join_takes_the_place_of_the_parked_one_which_is_answered_too() -> None:
    driver = Driver()
    (first, _), _ = driver.stable_group(2)
    join, again = driver.join(first), driver.join(first)
    assert driver.joined(join).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.is_parked(again)


def test_a_new_member_whose_client_is_gone_does_not_hold_the_group_for_ever() -> None:
    driver = Driver(GroupSettings(new_member_join_timeout_ms=30_000))
    (first,), generation = driver.stable_group()
    new = driver.join("", version=3)
    for _ in range(6):
        assert driver.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        driver.advance(5_000)
    assert driver.joined(new).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not driver.is_parked(driver.join(first))


def test_a_parked_member_needs_no_heartbeat() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    join = driver.join(first)
    for _ in range(5):
        driver.advance(9_000)
        driver.heartbeat(second, generation)
    driver.join(second)
    assert driver.joined(join).error_code == ErrorCode.NONE


def test_the_initial_delay_gathers_the_first_members() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3_000))
    ids = [driver.member() for _ in range(3)]
    first = driver.join(ids[0])
    driver.advance(2_999)
    second = driver.join(ids[1])
    driver.advance(1)
    assert driver.is_parked(first), "a member joined meanwhile: wait for more"
    driver.advance(1_000)
    third = driver.join(ids[2])
    driver.advance(2_000)
    assert driver.is_parked(first)
    driver.advance(3_000)
    assert {driver.joined(token).generation_id for token in (first, second, third)} == {1}


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = driver.join("", version=3, rebalance_timeout_ms=7_000)
    for _ in range(6):
        driver.advance(1_500)
        driver.join("", version=3, rebalance_timeout_ms=7_000)
    assert not driver.is_parked(first)


def test_a_lone_member_that_leaves_during_the_initial_delay_leaves_an_empty_group() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3_000))
    member_id = driver.member()
    join = driver.join(member_id)
    driver.leave(member_id)
    assert driver.joined(join).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(3_000)
    assert driver.commit(1) == ErrorCode.NONE, "the group is empty"


def test_a_full_group_takes_no_more_members() -> None:
    driver = Driver(GroupSettings(members_max=2))
    ids, generation = driver.stable_group(2)
    assert driver.joined(driver.join("")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [driver.heartbeat(each, generation) for each in ids] == [ErrorCode.NONE] * 2


def test_during_a_rebalance_a_full_group_keeps_who_came_first() -> None:
    driver = Driver(GroupSettings(members_max=2))
    (first, second), _ = driver.stable_group(2)
    driver.leave(second)
    third = driver.joined(driver.join("")).member_id
    join = driver.join(third)
    late = driver.join("", version=3)
    rejoin = driver.join(first)
    assert driver.joined(rejoin).error_code in (ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED)
    accepted = [join, late, rejoin]
    assert sum(driver.joined(each).error_code == ErrorCode.NONE for each in accepted) == 2


def test_ids_handed_out_are_bounded() -> None:
    driver = Driver(GroupSettings(pending_members_max=3))
    errors = [driver.joined(driver.join("")).error_code for _ in range(4)]
    assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_group_that_emptied_can_become_of_another_kind() -> None:
    driver = Driver()
    (member_id,), _ = driver.stable_group()
    driver.leave(member_id)
    token = driver.join("", version=3, protocol_type="connect", offered=protocols(("default", b"")))
    response = driver.joined(token)
    assert (response.error_code, response.protocol_type) == (ErrorCode.NONE, "connect")
    assert response.generation_id == 3, "one when the last member left, one for this join"


def test_every_state_but_the_last_can_end_and_none_follows_itself() -> None:
    assert set(TRANSITIONS) == set(ClassicGroupState)
    for state, following in TRANSITIONS.items():
        assert state not in following
        assert (ClassicGroupState.DEAD in following) == (state is not ClassicGroupState.DEAD)

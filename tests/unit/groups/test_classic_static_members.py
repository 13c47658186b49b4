"""Static members (KIP-345, KIP-814): a restart with a new id needs no rebalance, and fences the old id."""

from group_driver import Driver, protocols, subscription

from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode


def static_group(driver: Driver) -> tuple[list[str], int]:
    """Two static members "one" and "two" with their assignments; "one" leads."""
    ids = []
    tokens = [driver.join("", instance_id=name, settle=False) for name in ("one", "two")]
    driver.advance(0)
    ids = [driver.joined(token).member_id for token in tokens]
    for member_id in ids:
        driver.sync(member_id, 1, {ids[0]: b"1", ids[1]: b"2"} if member_id == ids[0] else None)
    return ids, 1


def test_a_static_member_needs_no_second_request_and_its_id_tells_its_instance() -> None:
    driver = Driver()
    response = driver.joined(driver.join("", instance_id="one"))
    assert response.error_code == ErrorCode.NONE
    assert response.member_id.startswith("one-")
    assert response.members[0].group_instance_id == "one"


def test_a_static_member_that_comes_back_gets_its_assignment_without_a_rebalance() -> None:
    driver = Driver()
    (one, two), generation = static_group(driver)
    response = driver.joined(driver.join("", instance_id="two"))
    assert response.error_code == ErrorCode.NONE
    assert response.generation_id == generation
    assert response.member_id not in (one, two)
    assert driver.heartbeat(one, generation) == ErrorCode.NONE
    synced = driver.synced(driver.sync(response.member_id, generation, instance_id="two"))
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"2")


def test_the_new_id_of_a_static_member_is_recorded() -> None:
    driver = Driver()
    _, generation = static_group(driver)
    new_id = driver.joined(driver.join("", instance_id="two")).member_id
    driver.reload()
    assert driver.heartbeat(new_id, generation, instance_id="two") == ErrorCode.NONE


def test_the_old_id_of_a_static_member_is_fenced_everywhere() -> None:
    driver = Driver()
    (_, two), generation = static_group(driver)
    driver.join("", instance_id="two")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(two, generation, instance_id="two") == fenced
    assert driver.synced(driver.sync(two, generation, instance_id="two")).error_code == fenced
    assert driver.joined(driver.join(two, instance_id="two")).error_code == fenced
    assert driver.commit(1, member_id=two, generation=generation, instance_id="two") == fenced
    assert driver.leave((two, "two")).members[0].error_code == fenced
    assert driver.heartbeat(two, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_without_a_member_is_unknown() -> None:
    driver = Driver()
    (one, _), generation = static_group(driver)
    assert driver.heartbeat(one, generation, instance_id="three") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_comes_back_gets_skip_assignment() -> None:
    driver = Driver()
    static_group(driver)
    response = driver.joined(driver.join("", instance_id="one", version=9))
    assert response.leader == response.member_id
    assert response.skip_assignment
    assert len(response.members) == 2, "so that it can watch the subscriptions of all"


def test_an_older_leader_that_comes_back_does_not_learn_that_it_leads() -> None:
    driver = Driver()
    (one, _), _ = static_group(driver)
    response = driver.joined(driver.join("", instance_id="one", version=8))
    assert response.leader == one
    assert response.members == []
    assert not response.skip_assignment


def test_a_follower_that_comes_back_skips_nothing() -> None:
    driver = Driver()
    static_group(driver)
    response = driver.joined(driver.join("", instance_id="two", version=9))
    assert not response.skip_assignment
    assert response.members == []


def test_a_static_member_that_changes_the_vote_makes_the_group_rebalance() -> None:
    driver = Driver()
    both = protocols("range", "sticky")
    first = driver.join("", instance_id="one", offered=both)
    one = driver.joined(first).member_id
    driver.sync(one, 1)
    join = driver.join("", instance_id="one", offered=protocols("sticky", "range"))
    response = driver.joined(join)
    assert (response.protocol_name, response.generation_id) == ("sticky", 2)


def test_a_parked_join_of_the_old_id_is_fenced() -> None:
    driver = Driver()
    (one, _), _ = static_group(driver)
    parked = driver.join(one, instance_id="one")
    assert driver.is_parked(parked)
    driver.join("", instance_id="one")
    assert driver.joined(parked).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_parked_sync_of_the_old_id_is_fenced_and_the_group_starts_over() -> None:
    driver = Driver()
    tokens = [driver.join("", instance_id=name, settle=False) for name in ("one", "two")]
    driver.advance(0)
    one, two = (driver.joined(token).member_id for token in tokens)
    parked = driver.sync(two, 1, instance_id="two")
    back = driver.join("", instance_id="two")
    assert driver.synced(parked).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.is_parked(back)
    assert driver.heartbeat(one, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_misses_a_rebalance_stays_until_its_session_ends() -> None:
    driver = Driver(GroupSettings())
    first = driver.join("", instance_id="one", session_timeout_ms=300_000, settle=False)
    second = driver.join("", instance_id="two", session_timeout_ms=300_000)
    one, two = (driver.joined(token).member_id for token in (first, second))
    driver.sync(one, 1)
    driver.sync(two, 1)
    join = driver.join(one, instance_id="one", session_timeout_ms=300_000)
    driver.advance(60_000)
    response = driver.joined(join)
    assert [each.member_id for each in response.members] == [one, two], "it may be restarting"


def test_a_rebalance_that_no_static_member_has_joined_waits_on() -> None:
    driver = Driver()
    driver.join("", instance_id="one", session_timeout_ms=300_000)
    dynamic = driver.member()
    join = driver.join(dynamic)
    driver.leave(dynamic)
    assert driver.joined(join).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(120_000)
    back = driver.join("", instance_id="one", session_timeout_ms=300_000)
    assert driver.joined(back).error_code == ErrorCode.NONE


def test_an_administrator_removes_a_static_member_by_its_instance_alone() -> None:
    driver = Driver()
    (one, two), generation = static_group(driver)
    response = driver.leave(("", "two"), ("", "unknown"), ("", None))
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert driver.heartbeat(two, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(one, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_handed_out_without_an_instance_cannot_be_used_with_one() -> None:
    driver = Driver()
    pending = driver.member()
    error = driver.joined(driver.join(pending, instance_id="one")).error_code
    assert error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_change_its_topics_on_the_way_back() -> None:
    driver = Driver()
    static_group(driver)
    changed = protocols(("range", subscription("other")))
    response = driver.joined(driver.join("", instance_id="one", offered=changed))
    assert response.skip_assignment
    assert response.members[0].metadata == subscription("other"), "its client decides to rejoin"

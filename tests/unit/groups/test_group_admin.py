"""DescribeGroups, ListGroups and DeleteGroups."""

import pytest
from group_driver import GROUP, Driver, protocols, subscription

from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)


def describe(driver: Driver, group_id: str = GROUP, version: int = 6) -> DescribedGroup:
    response = driver.ask(DescribeGroupsRequest(groups=[group_id]), version)
    assert isinstance(response, DescribeGroupsResponse)
    return response.groups[0]


def listed(driver: Driver, states: list[str], types: list[str]) -> list[str]:
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    response = driver.ask(request, 5)
    assert isinstance(response, ListGroupsResponse)
    return sorted(group.group_id for group in response.groups)


def delete(driver: Driver, *group_ids: str) -> list[int]:
    response = driver.ask(DeleteGroupsRequest(groups_names=list(group_ids)), 2)
    assert isinstance(response, DeleteGroupsResponse)
    return [result.error_code for result in response.results]


def test_a_stable_group_is_described_with_all_it_knows() -> None:
    driver = Driver()
    (leader, _), _ = driver.stable_group(2)
    group = describe(driver)
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert len(group.members) == 2
    member = group.members[0]
    assert (member.member_id, member.client_id, member.client_host) == (leader, "c", "/127.0.0.1")
    assert member.member_metadata == subscription("topic")
    assert member.member_assignment == f"of {leader}".encode()


def test_during_a_rebalance_only_names_are_shown() -> None:
    driver = Driver()
    (leader, _), _ = driver.stable_group(2)
    driver.join(leader)
    group = describe(driver)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_assignment for member in group.members] == [b"", b""]
    assert [member.member_metadata for member in group.members] == [b"", b""]


def test_the_states_are_shown_by_kafkas_names() -> None:
    driver = Driver()
    driver.commit(1)
    assert describe(driver).group_state == "Empty"
    member_id = driver.joined(driver.join("", version=3)).member_id
    assert describe(driver).group_state == "CompletingRebalance"
    driver.sync(member_id, 1)
    assert describe(driver).group_state == "Stable"


def test_an_unknown_group_is_dead_and_since_version_6_an_error() -> None:
    old, new = describe(Driver(), "x", version=5), describe(Driver(), "x", version=6)
    assert old.group_state == new.group_state == "Dead"
    assert (old.error_code, new.error_code) == (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
    assert new.error_message


def test_lists_are_filtered_by_state_and_type_in_any_case() -> None:
    driver = Driver()
    driver.stable_group()
    driver.commit(1, group_id="simple")
    assert listed(driver, [], []) == [GROUP, "simple"]
    assert listed(driver, ["Stable"], []) == [GROUP]
    assert listed(driver, ["eMPTY", "dead"], []) == ["simple"]
    assert listed(driver, [], ["Classic"]) == [GROUP, "simple"]
    assert listed(driver, [], ["consumer"]) == []
    assert listed(driver, ["nonsense"], []) == []


def test_a_listed_group_tells_its_kind() -> None:
    driver = Driver()
    driver.stable_group()
    response = driver.ask(ListGroupsRequest(), 5)
    assert isinstance(response, ListGroupsResponse)
    (group,) = response.groups
    assert (group.protocol_type, group.group_state, group.group_type) == (
        "consumer",
        "Stable",
        "classic",
    )


def test_only_a_group_without_members_can_be_deleted() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    driver.commit(1, member_id=member_id, generation=generation)
    assert delete(driver, GROUP, "unknown") == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    driver.leave(member_id)
    assert delete(driver, GROUP) == [ErrorCode.NONE]
    assert listed(driver, [], []) == []
    assert driver.committed() == (-1, "")
    driver.reload()
    assert listed(driver, [], []) == []
    assert driver.committed() == (-1, "")


def test_a_deleted_group_can_be_created_again() -> None:
    driver = Driver()
    driver.commit(1)
    delete(driver, GROUP)
    driver.stable_group()
    assert describe(driver).group_state == "Stable"


def test_an_id_handed_out_by_a_deleted_group_is_unknown() -> None:
    driver = Driver()
    pending = driver.member()
    assert delete(driver, GROUP) == [ErrorCode.NONE]
    assert driver.joined(driver.join(pending)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(60_000)


@pytest.mark.parametrize("protocol_type", ["connect", "anything"])
def test_any_kind_of_classic_group_is_described(protocol_type: str) -> None:
    driver = Driver()
    offered = protocols(("default", b"meta"))
    token = driver.join("", version=3, protocol_type=protocol_type, offered=offered)
    driver.sync(driver.joined(token).member_id, 1)
    assert describe(driver).protocol_type == protocol_type
    assert describe(driver).members[0].member_metadata == b"meta"

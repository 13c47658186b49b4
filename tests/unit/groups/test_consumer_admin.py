"""Consumer groups in admin requests, and offsets of their members."""

import pytest
from consumer_driver import ConsumerDriver
from group_driver import GROUP

from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from zhumq.protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)


def listed(driver: ConsumerDriver, **filters: list[str]) -> list[tuple[str, str, str]]:
    response = driver.ask(ListGroupsRequest(**filters), 5)
    assert isinstance(response, ListGroupsResponse)
    return [(each.group_id, each.group_type, each.group_state) for each in response.groups]


def deleted(driver: ConsumerDriver) -> int:
    response = driver.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert isinstance(response, DeleteGroupsResponse)
    return response.results[0].error_code


def fetch_error(driver: ConsumerDriver, member_id: str | None, epoch: int) -> int:
    asked = OffsetFetchRequestGroup(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None
    )
    response = driver.ask(OffsetFetchRequest(groups=[asked]), 9)
    assert isinstance(response, OffsetFetchResponse)
    return response.groups[0].error_code


def test_a_consumer_group_is_listed_with_its_type_and_state() -> None:
    driver = ConsumerDriver()
    first = driver.consumer()
    assert listed(driver) == [(GROUP, "consumer", "Stable")]
    driver.consumer()
    assert listed(driver) == [(GROUP, "consumer", "Reconciling")]
    first.leave()
    assert listed(driver) == [(GROUP, "consumer", "Assigning")]
    assert listed(driver, types_filter=["Consumer"], states_filter=["assigning"]) != []
    assert listed(driver, types_filter=["classic"]) == []


def test_a_description_shows_what_members_have_and_are_to_have() -> None:
    driver = ConsumerDriver()
    driver.consumer(instance_id="one")
    driver.consumer(regex="top.*")
    described = driver.describe_consumers()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Reconciling",
        2,
        2,
    )
    first, second = described.members
    assert (first.instance_id, first.subscribed_topic_names, first.member_epoch) == (
        "one",
        ["topic"],
        1,
    )
    assert (second.subscribed_topic_names, second.subscribed_topic_regex) == ([], "top.*")
    assert first.assignment.topic_partitions[0].partitions == list(range(6))
    assert len(first.target_assignment.topic_partitions[0].partitions) == 3
    assert first.target_assignment.topic_partitions[0].topic_name == "topic"
    assert second.assignment.topic_partitions == []


def test_each_kind_of_description_is_for_its_kind_of_group() -> None:
    driver = ConsumerDriver()
    assert driver.describe_consumers().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    driver.consumer()
    response = driver.ask(DescribeGroupsRequest(groups=[GROUP]), 6)
    assert isinstance(response, DescribeGroupsResponse)
    assert response.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.groups[0].error_message == "Group g is not a classic group."
    classic = ConsumerDriver()
    classic.stable_group()
    assert classic.describe_consumers().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_an_empty_group_can_be_deleted_and_then_nothing_is_left() -> None:
    driver = ConsumerDriver()
    member = driver.consumer(regex="top.*")
    driver.commit(3, member_id="m1", generation=1)
    assert deleted(driver) == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert deleted(driver) == ErrorCode.NONE
    assert driver.shard.hard_state() == {}
    driver.reload()
    assert driver.shard.hard_state() == {}
    assert driver.shard.groups == {}


def test_only_a_member_in_its_epoch_commits() -> None:
    driver = ConsumerDriver()
    assert driver.commit(1, member_id="m1", generation=1) == ErrorCode.GROUP_ID_NOT_FOUND
    member = driver.consumer(instance_id="one")
    assert driver.commit(1, member_id="m1", generation=1) == ErrorCode.NONE
    assert driver.commit(2, member_id="m1", generation=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit(2, member_id="m1", generation=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit(2, member_id="other", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit(2, generation=-1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        driver.commit(2, member_id="other", generation=1, instance_id="one")
        == ErrorCode.FENCED_INSTANCE_ID
    )
    member.leave()
    assert driver.commit(9, generation=-1) == ErrorCode.NONE, (
        "a tool may, when the group has no members"
    )


def test_a_member_of_another_epoch_does_not_read_offsets() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    assert fetch_error(driver, "m1", 1) == ErrorCode.NONE
    assert fetch_error(driver, "m1", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_error(driver, "other", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_error(driver, None, -1) == ErrorCode.NONE, "tools send no member id"


def test_offsets_of_topics_that_are_read_stay() -> None:
    driver = ConsumerDriver()
    driver.consumer(regex="top.*")
    driver.commit(1, member_id="m1", generation=1)
    driver.commit(1, member_id="m1", generation=1, topic="other")
    response = driver.ask(
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in ("topic", "other")
            ],
        ),
        0,
    )
    assert isinstance(response, OffsetDeleteResponse)
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    assert driver.committed()[0] == 1


def test_an_empty_group_goes_when_its_offsets_have_expired() -> None:
    driver = ConsumerDriver()
    member = driver.consumer()
    driver.commit(1, member_id="m1", generation=1)
    member.leave()
    driver.advance(driver.settings.offsets_retention_ms - 1_000_000)
    assert driver.committed()[0] == 1
    driver.advance(2_000_000)
    assert driver.shard.groups == {}
    assert driver.shard.hard_state() == {}


@pytest.mark.parametrize("kept", range(12))
def test_a_log_that_was_cut_off_anywhere_can_be_loaded(kept: int) -> None:
    driver = ConsumerDriver()
    driver.consumer(regex="top.*")
    driver.consumer()
    driver.log = driver.log[:kept]
    driver.reload()
    newcomer = driver.consumer("newcomer")
    assert newcomer.answer.error_code == ErrorCode.NONE


def test_garbled_records_of_a_group_are_passed_over() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    driver.log = [
        StateRecord(key=record.key, value=b"\x00" if index % 2 else record.value)
        for index, record in enumerate(driver.log)
    ]
    driver.reload()
    assert driver.consumer("newcomer").answer.error_code == ErrorCode.NONE

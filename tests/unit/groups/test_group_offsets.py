"""Committed offsets: commit, fetch, delete, and expiry."""

import pytest
from group_driver import GROUP, Driver, protocols, subscription

from zhumq.groups.requests import TopicsDeletedRequest, TopicsDeletedResponse
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def delete(driver: Driver, *topics: str, group_id: str = GROUP) -> OffsetDeleteResponse:
    response = driver.ask(
        OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                for topic in topics
            ],
        ),
        0,
    )
    assert isinstance(response, OffsetDeleteResponse)
    return response


def test_what_is_committed_is_read_back_with_its_metadata_and_epoch() -> None:
    driver = Driver()
    assert driver.commit(42, metadata="h\u00e9llo") == ErrorCode.NONE
    response = driver.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]), 9
    )
    assert isinstance(response, OffsetFetchResponse)
    (topic,) = response.groups[0].topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == ("topic", 0)
    assert (partition.committed_offset, partition.metadata) == (42, "h\u00e9llo")
    assert partition.committed_leader_epoch == 3


def test_no_metadata_reads_back_as_empty() -> None:
    driver = Driver()
    driver.commit(1, metadata=None)
    assert driver.committed() == (1, "")


def test_what_was_never_committed_reads_as_minus_one() -> None:
    driver = Driver()
    assert driver.committed() == (-1, "")
    driver.commit(1)
    assert driver.committed(partition=1) == (-1, "")
    assert driver.committed("another") == (-1, "")


def test_all_offsets_of_an_unknown_group_are_none() -> None:
    response = Driver().ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="x", topics=None)]), 9
    )
    assert isinstance(response, OffsetFetchResponse)
    assert response.groups[0].topics == []
    assert response.groups[0].error_code == ErrorCode.NONE


def test_the_last_commit_counts_also_if_it_goes_back() -> None:
    driver = Driver()
    driver.commit(10)
    driver.commit(5)
    assert driver.committed() == (5, "")


def test_too_much_metadata_fails_that_partition_alone() -> None:
    driver = Driver(GroupSettings(offset_metadata_bytes_max=10))
    response = driver.ask(
        OffsetCommitRequest(
            group_id=GROUP,
            topics=[
                OffsetCommitRequestTopic(
                    name="topic",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata="x" * 11
                        ),
                        OffsetCommitRequestPartition(
                            partition_index=1, committed_offset=2, committed_metadata="x" * 10
                        ),
                    ],
                )
            ],
        ),
        9,
    )
    assert isinstance(response, OffsetCommitResponse)
    errors = [partition.error_code for partition in response.topics[0].partitions]
    assert errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert driver.committed(partition=0) == (-1, "")
    assert driver.committed(partition=1) == (2, "x" * 10)


def test_metadata_that_no_record_can_hold_is_too_much_whatever_the_setting() -> None:
    driver = Driver(GroupSettings(offset_metadata_bytes_max=10**6))
    assert driver.commit(1, metadata="x" * 40_000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.commit(1, metadata="x" * 32_767) == ErrorCode.NONE


def test_a_member_commits_in_its_generation_only() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    assert driver.commit(1, member_id=member_id, generation=generation) == ErrorCode.NONE
    stale = driver.commit(2, member_id=member_id, generation=generation - 1)
    assert stale == ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(2, member_id="x", generation=generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.committed() == (1, "")


def test_only_members_commit_while_a_group_has_members() -> None:
    driver = Driver()
    driver.stable_group()
    assert driver.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_any_client_commits_for_an_empty_group() -> None:
    driver = Driver()
    (member_id,), _ = driver.stable_group()
    driver.leave(member_id)
    assert driver.commit(7) == ErrorCode.NONE


def test_during_a_rebalance_members_still_commit_what_they_had() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    driver.join(first)
    assert driver.commit(1, member_id=second, generation=generation) == ErrorCode.NONE


def test_between_join_and_sync_commits_are_refused() -> None:
    driver = Driver()
    member_id = driver.joined(driver.join("", version=3)).member_id
    error = driver.commit(1, member_id=member_id, generation=1)
    assert error == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("version", "error"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_no_group_learns_it_as_its_version_has_it(
    version: int, error: ErrorCode
) -> None:
    assert Driver().commit(1, member_id="m", generation=1, version=version) == error


def test_offsets_of_topics_without_readers_can_be_deleted() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    driver.commit(1, member_id=member_id, generation=generation, topic="topic")
    driver.commit(2, member_id=member_id, generation=generation, topic="old")
    response = delete(driver, "topic", "old", "never-committed")
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert errors == {
        "topic": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        "old": ErrorCode.NONE,
        "never-committed": ErrorCode.NONE,
    }
    assert driver.committed("topic")[0] == 1
    assert driver.committed("old")[0] == -1


def test_offsets_of_an_empty_group_can_all_be_deleted() -> None:
    driver = Driver()
    driver.commit(1)
    assert delete(driver, "topic").topics[0].partitions[0].error_code == ErrorCode.NONE
    assert driver.committed() == (-1, "")


def test_a_member_whose_subscription_cannot_be_read_protects_all_topics() -> None:
    driver = Driver()
    member_id = driver.joined(
        driver.join("", version=3, offered=protocols(("range", b"\x00")))
    ).member_id
    driver.sync(member_id, 1)
    response = delete(driver, "topic")
    error = response.topics[0].partitions[0].error_code
    assert error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_connect_group_with_members_stay() -> None:
    driver = Driver()
    driver.join("", version=3, protocol_type="connect", offered=protocols(("default", b"")))
    assert delete(driver, "topic").error_code == ErrorCode.NON_EMPTY_GROUP


def test_deleting_offsets_needs_a_group() -> None:
    assert delete(Driver(), "topic").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(Driver(), "topic", group_id="").error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_a_deleted_topic_go_from_every_group() -> None:
    driver = Driver()
    driver.commit(1, topic="gone", partition=0)
    driver.commit(1, topic="gone", partition=7)
    driver.commit(1, topic="gone", group_id="another")
    driver.commit(9, topic="stays")
    response = driver.ask(TopicsDeletedRequest(names=("gone", "unknown")), 0)
    assert response == TopicsDeletedResponse(offsets_deleted=3)
    assert driver.committed("gone") == (-1, "")
    assert driver.committed("stays") == (9, "")


def test_offsets_stay_as_long_as_their_group_has_members() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=HOUR_MS))
    member_id = driver.joined(driver.join("", version=3, session_timeout_ms=1_800_000)).member_id
    driver.sync(member_id, 1)
    driver.commit(1, member_id=member_id, generation=1)
    for _ in range(20):
        driver.advance(1_000_000)
        assert driver.heartbeat(member_id, 1) == ErrorCode.NONE
    assert driver.committed() == (1, "")


def test_when_a_group_empties_its_offsets_have_the_whole_retention_left() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=DAY_MS))
    (member_id,), generation = driver.stable_group()
    driver.commit(1, member_id=member_id, generation=generation)
    driver.now_ms += 9_000
    driver.leave(member_id)
    driver.advance(DAY_MS - 1)
    assert driver.committed() == (1, "")
    driver.advance(HOUR_MS)
    assert driver.committed() == (-1, "")


def test_with_its_last_offset_an_empty_group_is_forgotten_for_good() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=DAY_MS))
    (member_id,), generation = driver.stable_group()
    driver.commit(1, member_id=member_id, generation=generation)
    driver.leave(member_id)
    driver.advance(2 * DAY_MS)
    assert driver.shard.hard_state() == {}
    assert driver.shard.next_deadline_ms is None, "an idle shard has no deadlines"
    driver.reload()
    assert driver.shard.hard_state() == {}


def test_a_simple_consumers_offsets_age_from_their_commit() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=DAY_MS))
    driver.commit(1, partition=0)
    driver.advance(DAY_MS // 2)
    driver.commit(1, partition=1)
    driver.advance(DAY_MS // 2 + HOUR_MS)
    assert driver.committed(partition=0) == (-1, "")
    assert driver.committed(partition=1) == (1, "")


def test_in_a_group_with_members_only_offsets_of_unread_topics_expire() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=HOUR_MS))
    offered = protocols(("range", subscription("topic")))
    member_id = driver.joined(
        driver.join("", version=3, offered=offered, session_timeout_ms=1_800_000)
    ).member_id
    driver.sync(member_id, 1)
    for topic in ("topic", "old"):
        driver.commit(1, member_id=member_id, generation=1, topic=topic)
    for _ in range(5):
        driver.advance(1_000_000)
        assert driver.heartbeat(member_id, 1) == ErrorCode.NONE
    assert driver.committed("topic") == (1, "")
    assert driver.committed("old") == (-1, "")


def test_an_old_client_may_choose_the_retention_of_its_commit() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=DAY_MS))
    driver.commit(1, partition=0, retention_time_ms=HOUR_MS, version=2)
    driver.commit(1, partition=1, retention_time_ms=3 * DAY_MS, version=2)
    driver.advance(2 * HOUR_MS)
    assert driver.committed(partition=0) == (-1, "")
    driver.reload()
    driver.advance(2 * DAY_MS)
    assert driver.committed(partition=1) == (1, "")


def test_a_member_on_its_way_in_keeps_its_group() -> None:
    driver = Driver(GroupSettings(offsets_retention_check_interval_ms=1_000))
    pending = driver.member()
    driver.advance(5_000)
    assert driver.joined(driver.join(pending)).error_code == ErrorCode.NONE

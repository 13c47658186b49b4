"""Offsets in transactions: pending until the marker, and what they mean for everything else about offsets."""

from dataclasses import dataclass

import pytest
from consumer_driver import ConsumerDriver
from group_driver import GROUP, Driver
from transaction_driver import PRODUCER, UNSTABLE, TransactionDriver

from zhumq.groups.requests import GroupRequest, TopicsDeletedRequest, TopicsDeletedResponse, refusal
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Producer, ReplyToken, StateRecord
from zhumq.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
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
from zhumq.protocol.messages.share import ShareGroupHeartbeatRequest
from zhumq.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

HOUR_MS = 3_600_000
OTHER = 8  # another producer


def listed(driver: Driver) -> list[str]:
    response = driver.ask(ListGroupsRequest(), 5)
    assert isinstance(response, ListGroupsResponse)
    return [group.group_id for group in response.groups]


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize(("is_commit", "offset"), [(True, 10), (False, 4)])
def test_the_marker_decides_on_the_offsets(is_commit: bool, offset: int, is_reloaded: bool) -> None:
    driver = TransactionDriver()
    driver.commit(4)
    assert driver.commit_in_transaction(10, metadata="m") == ErrorCode.NONE
    if is_reloaded:
        driver.reload()
    assert driver.committed() == (4, "")
    assert driver.stable() == UNSTABLE
    driver.end(is_commit=is_commit)
    if is_reloaded:
        driver.reload()
    assert driver.committed() == (offset, "m" if is_commit else "")
    assert driver.stable() == offset


def test_the_records_belong_to_the_producer_and_its_epoch() -> None:
    driver = TransactionDriver()
    request = TxnOffsetCommitRequest(
        group_id=GROUP,
        producer_id=5,
        producer_epoch=3,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="topic", partitions=[TxnOffsetCommitRequestPartition(committed_offset=1)]
            )
        ],
    )
    outcome = driver.shard.handle(GroupRequest(message=request, version=5), ReplyToken(1), 0)
    assert outcome.producer == Producer(5, 3)
    assert len(outcome.records) == 1


def test_the_last_offset_of_a_transaction_counts() -> None:
    driver = TransactionDriver()
    driver.commit_in_transaction(10, partitions=(0, 1))
    driver.commit_in_transaction(20)
    driver.end()
    assert driver.committed() == (20, "")
    assert driver.committed(partition=1) == (10, "")


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_an_ordinary_commit_made_meanwhile_is_newer(is_reloaded: bool) -> None:
    driver = TransactionDriver()
    driver.commit_in_transaction(10)
    driver.commit(3)
    if is_reloaded:
        driver.reload()
    assert driver.stable() == UNSTABLE, "the transaction is open"
    driver.end()
    if is_reloaded:
        driver.reload()
    assert driver.stable() == 3


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_of_two_transactions_the_one_with_the_newer_record_counts(is_reloaded: bool) -> None:
    driver = TransactionDriver()
    driver.commit_in_transaction(10, producer_id=PRODUCER)
    driver.commit_in_transaction(20, producer_id=OTHER)
    if is_reloaded:
        driver.reload()
    driver.end(OTHER)
    assert (driver.committed(), driver.stable()) == ((20, ""), UNSTABLE)
    driver.end(PRODUCER)
    assert driver.stable() == 20
    driver.commit_in_transaction(30, producer_id=PRODUCER)
    driver.commit_in_transaction(40, producer_id=OTHER)
    driver.end(PRODUCER)
    assert driver.committed() == (30, "")
    driver.end(OTHER)
    assert driver.stable() == 40


def test_an_offset_of_the_same_transaction_after_an_ordinary_commit_counts() -> None:
    driver = TransactionDriver()
    driver.commit_in_transaction(10)
    driver.commit(3)
    driver.commit_in_transaction(11)
    driver.end()
    assert driver.stable() == 11


def test_a_marker_may_be_repeated_and_may_have_nothing_to_end() -> None:
    driver = TransactionDriver()
    driver.end(PRODUCER)
    driver.commit_in_transaction(10)
    driver.end(OTHER)
    assert driver.stable() == UNSTABLE
    driver.end(PRODUCER)
    driver.commit(2)
    driver.end(PRODUCER)
    driver.end(PRODUCER, is_commit=False)
    assert driver.stable() == 2
    driver.reload()
    assert driver.stable() == 2


def test_one_transaction_commits_for_several_groups() -> None:
    driver = TransactionDriver()
    for group_id in ("a", "b"):
        driver.commit_in_transaction(5, group_id=group_id)
    driver.end()
    assert driver.committed(group_id="a") == driver.committed(group_id="b") == (5, "")


def test_only_a_fetch_that_asks_for_it_learns_of_open_transactions() -> None:
    driver = TransactionDriver()
    driver.commit(4)
    driver.commit(5, partition=1)
    driver.commit_in_transaction(10)
    driver.commit_in_transaction(10, topic="only pending")
    response = driver.ask(
        OffsetFetchRequest(
            require_stable=True, groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
        ),
        9,
    )
    assert isinstance(response, OffsetFetchResponse)
    (topic,) = response.groups[0].topics
    assert [(each.committed_offset, each.error_code) for each in topic.partitions] == [
        (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (5, ErrorCode.NONE),
    ]
    assert driver.stable("only pending") == UNSTABLE
    assert driver.committed("only pending") == (-1, "")


# Who may commit


def test_a_member_is_checked_from_version_3_on() -> None:
    driver = TransactionDriver()
    (member_id,), generation = driver.stable_group()

    def commit(member_id: str, generation: int, instance_id: str | None = None) -> int:
        return driver.commit_in_transaction(
            1, member_id=member_id, generation=generation, instance_id=instance_id
        )

    assert commit(member_id, generation) == ErrorCode.NONE
    assert commit(member_id, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit("x", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("x", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(member_id, generation, "x") == ErrorCode.UNKNOWN_MEMBER_ID
    # Older producers name no member.
    assert driver.commit_in_transaction(2, version=2) == ErrorCode.NONE


@dataclass
class ConsumersInTransactions(TransactionDriver, ConsumerDriver):
    """Members of the consumer protocol that commit in transactions."""


def test_a_member_of_the_consumer_protocol_is_checked_and_gets_errors_that_producers_know() -> None:
    driver = ConsumersInTransactions()
    member = driver.consumer(topics=["topic"])
    epoch = driver.group.members[member.member_id].epoch

    def commit(member_id: str, generation: int) -> int:
        return driver.commit_in_transaction(1, member_id=member_id, generation=generation)

    assert commit(member.member_id, epoch) == ErrorCode.NONE
    assert commit(member.member_id, epoch - 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit("x", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit_in_transaction(1) == ErrorCode.NONE


def test_a_share_group_has_no_offsets_to_commit() -> None:
    driver = ConsumersInTransactions()
    heartbeat = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", member_epoch=0, subscribed_topic_names=["topic"]
    )
    driver.ask(heartbeat, 1)
    assert driver.commit_in_transaction(1) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_rebalance_does_not_stop_a_transaction() -> None:
    driver = TransactionDriver()
    member_id = driver.joined(driver.join("", version=3)).member_id
    assert driver.commit_in_transaction(1, member_id=member_id, generation=1) == ErrorCode.NONE


def test_a_group_begins_with_a_transaction_unless_it_names_a_generation() -> None:
    driver = TransactionDriver()
    refused = driver.commit_in_transaction(1, member_id="m", generation=1)
    assert refused == ErrorCode.ILLEGAL_GENERATION
    assert listed(driver) == []
    driver.commit_in_transaction(1)
    assert listed(driver) == [GROUP]
    driver.reload()
    assert listed(driver) == [GROUP]


@pytest.mark.parametrize("group_id", ["", "x" * 40_000])
def test_a_group_needs_a_name_that_a_record_can_hold(group_id: str) -> None:
    driver = TransactionDriver()
    code = driver.commit_in_transaction(1, group_id=group_id)
    assert code == ErrorCode.INVALID_GROUP_ID


def test_too_much_metadata_is_refused() -> None:
    driver = TransactionDriver(GroupSettings(offset_metadata_bytes_max=10))
    code = driver.commit_in_transaction(1, metadata="x" * 11)
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.stable() == -1


def test_a_producer_before_version_2_waits_for_a_loading_coordinator_in_its_own_way() -> None:
    topic = TxnOffsetCommitRequestTopic(partitions=[TxnOffsetCommitRequestPartition()])
    for version, expected in [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]:
        request = GroupRequest(message=TxnOffsetCommitRequest(topics=[topic]), version=version)
        response = refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert isinstance(response, TxnOffsetCommitResponse)
        assert response.topics[0].partitions[0].error_code == expected


# Deletion and expiry


def test_a_pending_offset_keeps_the_committed_one_and_the_group() -> None:
    driver = TransactionDriver(GroupSettings(offsets_retention_ms=HOUR_MS))
    driver.commit(1)
    driver.commit_in_transaction(1, group_id="only pending")
    driver.commit_in_transaction(2)
    driver.advance(5 * HOUR_MS)
    assert driver.committed() == (1, "")
    assert listed(driver) == [GROUP, "only pending"]
    driver.end(is_commit=False)
    driver.advance(5 * HOUR_MS)
    assert listed(driver) == []
    assert driver.shard.hard_state() == {}


def test_deleted_offsets_do_not_come_back_with_the_marker() -> None:
    driver = TransactionDriver()
    driver.commit(1, topic="topic")
    for topic in ("topic", "only pending"):
        driver.commit_in_transaction(2, topic=topic)
    names = ("topic", "only pending", "never committed")
    response = driver.ask(
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition()])
                for name in names
            ],
        ),
        0,
    )
    assert isinstance(response, OffsetDeleteResponse)
    assert driver.stable("only pending") == -1
    driver.end()
    driver.reload()
    assert [driver.stable(name) for name in names] == [-1, -1, -1]


def test_offsets_of_deleted_topics_go_while_they_are_pending() -> None:
    driver = TransactionDriver()
    driver.commit(1, topic="gone")
    driver.commit_in_transaction(2, topic="gone", partitions=(0, 1))
    driver.commit_in_transaction(3, topic="stays")
    answer = driver.ask(TopicsDeletedRequest(names=("gone",)), 0)
    assert answer == TopicsDeletedResponse(offsets_deleted=2)
    driver.end()
    assert driver.stable("gone") == driver.stable("gone", 1) == -1
    assert driver.stable("stays") == 3


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_deleted_group_does_not_come_back_with_the_marker(is_reloaded: bool) -> None:
    driver = TransactionDriver()
    driver.commit(1)
    driver.commit_in_transaction(2, partitions=(0, 1))
    response = driver.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert isinstance(response, DeleteGroupsResponse)
    assert response.results[0].error_code == ErrorCode.NONE
    if is_reloaded:
        driver.reload()
    driver.end()
    assert listed(driver) == []
    assert driver.stable() == driver.stable(partition=1) == -1


def test_the_memory_of_pending_offsets_is_limited_and_free_again_after_the_end() -> None:
    driver = TransactionDriver(GroupSettings(shard_pending_offset_bytes_max=20_000))
    accepted = 0
    while driver.commit_in_transaction(1, partitions=(accepted,)) == ErrorCode.NONE:
        accepted += 1
    assert 10 < accepted < 40
    code = driver.commit_in_transaction(1, producer_id=OTHER)
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.commit(5) == ErrorCode.NONE, "ordinary commits go on"
    driver.reload()
    assert driver.stable(partition=1) == UNSTABLE, "what was accepted is kept"
    driver.end()
    assert driver.shard.offsets.pending.size_bytes == 0
    assert driver.commit_in_transaction(1, producer_id=OTHER) == ErrorCode.NONE


def test_a_log_with_strange_transactional_records_is_read() -> None:
    driver = TransactionDriver()
    driver.commit_in_transaction(1)
    shard = driver.shard
    shard.replay_pending(PRODUCER, StateRecord(key=b"", value=b"x"), 0)
    shard.replay_pending(PRODUCER, StateRecord(key=b"\x00\x63", value=b"x"), 0)
    shard.replay_pending(PRODUCER, driver.entries[0].record or StateRecord(key=b"", value=None), 0)
    shard.end_transaction(PRODUCER, 0, is_commit=True)
    assert driver.stable() == 1

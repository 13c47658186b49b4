"""Share groups (KIP-932): heartbeats, assignments that may overlap, reloading."""

import uuid
from collections.abc import Iterable

import pytest

from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.requests import GroupRequest
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.groups.share import ShareMember, assign_shares
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import ReplyToken, StateRecord
from zhumq.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from zhumq.protocol.messages.groups import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from zhumq.protocol.messages.share import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from zhumq.testing.topics import ChangingTopics

SETTINGS = GroupSettings(share_members_max=5, share_session_timeout_ms=1_000)


class Driver:
    """A shard with its log, and a clock."""

    def __init__(self, topics: ChangingTopics, log: Iterable[StateRecord] = ()) -> None:
        self.topics = topics
        self.log = list(log)
        self.now_ms = 10_000
        self.shard = GroupShard(SETTINGS, draw_member_suffix=lambda: "x", topics=topics)
        for record in self.log:
            self.shard.replay(record, self.now_ms)
        self._apply(self.shard.loaded(self.now_ms))

    def _apply(self, outcome) -> list[object]:
        for record in outcome.records:
            self.log.append(record)
            self.shard.replay(record, self.now_ms)
        return [reply.response for reply in outcome.replies]

    def ask(self, message, version: int = 1):
        request = GroupRequest(message=message, version=version, client_id="c", client_host="/h")
        (response,) = self._apply(self.shard.handle(request, ReplyToken(0), self.now_ms))
        return response

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self._apply(self.shard.expire(self.now_ms))

    def beat(self, member: str, epoch: int = 0, topics: list[str] | None = None, group: str = "g"):
        return self.ask(
            ShareGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
            )
        )

    def described(self, group: str = "g"):
        return self.ask(ShareGroupDescribeRequest(group_ids=[group])).groups[0]

    def reloaded(self) -> "Driver":
        again = Driver(self.topics, self.log)
        again.now_ms = self.now_ms
        return again


@pytest.fixture
def driver() -> Driver:
    topics = ChangingTopics()
    topics.put("t", 2)
    return Driver(topics)


def partitions_of(response) -> set[int]:
    assert response.error_code == 0, response.error_message
    assert response.assignment is not None
    return {index for each in response.assignment.topic_partitions for index in each.partitions}


def test_a_lone_member_gets_everything_and_a_crowd_shares(driver: Driver) -> None:
    first = driver.beat("a", topics=["t"])
    assert (first.member_epoch, partitions_of(first)) == (1, {0, 1})
    others = [driver.beat(name, topics=["t"]) for name in ("b", "c", "d")]
    again = driver.beat("a", epoch=first.member_epoch)
    assert again.member_epoch == others[-1].member_epoch
    assert partitions_of(again) < {0, 1}
    described = driver.described()
    readers = [
        index
        for member in described.members
        for each in member.assignment.topic_partitions
        for index in each.partitions
    ]
    assert sorted(readers) == [0, 0, 1, 1], "each partition has two readers"
    assert described.group_state == "Stable"


def test_a_heartbeat_without_changes_is_answered_without_an_assignment(driver: Driver) -> None:
    epoch = driver.beat("a", topics=["t"]).member_epoch
    answer = driver.beat("a", epoch)
    assert (answer.error_code, answer.assignment) == (0, None)
    assert answer.heartbeat_interval_ms > 0
    driver.topics.put("t", 4)
    answer = driver.beat("a", epoch)
    assert partitions_of(answer) == {0, 1, 2, 3}, "new partitions"


def test_a_member_leaves_or_expires_and_others_take_over(driver: Driver) -> None:
    driver.beat("a", topics=["t"])
    epoch = driver.beat("b", topics=["t"]).member_epoch
    assert driver.beat("a", -1).member_epoch == -1
    assert partitions_of(driver.beat("b", epoch)) == {0, 1}
    driver.pass_time(2_000)
    described = driver.described()
    assert (described.group_state, described.members) == ("Empty", [])
    assert driver.beat("b", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (ShareGroupHeartbeatRequest(member_id="m", subscribed_topic_names=["t"]), 42),
        (ShareGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"]), 42),
        (ShareGroupHeartbeatRequest(group_id="g", member_id="m"), 42),
        (ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=[]), 42),
        (ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-2), 42),
        (ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3), 25),
        (ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1), 25),
        (
            ShareGroupHeartbeatRequest(
                group_id="g", member_id="m" * 40_000, subscribed_topic_names=["t"]
            ),
            42,
        ),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(driver: Driver, message, code: int) -> None:
    assert driver.ask(message).error_code == code
    assert driver.log == []


def test_a_member_of_the_future_is_fenced(driver: Driver) -> None:
    driver.beat("a", topics=["t"])
    assert driver.beat("a", 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_there_are_only_so_many_members(driver: Driver) -> None:
    for number in range(5):
        assert driver.beat(f"m{number}", topics=["t"]).error_code == 0
    assert driver.beat("one more", topics=["t"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_outlives_a_reload_with_its_members(driver: Driver) -> None:
    driver.beat("a", topics=["t"])
    epoch = driver.beat("b", topics=["t"]).member_epoch
    again = driver.reloaded()
    answer = again.beat("a", epoch)
    assert answer.error_code == 0
    assert answer.member_epoch > epoch, "all members get a new assignment"
    assert len(again.described().members) == 2
    again.beat("b", epoch)
    hard = again.shard.hard_state()
    latest = {record.key: record.value for record in again.log}
    assert hard == {key: value for key, value in latest.items() if value is not None}


def test_a_group_accepts_only_members_of_its_own_type(driver: Driver) -> None:
    driver.beat("a", topics=["t"])
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    assert driver.ask(join, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert driver.ask(consumer).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
        ],
    )
    assert driver.ask(commit, 8).topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    driver.ask(ConsumerGroupHeartbeatRequest(**_joining("consumers")))
    assert driver.beat("a", topics=["t"], group="consumers").error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND
    )
    assert driver.described("consumers").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def _joining(group: str) -> dict[str, object]:
    return {
        "group_id": group,
        "member_id": "m",
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }


def test_a_share_group_is_listed_and_stays_until_it_is_deleted(driver: Driver) -> None:
    driver.beat("a", topics=["t"])
    (listed,) = driver.ask(ListGroupsRequest(types_filter=["share"]), 5).groups
    assert (listed.group_type, listed.protocol_type, listed.group_state) == (
        "share",
        "share",
        "Stable",
    )
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert driver.ask(delete, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    driver.beat("a", -1)
    driver.pass_time(SETTINGS.offsets_retention_check_interval_ms * 2)
    assert driver.described().group_state == "Empty", "its positions are kept elsewhere"
    assert driver.ask(delete, 2).results[0].error_code == 0
    assert driver.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.reloaded().described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("members", range(1, 9))
@pytest.mark.parametrize("partitions", [1, 3, 5])
def test_every_partition_has_a_reader_and_every_member_a_partition(
    members: int, partitions: int
) -> None:
    shapes = {"t": TopicShape(uuid.UUID(int=1), partitions)}
    group = {
        f"m{number}": ShareMember(member_id=f"m{number}", subscribed_names=frozenset({"t"}))
        for number in range(members)
    }
    before = {}
    for _ in range(2):
        shares = assign_shares(group, shapes, before)
        counts = [0] * partitions
        for share in shares.values():
            indexes = share[shapes["t"].topic_id]
            assert indexes
            for index in indexes:
                counts[index] += 1
        assert min(counts) >= 1
        assert max(counts) - min(counts) <= 1, "evenly"
        if before:
            assert shares == before, "and stable"
        before = shares

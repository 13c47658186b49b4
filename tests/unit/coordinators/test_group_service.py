"""The group service over its runtime: routing, fan-out, and Kafka's choice of partition."""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Coroutine

import pytest
from memory_partition import MemoryPartition

from zhumq.coordinators.group_service import GroupService, partition_for
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.requests import GroupMessage, GroupRequest, GroupResponse, refusal
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.host.clock import SystemClock
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.groups import (
    OPERATIONS_NOT_ASKED_FOR,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

SHARDS = 5


class AnyTopic:
    """Every topic exists, except those that begin with "no"."""

    def topic_id(self, name: str) -> uuid.UUID | None:
        return None if name.startswith("no") else uuid.uuid5(uuid.NAMESPACE_DNS, name)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return "topic" if topic_id == self.topic_id("topic") else None

    def shape(self, name: str) -> TopicShape | None:
        topic_id = self.topic_id(name)
        return None if topic_id is None else TopicShape(topic_id, 5)


class Broker:
    """A service over shards in memory."""

    def __init__(self) -> None:
        suffixes = itertools.count()
        self.partitions = [MemoryPartition() for _ in range(SHARDS)]
        self.runtime: CoordinatorRuntime[GroupRequest, GroupResponse] = CoordinatorRuntime(
            name="group",
            make_shard=lambda: GroupShard(
                GroupSettings(), draw_member_suffix=lambda: str(next(suffixes))
            ),
            refuse=refusal,
            clock=SystemClock(),
            batch_bytes_max=1_000_000,
        )
        self.service = GroupService(self.runtime, partition_count=lambda: SHARDS, topics=AnyTopic())

    async def load(self) -> None:
        for index, partition in enumerate(self.partitions):
            await self.runtime.load(index, partition)

    async def ask(self, message: GroupMessage, version: int) -> GroupResponse:
        return await self.service.handle(
            GroupRequest(message=message, version=version, client_id="c", client_host="/h")
        )

    async def commit(self, group_id: str, topic: str, offset: int) -> int:
        response = await self.ask(commit(group_id, topic, offset), 9)
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code


def commit(group_id: str, topic: str, offset: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                ],
            )
        ],
    )


def run(scenario: Callable[[Broker], Coroutine[None, None, None]]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(20):
            broker = Broker()
            await broker.load()
            try:
                await scenario(broker)
            finally:
                await broker.runtime.close()

    asyncio.run(with_deadline())


@pytest.mark.parametrize(
    ("group_id", "partition_count", "partition"),
    [
        ("", 50, 0),
        ("group", 50, 98629247 % 50),  # "group".hashCode() == 98629247
        ("hello", 50, 99162322 % 50),
        ("polygenelubricants", 50, 0),  # hashes to the one int without an absolute value
        ("\U0001f600", 50, 1772899 % 50),  # two UTF-16 units: 0xd83d * 31 + 0xde00
    ],
)
def test_a_group_maps_to_the_same_partition_as_in_kafka(
    group_id: str, partition_count: int, partition: int
) -> None:
    assert partition_for(group_id, partition_count) == partition


def test_a_negative_hash_counts_by_its_absolute_value() -> None:
    # "console-consumer".hashCode() overflows several times; the sum below is exact.
    code = 0
    for character in "console-consumer":
        code = (31 * code + ord(character)) % 2**32
    code = code - 2**32 if code >= 2**31 else code
    assert partition_for("console-consumer", 50) == abs(code) % 50


def test_a_member_joins_syncs_beats_commits_and_leaves() -> None:
    async def scenario(broker: Broker) -> None:
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        required = await broker.ask(join, 9)
        assert isinstance(required, JoinGroupResponse)
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        join.member_id = required.member_id
        joined = await broker.ask(join, 9)
        assert isinstance(joined, JoinGroupResponse)
        assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
        synced = await broker.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=1,
                member_id=joined.member_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
                ],
            ),
            5,
        )
        assert isinstance(synced, SyncGroupResponse)
        assert synced.assignment == b"mine"
        beat = await broker.ask(
            HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id), 4
        )
        assert beat == HeartbeatResponse()
        committed = commit("g", "topic", 7)
        committed.member_id, committed.generation_id_or_member_epoch = joined.member_id, 1
        response = await broker.ask(committed, 9)
        assert isinstance(response, OffsetCommitResponse)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        left = await broker.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 0)
        assert left == LeaveGroupResponse()

    run(scenario)


def test_requests_for_many_groups_are_asked_of_their_shards_and_answered_in_order() -> None:
    groups = [f"group-{number}" for number in range(12)]

    async def scenario(broker: Broker) -> None:
        for number, group_id in enumerate(groups):
            assert await broker.commit(group_id, "topic", number) == ErrorCode.NONE
        fetched = await broker.ask(
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in groups]
            ),
            9,
        )
        assert isinstance(fetched, OffsetFetchResponse)
        assert [group.group_id for group in fetched.groups] == groups
        offsets = [group.topics[0].partitions[0].committed_offset for group in fetched.groups]
        assert offsets == list(range(12))
        described = await broker.ask(DescribeGroupsRequest(groups=[*groups, groups[0]]), 5)
        assert isinstance(described, DescribeGroupsResponse)
        assert [group.group_id for group in described.groups] == [*groups, groups[0]]
        listed = await broker.ask(ListGroupsRequest(), 5)
        assert isinstance(listed, ListGroupsResponse)
        assert sorted(group.group_id for group in listed.groups) == sorted(groups)
        deleted = await broker.ask(
            DeleteGroupsRequest(groups_names=[*groups, "unknown", groups[0]]), 2
        )
        assert isinstance(deleted, DeleteGroupsResponse)
        assert [result.group_id for result in deleted.results] == [*groups, "unknown"]
        errors = [result.error_code for result in deleted.results]
        assert errors == [ErrorCode.NONE] * 12 + [ErrorCode.GROUP_ID_NOT_FOUND]

    run(scenario)


def test_an_old_fetch_is_answered_in_its_old_form() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.commit("g", "topic", 3)
        response = await broker.ask(
            OffsetFetchRequest(
                group_id="g",
                topics=[OffsetFetchRequestTopic(name="topic", partition_indexes=[0, 1])],
            ),
            1,
        )
        assert isinstance(response, OffsetFetchResponse)
        (topic,) = response.topics
        assert [each.committed_offset for each in topic.partitions] == [3, -1]

    run(scenario)


def test_a_group_asked_for_twice_is_answered_twice() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.commit("g", "topic", 3)
        asked = [
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="g", topics=[]),
        ]
        response = await broker.ask(OffsetFetchRequest(groups=asked), 9)
        assert isinstance(response, OffsetFetchResponse)
        assert [len(group.topics) for group in response.groups] == [1, 0]

    run(scenario)


def test_authorized_operations_are_returned_when_requested() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.commit("g", "topic", 3)
        for asked, operations in ((True, 3400), (False, OPERATIONS_NOT_ASKED_FOR)):
            response = await broker.ask(
                DescribeGroupsRequest(groups=["g"], include_authorized_operations=asked), 6
            )
            assert isinstance(response, DescribeGroupsResponse)
            assert response.groups[0].authorized_operations == operations

    run(scenario)


def test_a_commit_by_topic_id_is_fetched_by_topic_id() -> None:
    async def scenario(broker: Broker) -> None:
        topic_id = AnyTopic().topic_id("topic")
        assert topic_id is not None
        message = commit("g", "", 8)
        message.topics[0].topic_id = topic_id
        unknown = uuid.UUID(int=99)
        message.topics.append(
            OffsetCommitRequestTopic(
                topic_id=unknown, partitions=[OffsetCommitRequestPartition(partition_index=0)]
            )
        )
        response = await broker.ask(message, 10)
        assert isinstance(response, OffsetCommitResponse)
        errors = {each.topic_id: each.partitions[0].error_code for each in response.topics}
        assert errors == {topic_id: ErrorCode.NONE, unknown: ErrorCode.UNKNOWN_TOPIC_ID}
        fetched = await broker.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 10
        )
        assert isinstance(fetched, OffsetFetchResponse)
        (topic,) = fetched.groups[0].topics
        assert (topic.topic_id, topic.partitions[0].committed_offset) == (topic_id, 8)

    run(scenario)


def test_a_commit_for_topics_that_do_not_exist_touches_no_group() -> None:
    async def scenario(broker: Broker) -> None:
        error = await broker.commit("g", "nowhere", 1)
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert all(partition.appends == 0 for partition in broker.partitions)

    run(scenario)


def test_offsets_of_deleted_topics_are_dropped_in_every_shard() -> None:
    async def scenario(broker: Broker) -> None:
        for number in range(10):
            await broker.commit(f"group-{number}", "topic", 1)
        assert await broker.service.topics_deleted(["topic"]) == 10
        assert await broker.service.topics_deleted(["topic"]) == 0

    run(scenario)


def test_an_incomplete_list_of_groups_is_an_error() -> None:
    async def scenario(broker: Broker) -> None:
        broker.partitions[0].holds_flushes = True
        broker.runtime.unload(0)
        broker.partitions[0].high_watermark = 1
        load = asyncio.ensure_future(broker.runtime.load(0, broker.partitions[0]))
        await asyncio.sleep(0)
        response = await broker.ask(ListGroupsRequest(), 5)
        assert isinstance(response, ListGroupsResponse)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.partitions[0].flush()
        await load

    run(scenario)


def test_deleting_offsets_of_no_group_is_an_error() -> None:
    async def scenario(broker: Broker) -> None:
        response = await broker.ask(OffsetDeleteRequest(group_id="g"), 0)
        assert response == OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)

    run(scenario)


EVERY_REQUEST: list[tuple[GroupMessage, int]] = [
    (JoinGroupRequest(group_id="g", member_id="m"), 9),
    (SyncGroupRequest(group_id="g"), 5),
    (LeaveGroupRequest(group_id="g"), 5),
    (commit("g", "topic", 1), 9),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 9),
    (OffsetFetchRequest(group_id="g", topics=None), 7),
    (OffsetDeleteRequest(group_id="g"), 0),
    (DescribeGroupsRequest(groups=["g"]), 6),
    (DeleteGroupsRequest(groups_names=["g"]), 2),
]


@pytest.mark.parametrize(("message", "version"), EVERY_REQUEST)
def test_a_broker_that_is_not_the_coordinator_answers_not_coordinator(
    message: GroupMessage, version: int
) -> None:
    async def scenario(broker: Broker) -> None:
        for index in range(SHARDS):
            broker.runtime.unload(index)
        response = await broker.ask(message, version)
        assert f"error_code={ErrorCode.NOT_COORDINATOR!r}" in repr(response)

    run(scenario)


def test_a_heartbeat_is_fine_while_its_shard_is_loading() -> None:
    request = GroupRequest(message=HeartbeatRequest(group_id="g"), version=4)
    loading = refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert loading == HeartbeatResponse(error_code=ErrorCode.NONE)
    elsewhere = refusal(request, ErrorCode.NOT_COORDINATOR)
    assert elsewhere == HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

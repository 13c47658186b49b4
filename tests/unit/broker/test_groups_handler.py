"""Requests about groups, from the dispatcher to the log of their partition."""

import asyncio
from typing import Any

from one_broker import BROKER_ID, OneBroker, with_broker
from tests.manual_time import advance, until

from zhumq.broker.handlers.coordinators import (
    Coordinated,
    CoordinatorKind,
    FindCoordinatorHandler,
)
from zhumq.broker.handlers.groups import GroupsHandler
from zhumq.broker.wiring.group_coordinator import GroupCoordinator
from zhumq.metadata.image import Broker, Endpoint
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

GROUP = "g"
SESSION_MS = 10_000
SETTINGS = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}


def with_groups(scenario: Any) -> None:
    """Runs a test with a broker that coordinates groups."""

    async def with_coordinator(broker: OneBroker) -> None:
        groups = GroupCoordinator(broker.foundation(SETTINGS), broker.transactions.routed)
        groups.apply(broker.store.image)
        broker.store.watch(groups.apply)
        coordinated = Coordinated(
            noun="group", topic=groups.topic, partition_for=groups.service.partition_for
        )
        finder = FindCoordinatorHandler({CoordinatorKind.GROUP: coordinated}, broker.store)
        broker.dispatch({**GroupsHandler(groups.service).handlers(), **finder.handlers()})
        try:
            await scenario(broker)
        finally:
            await groups.close()

    with_broker(with_coordinator)


async def coordinator(broker: OneBroker, group: str = GROUP) -> Any:
    """The coordinator of a group, once its partition is served."""
    body = FindCoordinatorRequest(key_type=CoordinatorKind.GROUP, coordinator_keys=[group])
    (found,) = (await broker.ask(ApiKey.FIND_COORDINATOR, 4, body)).coordinators
    await until(lambda: all(partition.is_current for partition in broker.replicas))
    return found


async def join(broker: OneBroker) -> str:
    """The id of the only member of the group, which is stable afterwards."""
    body = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    required = await broker.ask(ApiKey.JOIN_GROUP, 9, body)
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    body.member_id = required.member_id
    joined = await broker.ask(ApiKey.JOIN_GROUP, 9, body)
    assert joined.error_code == 0
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    synced = await broker.ask(
        ApiKey.SYNC_GROUP,
        5,
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assignment],
        ),
    )
    assert (synced.error_code, synced.assignment) == (0, b"all")
    member_id: str = joined.member_id
    return member_id


async def beat(broker: OneBroker, member_id: str) -> int:
    body = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    code: int = (await broker.ask(ApiKey.HEARTBEAT, 4, body)).error_code
    return code


async def members(broker: OneBroker) -> list[str]:
    found = await broker.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[GROUP]))
    return [each.client_host for each in found.groups[0].members]


def test_the_first_question_for_a_coordinator_creates_the_offsets_topic() -> None:
    async def scenario(broker: OneBroker) -> None:
        found = await coordinator(broker)
        assert (found.error_code, found.node_id, found.port) == (0, BROKER_ID, 9092)
        assert len(broker.store.image.topics[CONSUMER_OFFSETS_TOPIC].partitions) == 2

    with_groups(scenario)


def test_a_coordinator_is_named_with_the_endpoint_of_the_clients_listener() -> None:
    async def scenario(broker: OneBroker) -> None:
        await coordinator(broker)
        inside, outside = Endpoint(host="inside", port=1), Endpoint(host="outside", port=2)
        for endpoints, found in (
            ({"PLAINTEXT": inside, "SSL": outside}, (ErrorCode.NONE, "inside", 1)),
            ({"SSL": outside}, (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", -1)),
        ):
            registered = Broker(broker_id=BROKER_ID, host="outside", port=2, endpoints=endpoints)
            await broker.store.register(registered)
            answer = await coordinator(broker)
            assert (answer.error_code, answer.host, answer.port) == found

    with_groups(scenario)


def test_there_is_no_coordinator_of_another_kind() -> None:
    async def scenario(broker: OneBroker) -> None:
        body = FindCoordinatorRequest(key_type=9, key="k")
        found = await broker.ask(ApiKey.FIND_COORDINATOR, 3, body)
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert broker.store.image.topics == {}

    with_groups(scenario)


def test_a_request_before_the_partition_is_loaded_is_sent_elsewhere() -> None:
    async def scenario(broker: OneBroker) -> None:
        assert await beat(broker, "m") == ErrorCode.NOT_COORDINATOR

    with_groups(scenario)


def test_a_member_that_beats_stays_and_one_that_falls_silent_is_removed_in_time() -> None:
    async def scenario(broker: OneBroker) -> None:
        await coordinator(broker)
        member_id = await join(broker)
        for _ in range(5):
            await advance(SESSION_MS - 1_000)
            assert await beat(broker, member_id) == 0
        await advance(SESSION_MS - 1_000)
        assert await members(broker) == ["/10.0.0.9"], "its session is not over yet"
        await advance(2_000)
        assert await members(broker) == []
        assert await beat(broker, member_id) == ErrorCode.UNKNOWN_MEMBER_ID

    with_groups(scenario)


def test_a_committed_offset_is_answered_when_it_is_on_the_disk_and_found_again() -> None:
    async def scenario(broker: OneBroker) -> None:
        await coordinator(broker)
        await broker.create("orders")
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=42)
        topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
        body = OffsetCommitRequest(group_id=GROUP, topics=[topic])
        ((_, answer),) = broker.send(ApiKey.OFFSET_COMMIT, 8, body)
        assert isinstance(answer, asyncio.Future)
        await answer
        logs = [each for each in broker.replicas if each.topic_partition.topic != "orders"]
        assert [each.is_durable(1) for each in logs if each.log_end_offset] == [True]
        asked = OffsetFetchRequestGroup(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])],
        )
        found = await broker.ask(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[asked]))
        (topic_found,) = found.groups[0].topics
        assert [each.committed_offset for each in topic_found.partitions] == [42, -1]

    with_groups(scenario)

"""Admin requests for share groups: group settings, offsets, deletion, and what is refused."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from share_member import ShareMember, produce, topic_id_of

from zhumq import Admin, Consumer, Producer
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from zhumq.protocol.messages.groups import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from zhumq.protocol.messages.share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from zhumq.share.acknowledgement import AckKind
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.raw_client import RawClient

TOPIC_RESOURCE = 2
GROUP_RESOURCE = 32
SET, DELETE, APPEND = 0, 1, 2
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(
        settings={
            "share.coordinator.state.topic.num.partitions": "2",
            "offsets.topic.num.partitions": "2",
            "group.share.auto.offset.reset": "earliest",
        }
    ) as each:
        yield each


@dataclass
class Group:
    """A share group on a topic of its own, with ten messages acquired and eight acknowledged."""

    client: RawClient
    name: str
    topic: str
    topic_id: uuid.UUID

    def join(self, member: str, epoch: int = 0):
        return self.client.ask(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ShareGroupHeartbeatRequest(
                group_id=self.name,
                member_id=member,
                member_epoch=epoch,
                subscribed_topic_names=[self.topic] if epoch == 0 else None,
            ),
        )

    def offsets(self, topics: list[DescribeShareGroupOffsetsRequestTopic] | None = None):
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=self.name, topics=topics)]
        )
        return self.client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request).groups[0]

    def alter(self, offset: int, partition: int = 0, topic: str | None = None):
        return self.client.ask(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            AlterShareGroupOffsetsRequest(
                group_id=self.name,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic or self.topic,
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(
                                partition_index=partition, start_offset=offset
                            )
                        ],
                    )
                ],
            ),
        )

    def delete(self) -> int:
        request = DeleteGroupsRequest(groups_names=[self.name])
        return self.client.ask(ApiKey.DELETE_GROUPS, request).results[0].error_code

    def set(self, name: str, value: str | None, operation: int = SET):
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=GROUP_RESOURCE,
                    resource_name=self.name,
                    configs=[
                        IncrementalAlterConfigsAlterableConfig(
                            name=name, config_operation=operation, value=value
                        )
                    ],
                )
            ]
        )
        return self.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses[0]

    def settings(self) -> dict[str, str]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=GROUP_RESOURCE, resource_name=self.name, configuration_keys=None
                )
            ]
        )
        (result,) = self.client.ask(ApiKey.DESCRIBE_CONFIGS, request).results
        assert result.error_code == 0
        return {each.name: each.value for each in result.configs}


@pytest.fixture
def group(running: RunningBroker) -> Iterator[Group]:
    name, topic = f"g-{uuid.uuid4()}", f"t-{uuid.uuid4()}"
    topic_id = topic_id_of(running.bootstrap, topic)
    produce(running.bootstrap, topic_id, [b"x"] * 10)
    with RawClient(running.bootstrap) as client:
        client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[name]))
        each = Group(client, name, topic, topic_id)
        assert each.join("m").error_code == 0
        with ShareMember(running.bootstrap, name, topic_id, member_id="m") as member:
            assert len(member.take()) == 10
            assert member.say(AckKind.ACCEPT, 0, 0, 4) == 0
            assert member.say(AckKind.ACCEPT, 0, 7, 9) == 0
            member.close()
        yield each


def test_offsets_are_described_with_their_lag(group: Group) -> None:
    (topic,) = group.offsets().topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.start_offset, partition.lag) == (group.topic, 5, 2)
    asked = DescribeShareGroupOffsetsRequestTopic(topic_name=group.topic, partitions=[0, 9])
    other = DescribeShareGroupOffsetsRequestTopic(topic_name="nowhere", partitions=[0])
    answers = [p for topic in group.offsets([asked, other]).topics for p in topic.partitions]
    assert [(each.start_offset, each.error_code) for each in answers] == [
        (5, 0),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    group.name = "unknown-group"
    assert group.offsets().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_an_empty_group_is_moved(group: Group, running: RunningBroker) -> None:
    assert group.alter(1).error_code == ErrorCode.NON_EMPTY_GROUP
    assert group.join("m", -1).error_code == 0
    assert group.alter(1).error_code == 0
    assert group.offsets().topics[0].partitions[0].start_offset == 1
    with ShareMember(running.bootstrap, group.name, group.topic_id) as member:
        assert [each.offset for each in member.take()] == list(range(1, 10))
        member.close()
    for answer in (group.alter(-3), group.alter(1, partition=7), group.alter(1, topic="nowhere")):
        assert answer.error_code == 0
        assert answer.responses[0].partitions[0].error_code != 0


def test_offsets_and_groups_are_deleted(group: Group, running: RunningBroker) -> None:
    request = DeleteShareGroupOffsetsRequest(
        group_id=group.name,
        topics=[
            DeleteShareGroupOffsetsRequestTopic(topic_name=group.topic),
            DeleteShareGroupOffsetsRequestTopic(topic_name="nowhere"),
        ],
    )
    answer = group.client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, request)
    assert answer.error_code == ErrorCode.NON_EMPTY_GROUP
    assert group.delete() == ErrorCode.NON_EMPTY_GROUP
    group.join("m", -1)
    answer = group.client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, request)
    assert [each.error_code for each in answer.responses] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert group.offsets().topics == []
    assert group.delete() == 0
    described = group.client.ask(
        ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(group_ids=[group.name])
    )
    assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_has_settings_of_its_own(group: Group, running: RunningBroker) -> None:
    assert group.settings()["share.record.lock.duration.ms"] == "30000"
    assert group.set("share.record.lock.duration.ms", "45000").error_code == 0
    assert group.set("share.delivery.count.limit", "2").error_code == 0
    assert group.settings()["share.record.lock.duration.ms"] == "45000"
    with ShareMember(running.bootstrap, group.name, group.topic_id) as member:
        response = member.fetch_raw()
        assert response.acquisition_lock_timeout_ms == 45_000
        member.close()
    assert group.set("share.record.lock.duration.ms", None, DELETE).error_code == 0
    assert group.settings()["share.record.lock.duration.ms"] == "30000"
    # As in Kafka: deleting a setting that is not set succeeds.
    assert group.set("no.such.setting", None, DELETE).error_code == 0


def groups_with_settings(client: RawClient, *resource_types: int) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=list(resource_types))
    found = client.ask(ApiKey.LIST_CONFIG_RESOURCES, request).config_resources
    return [each.resource_name for each in found if each.resource_type == GROUP_RESOURCE]


def test_groups_with_settings_of_their_own_are_listed_and_say_whose_they_are(group: Group) -> None:
    """The request of `kafka-configs --entity-type groups --describe`."""
    assert group.name not in groups_with_settings(group.client, GROUP_RESOURCE)
    assert group.set("share.delivery.count.limit", "2").error_code == 0
    assert group.name in groups_with_settings(group.client, GROUP_RESOURCE)
    assert group.name in groups_with_settings(group.client)  # of all kinds
    assert groups_with_settings(group.client, TOPIC_RESOURCE) == []
    request = DescribeConfigsRequest(
        include_synonyms=True,
        resources=[
            DescribeConfigsResource(
                resource_type=GROUP_RESOURCE,
                resource_name=group.name,
                configuration_keys=["share.delivery.count.limit"],
            )
        ],
    )
    (result,) = group.client.ask(ApiKey.DESCRIBE_CONFIGS, request).results
    (entry,) = result.configs
    assert [(each.name, each.value) for each in entry.synonyms] == [
        ("share.delivery.count.limit", "2"),
        ("group.share.delivery.count.limit", "5"),
    ]
    assert group.set("share.delivery.count.limit", None, DELETE).error_code == 0
    assert group.name not in groups_with_settings(group.client, GROUP_RESOURCE)


@pytest.mark.parametrize(
    ("name", "value", "operation", "code"),
    [
        ("share.auto.offset.reset", "nowhere", SET, ErrorCode.INVALID_CONFIG),
        ("share.record.lock.duration.ms", "soon", SET, ErrorCode.INVALID_CONFIG),
        ("share.record.lock.duration.ms", "1", SET, ErrorCode.INVALID_CONFIG),
        ("no.such.setting", "1", SET, ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", "earliest", APPEND, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    group: Group, name: str, value: str | None, operation: int, code: ErrorCode
) -> None:
    before = group.settings()
    answer = group.set(name, value, operation)
    assert answer.error_code == code
    assert name in answer.error_message
    assert group.settings() == before


# Groups of ptp-shared subscriptions, which have no members in Kafka's group coordinator


def test_a_ptp_shared_group_is_a_share_group_to_kafkas_tools(running: RunningBroker) -> None:
    topic, name = "subscribed", "subscribers"
    with Admin(running.bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    with Producer(running.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2)

    with RawClient(running.bootstrap) as client:

        def listed(**filters: list[str]) -> dict[str, tuple[str, str]]:
            answer = client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(**filters), version=5)
            return {each.group_id: (each.group_type, each.group_state) for each in answer.groups}

        def described():
            request = ShareGroupDescribeRequest(group_ids=[name])
            return client.ask(ApiKey.SHARE_GROUP_DESCRIBE, request).groups[0]

        def offsets():
            request = DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)]
            )
            return client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request).groups[0]

        def coordinator() -> int:
            request = FindCoordinatorRequest(coordinator_keys=[name])
            return client.ask(ApiKey.FIND_COORDINATOR, request).coordinators[0].error_code

        while coordinator() != ErrorCode.NONE:  # the deadline is the test's
            pass
        while (code := described().error_code) != ErrorCode.GROUP_ID_NOT_FOUND:
            assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with Consumer(topic, group=name, mode="ptp-shared", bootstrap=running.bootstrap) as reader:
            for count, _ in enumerate(reader, start=1):
                if count == 10:
                    break
            assert listed(types_filter=["share"])[name] == ("share", "Stable")
            assert name not in listed(types_filter=["consumer"])
            assert name not in listed(states_filter=["Empty"])
            group = described()
            (member,) = group.members
            assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
            (assigned,) = member.assignment.topic_partitions
            assert (assigned.topic_name, assigned.partitions) == (topic, [0, 1])
        assert listed()[name] == ("share", "Empty")
        # The last acknowledgements of a push stream are persisted after it has ended.
        deadline = time.monotonic() + SECONDS_MAX
        while {(each.start_offset, each.lag) for each in offsets().topics[0].partitions} != {
            (5, 0)
        }:
            assert time.monotonic() < deadline, offsets()
        client.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[name]))
        assert name not in listed()
        assert described().error_code == ErrorCode.GROUP_ID_NOT_FOUND

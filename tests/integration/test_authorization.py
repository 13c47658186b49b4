"""What a client with some rights sees: authorized operations, hidden settings, topics of groups; ACL requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.access_check import TESTED_HOST, Client, World, acl_of, codes_of, connect
from tests.access_matrix import (
    ANY_ACL,
    CLUSTER,
    GROUP,
    TOPIC,
    Right,
    create_request,
    produce_request,
)

from zhumq.client.wire import Connection
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages import acls, consumer_groups, groups, metadata, produce
from zhumq.security.acl import CLUSTER_NAME, Operation, PatternType, Permission
from zhumq.testing.broker import broker

SETTINGS = {"authorizer.class.name": "zhumq", "allow.everyone.if.no.acl.found": "true"}
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("authorization")
    with broker(data_dir=folder, settings=SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def world(bootstrap: str) -> Iterator[World]:
    made = World.by_address(bootstrap)
    yield made
    made.close()


@pytest.fixture
def tested(bootstrap: str, world: World) -> Iterator[Connection]:
    world.revoke_all()
    with connect(bootstrap, TESTED_HOST) as client:
        yield client
    world.revoke_all()


def grant(world: World, *rights: tuple[Operation, Any, str]) -> None:
    world.grant(*((Right(operation, type_), name) for operation, type_, name in rights))


def create(client: Connection, *creations: acls.AclCreation) -> list[acls.AclCreationResult]:
    request = acls.CreateAclsRequest(creations=list(creations))
    results: list[acls.AclCreationResult] = client.ask(ApiKey.CREATE_ACLS, request).results
    return results


def at(host: str) -> Client:
    return Client.at("", host)


def bits(*operations: Operation) -> int:
    return sum(1 << each for each in operations)


def test_a_client_that_asks_gets_its_operations(world: World, tested: Connection) -> None:
    world.make("asked-topic", "asked-group")
    grant(
        world,
        (Operation.READ, TOPIC, "asked-topic"),
        (Operation.DELETE, GROUP, "asked-group"),
        (Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME),
    )
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="asked-topic")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = tested.ask(ApiKey.METADATA, request, 10)
    described = bits(Operation.READ, Operation.DESCRIBE)
    assert answer.topics[0].topic_authorized_operations == described
    assert answer.cluster_authorized_operations == 0, "it may not describe the cluster"
    grant(world, (Operation.DESCRIBE, CLUSTER, CLUSTER_NAME))
    of_cluster = bits(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    assert tested.ask(ApiKey.METADATA, request, 10).cluster_authorized_operations == of_cluster
    asked = metadata.DescribeClusterRequest(include_cluster_authorized_operations=True)
    found = tested.ask(ApiKey.DESCRIBE_CLUSTER, asked)
    assert found.cluster_authorized_operations == of_cluster
    described_groups = tested.ask(
        ApiKey.DESCRIBE_GROUPS,
        groups.DescribeGroupsRequest(groups=["asked-group"], include_authorized_operations=True),
    )
    of_group = bits(Operation.DELETE, Operation.DESCRIBE)
    assert described_groups.groups[0].authorized_operations == of_group
    pages = tested.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, metadata.DescribeTopicPartitionsRequest())
    assert [each.name for each in pages.topics] == ["asked-topic"]
    assert pages.topics[0].topic_authorized_operations == described


def test_items_are_refused_one_by_one(world: World, tested: Connection) -> None:
    world.make("mine", "mine-group")
    world.make("theirs", "their-group")
    grant(world, (Operation.DESCRIBE, TOPIC, "mine"), (Operation.WRITE, TOPIC, "mine"))
    names = [metadata.MetadataRequestTopic(name=name) for name in ("theirs", "mine", "absent")]
    answer = tested.ask(
        ApiKey.METADATA, metadata.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    )
    assert {each.name: each.error_code for each in answer.topics} == {
        "mine": ErrorCode.NONE,
        "theirs": REFUSED,
        "absent": REFUSED,
    }
    data = [
        produce.TopicProduceData(
            name=name, partition_data=[produce.PartitionProduceData(index=0, records=b"no batch")]
        )
        for name in ("theirs", "mine")
    ]
    written = tested.ask(
        ApiKey.PRODUCE, produce.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), 12
    )
    codes = {each.name: each.partition_responses[0].error_code for each in written.responses}
    assert codes["theirs"] == REFUSED
    assert codes["mine"] not in (ErrorCode.NONE, REFUSED)


def test_an_old_metadata_request_whose_topics_are_all_refused_does_not_list_others(
    world: World, tested: Connection
) -> None:
    world.make("described", "described-group")
    grant(world, (Operation.DESCRIBE, TOPIC, "described"))
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="other")])
    answer = tested.ask(ApiKey.METADATA, request, 0)
    assert [(each.name, each.error_code) for each in answer.topics] == [("other", REFUSED)]


def test_a_created_topic_shows_its_settings_only_with_the_right_to_them(
    world: World, tested: Connection
) -> None:
    grant(world, (Operation.CREATE, TOPIC, "fresh*"))
    hidden = tested.ask(ApiKey.CREATE_TOPICS, create_request("fresh-1")).topics[0]
    assert hidden.error_code == ErrorCode.NONE
    assert hidden.topic_config_error_code == REFUSED
    assert (hidden.configs, hidden.num_partitions, hidden.replication_factor) == (None, -1, -1)
    grant(world, (Operation.DESCRIBE_CONFIGS, TOPIC, "fresh*"))
    shown = tested.ask(ApiKey.CREATE_TOPICS, create_request("fresh-2")).topics[0]
    assert shown.topic_config_error_code == ErrorCode.NONE
    assert (len(shown.configs) > 0, shown.num_partitions) == (True, 1)


def test_a_regular_expression_finds_the_topics_that_its_member_may_describe(
    world: World, tested: Connection
) -> None:
    visible = world.make("regex-visible", None)
    world.make("regex-secret", None)
    grant(world, (Operation.READ, GROUP, "regex"), (Operation.DESCRIBE, TOPIC, "regex-visible"))
    request = consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="regex",
        member_id="6e9ab6a2-4a8c-4a5f-8d7e-1f50a32f7a11",
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex="regex-.*",
        topic_partitions=[],
    )
    answer = tested.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
    assert answer.error_code == ErrorCode.NONE
    assert [each.topic_id for each in answer.assignment.topic_partitions] == [visible]


def test_a_group_with_topics_that_the_client_may_not_describe_is_not_described(
    world: World, tested: Connection
) -> None:
    world.make("assigned", None)
    join = consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="assigning",
        member_id="7e9ab6a2-4a8c-4a5f-8d7e-1f50a32f7a11",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["assigned"],
        topic_partitions=[],
    )
    assert not codes_of(world.admin.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, join))
    grant(world, (Operation.DESCRIBE, GROUP, "assigning"))
    request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=["assigning"])
    hidden = tested.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0]
    assert (hidden.error_code, hidden.members, hidden.group_state) == (REFUSED, [], "")
    grant(world, (Operation.DESCRIBE, TOPIC, "assigned"))
    shown = tested.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0]
    assert (shown.error_code, len(shown.members)) == (ErrorCode.NONE, 1)


def test_acls_are_found_by_filters_and_deleted(world: World) -> None:
    admin = world.admin
    made = [
        acl_of(Right(Operation.READ, TOPIC), name, at("10.1.1.1"))
        for name in ("filtered", "filt*", "x")
    ]
    assert [each.error_code for each in create(admin, *made, made[0])] == [0, 0, 0, 0]
    match = {
        **ANY_ACL,
        "resource_type_filter": TOPIC,
        "resource_name_filter": "filtered",
        "pattern_type_filter": PatternType.MATCH,
        "host_filter": "10.1.1.1",
    }
    found = admin.ask(ApiKey.DESCRIBE_ACLS, acls.DescribeAclsRequest(**match))
    assert found.error_code == ErrorCode.NONE
    described = {(each.resource_name, each.pattern_type): each.acls for each in found.resources}
    assert set(described) == {("filtered", PatternType.LITERAL), ("filt", PatternType.PREFIXED)}
    (entry,) = described["filtered", PatternType.LITERAL]
    assert (entry.principal, entry.host) == ("User:*", "10.1.1.1")
    assert (entry.operation, entry.permission_type) == (Operation.READ, Permission.ALLOW)
    deletion = acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter(**match)])
    for names in ({"filtered", "filt"}, set()):
        (result,) = admin.ask(ApiKey.DELETE_ACLS, deletion).filter_results
        assert result.error_code == ErrorCode.NONE
        assert {each.resource_name for each in result.matching_acls} == names
    left = admin.ask(
        ApiKey.DESCRIBE_ACLS, acls.DescribeAclsRequest(**{**ANY_ACL, "host_filter": "10.1.1.1"})
    )
    assert [each.resource_name for each in left.resources] == ["x"]


def test_invalid_acls_are_refused_one_by_one_and_too_many_together(world: World) -> None:
    good = acl_of(Right(Operation.READ, TOPIC), "bounded", at("10.2.2.2"))
    bad = acl_of(Right(Operation.ANY, TOPIC), "bounded", at("10.2.2.2"))
    unknown = acls.AclCreation(resource_type=99, resource_name="r", principal="User:a", host="*")
    results = create(world.admin, bad, good, unknown)
    assert [each.error_code for each in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    many = [
        acl_of(Right(Operation.READ, TOPIC), "bounded", at(f"10.{high}.{low}.1"))
        for high in range(20)
        for low in range(101)
    ]
    results = create(world.admin, *many)
    assert {each.error_code for each in results} == {ErrorCode.POLICY_VIOLATION}
    assert "2000 are the most" in (results[0].error_message or "")
    filters = [acls.DeleteAclsFilter(**{**ANY_ACL, "operation": 99})]
    (result,) = world.admin.ask(
        ApiKey.DELETE_ACLS, acls.DeleteAclsRequest(filters=filters)
    ).filter_results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    wrong = acls.DescribeAclsRequest(**{**ANY_ACL, "permission_type": 99})
    assert codes_of(world.admin.ask(ApiKey.DESCRIBE_ACLS, wrong)) == {ErrorCode.INVALID_REQUEST}


def test_a_change_counts_for_connections_that_are_open_and_ends_runs_of_produce(
    world: World, tested: Connection
) -> None:
    world.make("revoked", None)
    grant(world, (Operation.WRITE, TOPIC, "revoked"))
    for _ in range(3):
        assert not codes_of(tested.ask(ApiKey.PRODUCE, produce_request("revoked"), 12))
    world.revoke_all()
    assert codes_of(tested.ask(ApiKey.PRODUCE, produce_request("revoked"), 12)) == {REFUSED}


def test_a_refused_produce_request_without_acks_closes_the_connection(
    world: World, tested: Connection
) -> None:
    world.make("closing", None)
    request = produce_request("closing")
    request.acks = 0
    tested.send(ApiKey.PRODUCE, request, 12)
    with pytest.raises(ConnectionError):
        tested.ask(ApiKey.METADATA, metadata.MetadataRequest(topics=[]))

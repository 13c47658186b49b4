"""ApiVersions, Metadata, DescribeCluster and DescribeTopicPartitions from a store in memory."""

import uuid
from typing import Any

from one_broker import BROKER_ID, OneBroker, with_broker

from zhumq.broker.handlers.metadata import AUTO_CREATED_TOPICS_MAX, MetadataHandler
from zhumq.metadata.image import NO_BROKER, Broker, Endpoint
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import APIS, ApiKey
from zhumq.protocol.messages.metadata import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)

METADATA = ApiKey.METADATA
VERSION = 12
SERVED = (ApiKey.PRODUCE, ApiKey.API_VERSIONS)


def serve(broker: OneBroker, *, auto_create_topics: bool = False) -> None:
    handler = MetadataHandler(
        broker.store,
        broker.metadata_client,
        lambda: SERVED,
        auto_create_topics=auto_create_topics,
    )
    broker.dispatch(handler.handlers())


def about(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def test_the_versions_of_the_served_apis_are_listed() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker)
        found = await broker.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
        assert [(each.api_key, each.max_version) for each in found.api_keys] == [
            (key, APIS[key].max_version) for key in sorted(SERVED)
        ]

    with_broker(scenario)


def test_topics_are_described_with_their_leaders_and_brokers() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker)
        await broker.create("a", partitions=2)
        await broker.create("b")
        for body in (MetadataRequest(topics=None), about("a", "b", "a")):
            found = await broker.ask(METADATA, VERSION, body)
            assert [topic.name for topic in found.topics] == ["a", "b"]
            assert [(each.node_id, each.port) for each in found.brokers] == [(BROKER_ID, 9092)]
            leaders = [each.leader_id for topic in found.topics for each in topic.partitions]
            assert leaders == [BROKER_ID] * 3

    with_broker(scenario)


def test_a_topic_is_found_by_its_id() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker)
        partition = await broker.create("a")
        topics = [
            MetadataRequestTopic(name=None, topic_id=each)
            for each in (partition.topic_id, uuid.UUID(int=99))
        ]
        found = await broker.ask(METADATA, VERSION, MetadataRequest(topics=topics))
        assert [(topic.name, topic.error_code) for topic in found.topics] == [
            ("a", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    with_broker(scenario)


def test_an_unknown_topic_is_created_only_where_broker_and_client_allow_it() -> None:
    async def scenario(broker: OneBroker) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for allowed, asked in ((False, False), (False, True), (True, False)):
            serve(broker, auto_create_topics=allowed)
            found = await broker.ask(METADATA, VERSION, about("new", create=asked))
            assert found.topics[0].error_code == unknown
        assert "new" not in broker.store.image.topics
        serve(broker, auto_create_topics=True)
        found = await broker.ask(METADATA, VERSION, about("new", "b/d", create=True))
        assert [topic.error_code for topic in found.topics] == [
            0,
            ErrorCode.INVALID_TOPIC,
        ]
        assert "new" in broker.store.image.topics

    with_broker(scenario)


def test_topics_over_the_limit_of_one_request_are_created_by_the_next() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker, auto_create_topics=True)
        names = [f"t{number}" for number in range(AUTO_CREATED_TOPICS_MAX + 2)]
        found = await broker.ask(METADATA, VERSION, about(*names, create=True))
        waiting = [each for each in found.topics if each.error_code]
        assert {each.error_code for each in waiting} <= {
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.POLICY_VIOLATION,
        }
        assert len(broker.store.image.topics) <= AUTO_CREATED_TOPICS_MAX

    with_broker(scenario)


def test_the_cluster_is_described() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker)
        found = await broker.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
        assert found.cluster_id == broker.store.image.cluster_id
        assert [each.broker_id for each in found.brokers] == [BROKER_ID]

    with_broker(scenario)


def test_partitions_are_described_page_by_page() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker)
        await broker.create("a", partitions=3)
        await broker.create("b", partitions=2)
        cursor, seen = None, []
        while True:
            body = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name="a"), TopicRequest(name="b")],
                response_partition_limit=2,
                cursor=cursor,
            )
            found = await broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body)
            page = [(t.name, each.partition_index) for t in found.topics for each in t.partitions]
            assert len(page) <= 2
            seen += page
            cursor = found.next_cursor
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]

    with_broker(scenario)


def test_a_client_gets_the_endpoints_of_its_listener() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker)
        await broker.create("a")
        endpoints = {
            "PLAINTEXT": Endpoint(host="inside", port=1),
            "SSL": Endpoint(host="outside", port=2),
        }
        await broker.store.register(
            Broker(broker_id=BROKER_ID, host="first", port=9, endpoints=endpoints)
        )
        found = await broker.ask(METADATA, VERSION, about("a"))
        assert [(each.host, each.port) for each in found.brokers] == [("inside", 1)]
        assert found.controller_id == BROKER_ID
        described = await broker.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
        assert [(each.host, each.port) for each in described.brokers] == [("inside", 1)]

    with_broker(scenario)


def test_a_broker_without_the_clients_listener_is_left_out() -> None:
    async def scenario(broker: OneBroker) -> None:
        serve(broker)
        await broker.create("a")
        endpoints = {"SSL": Endpoint(host="outside", port=2)}
        await broker.store.register(
            Broker(broker_id=BROKER_ID, host="outside", port=2, endpoints=endpoints)
        )
        for version, code in (
            (6, ErrorCode.LISTENER_NOT_FOUND),
            (VERSION, ErrorCode.LISTENER_NOT_FOUND),
            (5, ErrorCode.LEADER_NOT_AVAILABLE),  # as Kafka answers older clients
        ):
            found = await broker.ask(METADATA, version, about("a"))
            assert found.brokers == []
            assert found.controller_id == NO_BROKER
            (partition,) = found.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (code, NO_BROKER)
            assert partition.offline_replicas == [BROKER_ID]
        described = await broker.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
        assert described.brokers == []

    with_broker(scenario)


def test_a_topic_that_was_described_before_is_described_as_it_is_now() -> None:
    async def scenario(broker: OneBroker) -> None:
        async def partitions_of(name: str) -> Any:
            found = await broker.ask(METADATA, VERSION, MetadataRequest(topics=None))
            (partitions,) = [topic.partitions for topic in found.topics if topic.name == name]
            return partitions

        serve(broker)
        await broker.create("a")
        first = await partitions_of("a")
        assert len(first) == 1
        assert await partitions_of("a") == first
        await broker.metadata_client.delete_topics(["a"])
        await broker.create("a", partitions=2)
        assert len(await partitions_of("a")) == 2
        # Its leader is another broker's incarnation from now on.
        await broker.store.register(Broker(broker_id=BROKER_ID, host="again", port=9, epoch=7))
        assert [each.leader_id for each in await partitions_of("a")] == [NO_BROKER] * 2

    with_broker(scenario)

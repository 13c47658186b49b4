"""Single requests and their answers, where clients are known to be sensitive."""

import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import APIS, OWN_KEY_MIN, ApiKey
from zhumq.protocol.messages import (
    acls,
    configs,
    fetch,
    metadata,
    offsets,
    produce,
    producers,
    topics,
)
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.testing.broker import broker
from zhumq.testing.raw_client import RawClient


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RawClient]:
    # The timestamps here are of 1970: retention must not delete messages during a long test.
    kept = {"log.retention.check.interval.ms": "3600000"}
    with (
        broker(data_dir=tmp_path, settings=kept) as running,
        RawClient(running.bootstrap) as raw,
    ):
        yield raw


def create(client: RawClient, name: str, partitions: int = 1, **settings: str) -> uuid.UUID:
    response = client.ask(
        ApiKey.CREATE_TOPICS,
        topics.CreateTopicsRequest(
            topics=[
                topics.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in settings.items()
                    ],
                )
            ]
        ),
    )
    assert response.topics[0].error_code == 0, response.topics[0].error_message
    return response.topics[0].topic_id


def batch_of(*values: bytes, key: bytes | None = b"k", **options: object) -> bytes:
    records = [Record(key=key, value=value, timestamp=1_000 + i) for i, value in enumerate(values)]
    return build_batch(records, **options)


def send(
    client: RawClient, topic: str, data: bytes, *, acks: int = -1, version: int = 9, partition=0
) -> produce.PartitionProduceResponse:
    response = client.ask(ApiKey.PRODUCE, produce_request(topic, data, acks, partition), version)
    return response.responses[0].partition_responses[0]


def produce_request(topic: str, data: bytes, acks: int, partition: int = 0):
    partitions = [produce.PartitionProduceData(index=partition, records=data)]
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=partitions)],
    )


def fetch_request(topic: str, offset: int, **options: object) -> fetch.FetchRequest:
    partition_bytes = options.pop("partition_max_bytes", 1 << 20)
    partition = fetch.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=partition_bytes
    )
    defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    return fetch.FetchRequest(
        topics=[fetch.FetchTopic(topic=topic, partitions=[partition])], **{**defaults, **options}
    )


def fetched(client: RawClient, request: fetch.FetchRequest, version: int = 12):
    response = client.ask(ApiKey.FETCH, request, version)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def test_an_unknown_version_of_api_versions_is_answered_with_the_range(client: RawClient) -> None:
    body = b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x03raw" + b"whatever"
    client.send_bytes(struct.pack(">i", len(body)) + body)
    frame = client.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10:])}
    assert len(ranges) == count
    assert ranges[ApiKey.API_VERSIONS] == (0, 4)


def test_every_declared_api_is_served_and_advertised(client: RawClient) -> None:
    response = client.ask(ApiKey.API_VERSIONS, metadata.ApiVersionsRequest(), 3)
    advertised = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert advertised[ApiKey.PRODUCE] == (0, 13)
    assert advertised[ApiKey.FETCH] == (4, 18)
    assert set(advertised) == {key for key in APIS if key < OWN_KEY_MIN}


def test_metadata_by_id_and_by_name(client: RawClient) -> None:
    topic_id = create(client, "t", 3)
    requested = [
        metadata.MetadataRequestTopic(topic_id=topic_id, name=None),
        metadata.MetadataRequestTopic(topic_id=uuid.UUID(int=5), name=None),
        metadata.MetadataRequestTopic(name="absent"),
        metadata.MetadataRequestTopic(name="bad name"),
        metadata.MetadataRequestTopic(name="absent"),
    ]
    response = client.ask(
        ApiKey.METADATA, metadata.MetadataRequest(topics=requested, allow_auto_topic_creation=False)
    )
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("t", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC),
    ]
    assert len(response.topics[0].partitions) == 3


def test_an_unknown_topic_is_created_when_asked_for(client: RawClient) -> None:
    requested = [metadata.MetadataRequestTopic(name=name) for name in ("new", "bad name")]
    response = client.ask(ApiKey.METADATA, metadata.MetadataRequest(topics=requested))
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("new", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC),
    ]


def test_authorized_operations_come_only_when_asked_for(client: RawClient) -> None:
    create(client, "t")
    plain = client.ask(ApiKey.METADATA, metadata.MetadataRequest(topics=None), 10)
    assert plain.topics[0].topic_authorized_operations == -(2**31)
    asked = metadata.MetadataRequest(
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = client.ask(ApiKey.METADATA, asked, 10)
    assert response.topics[0].topic_authorized_operations > 0
    assert response.cluster_authorized_operations > 0


def test_a_fetch_inside_a_batch_returns_the_whole_batch(client: RawClient) -> None:
    create(client, "t")
    assert send(client, "t", batch_of(b"a", b"b", b"c")).base_offset == 0
    assert send(client, "t", batch_of(b"d")).base_offset == 3
    answer = fetched(client, fetch_request("t", 1))
    first, second = batches(bytes(answer.records))
    assert (first.header.base_offset, second.header.base_offset) == (0, 3)


def test_the_first_batch_comes_whole_however_small_the_limit(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch_of(b"x" * 10_000))
    send(client, "t", batch_of(b"y" * 10_000))
    answer = fetched(client, fetch_request("t", 0, max_bytes=1, partition_max_bytes=1))
    (only,) = batches(bytes(answer.records))
    assert only.header.records_count == 1


def test_a_fetch_outside_of_the_log_is_an_error_and_at_its_end_is_empty(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch_of(b"a"))
    assert fetched(client, fetch_request("t", 5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    at_the_end = fetched(client, fetch_request("t", 1))
    assert (at_the_end.error_code, len(at_the_end.records)) == (0, 0)
    assert at_the_end.high_watermark == 1


def test_a_waiting_fetch_is_answered_by_an_append(client: RawClient, tmp_path: Path) -> None:
    create(client, "t")
    client.send(ApiKey.FETCH, fetch_request("t", 0, max_wait_ms=20_000, min_bytes=1), 12)
    client.send(ApiKey.PRODUCE, produce_request("t", batch_of(b"a"), 1), 9)
    # The answers come in the order of the requests although the fetch had to wait.
    response = client.receive(ApiKey.FETCH, 12)
    assert len(response.responses[0].partitions[0].records) == len(batch_of(b"a"))
    assert client.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].error_code == 0


def test_a_fetch_does_not_wait_for_bytes_that_are_in_the_next_segment(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path) as running, RawClient(running.bootstrap) as client:
        create(client, "t", segment_bytes="200")
        for value in (b"a" * 100, b"b" * 100, b"c" * 100):
            assert send(client, "t", batch_of(value)).error_code == 0
        with RawClient(running.bootstrap, seconds_max=10) as reader:
            request = fetch_request("t", 0, min_bytes=1 << 20, max_wait_ms=60_000)
            (first,) = batches(fetched(reader, request).records)
    assert first.header.last_offset == 0


def test_an_incremental_session_returns_only_changes(client: RawClient) -> None:
    create(client, "t")
    opened = client.ask(ApiKey.FETCH, fetch_request("t", 0, session_epoch=0), 12)
    assert opened.session_id != 0
    assert len(opened.responses) == 1

    def go_on(epoch: int, **options: object) -> fetch.FetchResponse:
        request = fetch.FetchRequest(
            session_id=opened.session_id, session_epoch=epoch, max_bytes=1 << 20, **options
        )
        return client.ask(ApiKey.FETCH, request, 12)

    assert go_on(1).responses == []
    send(client, "t", batch_of(b"a"))
    assert len(go_on(2).responses[0].partitions[0].records) > 0
    assert go_on(2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    forgotten = fetch.ForgottenTopic(topic="t", partitions=[0])
    assert go_on(3, forgotten_topics_data=[forgotten]).responses == []
    wrong = fetch.FetchRequest(session_id=opened.session_id + 1, session_epoch=1)
    response = client.ask(ApiKey.FETCH, wrong, 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_by_topic_id_knows_a_deleted_topic(client: RawClient) -> None:
    topic_id = create(client, "t")
    request = fetch_request("t", 0)
    request.topics[0].topic_id = topic_id
    assert fetched(client, request, 16).error_code == 0
    client.ask(ApiKey.DELETE_TOPICS, topics.DeleteTopicsRequest(topic_names=["t"]), 5)
    assert fetched(client, request, 16).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_fetch_with_an_unknown_leader_epoch_is_refused(client: RawClient) -> None:
    create(client, "t")
    request = fetch_request("t", 0)
    request.topics[0].partitions[0].current_leader_epoch = 5
    assert fetched(client, request).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_corrupt_batch_is_refused_and_not_stored(client: RawClient) -> None:
    create(client, "t")
    damaged = bytearray(batch_of(b"a"))
    damaged[-1] ^= 1
    assert send(client, "t", bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetched(client, fetch_request("t", 0)).high_watermark == 0


def test_records_without_a_key_are_refused_where_keys_matter(client: RawClient) -> None:
    create(client, "compacted", cleanup_policy="compact")
    answer = send(client, "compacted", batch_of(b"a", key=None))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert send(client, "compacted", batch_of(b"a")).error_code == 0
    mixed = [Record(key=key, value=b"v", timestamp=1_000) for key in (b"k", None, b"k", None)]
    answer = send(client, "compacted", build_batch(mixed))
    assert [each.batch_index for each in answer.record_errors] == [1, 3]


def test_a_batch_over_the_topics_limit_is_refused(client: RawClient) -> None:
    create(client, "t", max_message_bytes="200")
    assert send(client, "t", batch_of(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_are_0_1_or_minus_1(client: RawClient, acks: int) -> None:
    create(client, "t")
    answer = send(client, "t", batch_of(b"a"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_acks_0_has_no_answer_and_a_failure_closes_the_connection(client: RawClient) -> None:
    create(client, "t")
    client.send(ApiKey.PRODUCE, produce_request("t", batch_of(b"a"), 0), 9)
    assert fetched(client, fetch_request("t", 0)).high_watermark == 1
    client.send(ApiKey.PRODUCE, produce_request("absent", batch_of(b"a"), 0), 9)
    with pytest.raises(ConnectionError):
        client.receive_frame()


def test_too_few_replicas_refuse_acks_minus_1_only(client: RawClient) -> None:
    create(client, "t", min_insync_replicas="2")
    assert send(client, "t", batch_of(b"a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert send(client, "t", batch_of(b"a"), acks=1).error_code == 0


def test_a_duplicate_of_an_idempotent_producer_gets_its_old_offset(client: RawClient) -> None:
    create(client, "t")
    request = producers.InitProducerIdRequest(transactional_id=None)
    given = client.ask(ApiKey.INIT_PRODUCER_ID, request, 4)
    identity = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    sent = [batch_of(b"%d" % n, base_sequence=n, **identity) for n in range(6)]
    for index, data in enumerate(sent):
        assert send(client, "t", data).base_offset == index
    for index in (5, 1):
        again = send(client, "t", sent[index])
        assert (again.error_code, again.base_offset) == (0, index)
    gap = send(client, "t", batch_of(b"x", base_sequence=9, **identity))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert fetched(client, fetch_request("t", 0)).high_watermark == 6
    described = client.ask(
        ApiKey.DESCRIBE_PRODUCERS,
        producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
    )
    (producer,) = described.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.last_sequence) == (given.producer_id, 5)


def test_offsets_by_kind_and_by_time(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch_of(b"a", b"b", b"c"))  # timestamps 1000, 1001, 1002

    def ask(timestamp: int) -> tuple[int, int]:
        partition = offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = offsets.ListOffsetsRequest(
            replica_id=-1, topics=[offsets.ListOffsetsTopic(name="t", partitions=[partition])]
        )
        answer = client.ask(ApiKey.LIST_OFFSETS, request, 9).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.offset, answer.timestamp

    assert ask(-1) == (3, -1)
    assert ask(-2) == (0, -1)
    assert ask(-3) == (2, 1_002)
    assert ask(-4) == (0, -1)
    assert ask(-5) == (-1, -1)
    assert ask(1_001) == (1, 1_001)
    assert ask(0) == (0, 1_000)
    assert ask(5_000) == (-1, -1)


def test_records_are_deleted_up_to_an_offset(client: RawClient) -> None:
    create(client, "t")
    send(client, "t", batch_of(b"a", b"b", b"c"))

    def delete(offset: int) -> tuple[int, int]:
        partition = topics.DeleteRecordsPartition(partition_index=0, offset=offset)
        request = topics.DeleteRecordsRequest(
            topics=[topics.DeleteRecordsTopic(name="t", partitions=[partition])]
        )
        answer = client.ask(ApiKey.DELETE_RECORDS, request).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    assert delete(2) == (0, 2)
    assert delete(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert fetched(client, fetch_request("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(-1) == (0, 3)


def test_every_topic_of_a_request_is_answered(client: RawClient) -> None:
    create(client, "t", 2)
    request = topics.CreatePartitionsRequest(
        topics=[
            topics.CreatePartitionsTopic(name="t", count=4, assignments=None),
            topics.CreatePartitionsTopic(name="absent", count=4, assignments=None),
            topics.CreatePartitionsTopic(name="twice", count=4, assignments=None),
            topics.CreatePartitionsTopic(name="twice", count=5, assignments=None),
        ]
    )
    results = client.ask(ApiKey.CREATE_PARTITIONS, request).results
    assert {each.name: each.error_code for each in results} == {
        "t": ErrorCode.NONE,
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "twice": ErrorCode.INVALID_REQUEST,
    }


def test_a_topic_twice_in_one_request_is_refused(client: RawClient) -> None:
    twice = [topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)] * 2
    response = client.ask(ApiKey.CREATE_TOPICS, topics.CreateTopicsRequest(topics=twice))
    assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_topics_are_deleted_by_id(client: RawClient) -> None:
    topic_id = create(client, "t")
    targets = [
        topics.DeleteTopicState(name=None, topic_id=each) for each in (topic_id, uuid.uuid4())
    ]
    response = client.ask(ApiKey.DELETE_TOPICS, topics.DeleteTopicsRequest(topics=targets))
    assert [(each.name, each.error_code) for each in response.responses] == [
        ("t", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def describe_topic(
    client: RawClient, name: str
) -> dict[str, configs.DescribeConfigsResourceResult]:
    resource = configs.DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=None
    )
    request = configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = client.ask(ApiKey.DESCRIBE_CONFIGS, request).results
    assert result.error_code == 0
    return {each.name: each for each in result.configs}


def test_settings_are_described_with_their_sources(client: RawClient) -> None:
    create(client, "t", cleanup_policy="compact,delete", retention_ms="5")
    described = describe_topic(client, "t")
    assert described["cleanup.policy"].value == "compact,delete"
    assert described["retention.ms"].config_source == 1
    assert [each.name for each in described["retention.ms"].synonyms] == [
        "retention.ms",
        "log.retention.ms",
    ]
    assert described["segment.bytes"].config_source == 5


def test_lists_are_appended_to_and_subtracted_from(client: RawClient) -> None:
    create(client, "t")

    def alter(operation: int, value: str | None, name: str = "cleanup.policy") -> int:
        change = configs.IncrementalAlterConfigsAlterableConfig(
            name=name, config_operation=operation, value=value
        )
        resource = configs.IncrementalAlterConfigsResource(
            resource_type=2, resource_name="t", configs=[change]
        )
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        return client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses[0].error_code

    assert alter(2, "compact") == 0
    assert describe_topic(client, "t")["cleanup.policy"].value == "delete,compact"
    assert alter(3, "delete") == 0
    assert describe_topic(client, "t")["cleanup.policy"].value == "compact"
    assert alter(1, None) == 0
    assert describe_topic(client, "t")["cleanup.policy"].value == "delete"
    assert alter(0, "shred") == ErrorCode.INVALID_CONFIG
    assert alter(0, "1", "no.such") == ErrorCode.INVALID_CONFIG
    assert alter(2, "1", "retention.ms") == ErrorCode.INVALID_CONFIG
    assert alter(7, "1") == ErrorCode.INVALID_REQUEST


def test_some_broker_settings_are_altered_while_it_runs(client: RawClient) -> None:
    rate = "leader.replication.throttled.rate"

    def alter(who: str, operation: int, value: str | None, name: str = rate) -> int:
        change = configs.IncrementalAlterConfigsAlterableConfig(
            name=name, config_operation=operation, value=value
        )
        resource = configs.IncrementalAlterConfigsResource(
            resource_type=4, resource_name=who, configs=[change]
        )
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        return client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses[0].error_code

    def described(who: str, name: str = rate) -> list[tuple[str | None, int, bool]]:
        resource = configs.DescribeConfigsResource(
            resource_type=4, resource_name=who, configuration_keys=[name]
        )
        request = configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = client.ask(ApiKey.DESCRIBE_CONFIGS, request).results
        assert result.error_code == 0
        return [(each.value, each.config_source, each.read_only) for each in result.configs]

    assert described("0") == [(str(2**63 - 1), 5, False)]
    assert described("") == []
    assert alter("", 0, "1000") == 0
    assert described("0") == [("1000", 3, False)]
    assert described("") == [("1000", 3, False)]
    assert alter("0", 0, "2000") == 0
    assert described("0") == [("2000", 2, False)]
    assert alter("0", 1, None) == 0
    assert alter("", 1, None) == 0
    assert described("0") == [(str(2**63 - 1), 5, False)]
    assert described("0", "num.partitions")[0][2]
    assert alter("", 0, "5", "num.partitions") == ErrorCode.INVALID_CONFIG
    assert alter("", 0, "0") == ErrorCode.INVALID_CONFIG
    assert alter("", 0, "fast") == ErrorCode.INVALID_CONFIG
    assert alter("", 0, "5", "no.such") == ErrorCode.INVALID_CONFIG
    assert alter("one", 0, "5") == ErrorCode.INVALID_REQUEST
    assert alter("", 2, "5") == ErrorCode.INVALID_CONFIG


def test_partitions_are_described_page_by_page(client: RawClient) -> None:
    create(client, "a", 3)
    create(client, "b", 3)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        request = metadata.DescribeTopicPartitionsRequest(
            topics=[metadata.TopicRequest(name=name) for name in ("b", "a")],
            response_partition_limit=2,
            cursor=cursor,
        )
        page = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)
        seen += [(each.name, p.partition_index) for each in page.topics for p in each.partitions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [(name, index) for name in ("a", "b") for index in range(3)]


def test_access_rules_are_answered_as_by_a_broker_without_an_authorizer(client: RawClient) -> None:
    for version in (1, 2, 3):
        described = client.ask(ApiKey.DESCRIBE_ACLS, acls.DescribeAclsRequest(), version)
        assert described.error_code == ErrorCode.SECURITY_DISABLED
        assert "no authorizer" in described.error_message
        creations = [acls.AclCreation(principal="User:bob")] * 2
        created = client.ask(
            ApiKey.CREATE_ACLS, acls.CreateAclsRequest(creations=creations), version
        )
        assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        filters = [acls.DeleteAclsFilter()]
        deleted = client.ask(ApiKey.DELETE_ACLS, acls.DeleteAclsRequest(filters=filters), version)
        (result,) = deleted.filter_results
        assert (result.error_code, result.matching_acls) == (ErrorCode.SECURITY_DISABLED, [])


@pytest.mark.parametrize(("resource_type", "name"), [(2, "topic"), (4, "0"), (4, "")])
def test_deleting_a_setting_that_is_not_set_is_no_error(
    client: RawClient, resource_type: int, name: str
) -> None:
    """As in Kafka: kafka-reassign-partitions --verify clears every throttle it knows of."""
    create(client, "topic")
    request = configs.IncrementalAlterConfigsRequest(
        resources=[
            configs.IncrementalAlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    configs.IncrementalAlterConfigsAlterableConfig(name=each, config_operation=1)
                    for each in ("replica.alter.log.dirs.io.max.bytes.per.second", "no.such")
                ],
            )
        ]
    )
    (answer,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    assert answer.error_code == 0


def test_version_0_of_config_resources_asks_for_client_metrics_alone(client: RawClient) -> None:
    create(client, "topic")
    asked = configs.ListConfigResourcesRequest()
    assert client.ask(ApiKey.LIST_CONFIG_RESOURCES, asked, 0).config_resources == []
    listed = client.ask(ApiKey.LIST_CONFIG_RESOURCES, asked, 1).config_resources
    assert {(each.resource_type, each.resource_name) for each in listed} == {(2, "topic"), (4, "0")}

"""The matrix of rights: for each API requests, the rights that they need, and how they are refused without them.

It is written from Kafka's KafkaApis and ControllerApis, and knows nothing of the broker's own table.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages import (
    acls,
    audit_log,
    configs,
    consumer_groups,
    delays,
    fetch,
    groups,
    history,
    lookup,
    metadata,
    offsets,
    produce,
    producers,
    quotas,
    reassignments,
    sasl,
    share,
    topics,
    transactions,
    writing_producers,
)
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.security.acl import Operation, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = frozenset({TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, TRANSACTION_REFUSED})
TOPIC_CONFIG, BROKER_CONFIG, GROUP_CONFIG = 2, 4, 32


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a row asks about."""

    topic: str
    group: str
    transaction: str
    new_topic: str  # does not exist
    topic_id: uuid.UUID
    broker_id: int
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))


class Right(NamedTuple):
    operation: Operation
    type: ResourceType
    name: str = ""  # the field of Names; the cluster has none


@dataclass(frozen=True, kw_only=True)
class Row:
    """One request."""

    key: ApiKey
    what: str = ""
    version: int | None = None
    request: Callable[[Names], Any]
    needs: tuple[Right, ...]
    refused: ErrorCode = ErrorCode.NONE  # without any rights
    lists: str = ""  # the field of Names that is in the response only with the rights
    by_id: bool = False  # ids are no secrets: a topic that does not exist is answered otherwise
    shows_all: bool = False  # with the rights, also what the principal has no rights to
    needs_share_group: bool = False
    needs_share_session: bool = False
    needs_transactional_id: bool = False
    needs_producer: bool = False  # that writes on a connection of its own

    def __str__(self) -> str:
        return f"{self.key.name} {self.what}".strip()


def on(operation: Operation, type_: ResourceType) -> Right:
    name = {TOPIC: "topic", GROUP: "group", TRANSACTION: "transaction", CLUSTER: ""}[type_]
    return Right(operation, type_, name)


def a_batch(*, is_transactional: bool = False) -> bytes:
    records = [Record(key=b"k", value=b"v", timestamp=1_700_000_000_000)]
    if not is_transactional:
        return build_batch(records)
    return build_batch(
        records, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )


def produce_request(
    name: str = "", topic_id: uuid.UUID | None = None, transaction: str | None = None
) -> produce.ProduceRequest:
    batch = a_batch(is_transactional=transaction is not None)
    data = produce.TopicProduceData(
        name=name, partition_data=[produce.PartitionProduceData(index=0, records=batch)]
    )
    if topic_id is not None:
        data.topic_id = topic_id
    return produce.ProduceRequest(
        acks=-1, timeout_ms=10_000, transactional_id=transaction, topic_data=[data]
    )


def fetch_request(name: str = "", topic_id: uuid.UUID | None = None) -> fetch.FetchRequest:
    topic = fetch.FetchTopic(
        topic=name,
        partitions=[fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)],
    )
    if topic_id is not None:
        topic.topic_id = topic_id
    return fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1_000, session_epoch=-1, topics=[topic]
    )


def commit_request(
    group: str, *, name: str = "", topic_id: uuid.UUID | None = None
) -> offsets.OffsetCommitRequest:
    topic = offsets.OffsetCommitRequestTopic(
        name=name,
        partitions=[offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
    )
    if topic_id is not None:
        topic.topic_id = topic_id
    return offsets.OffsetCommitRequest(group_id=group, topics=[topic])


def create_request(name: str) -> topics.CreateTopicsRequest:
    topic = topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def join_request(names: Names) -> groups.JoinGroupRequest:
    return groups.JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def share_fetch(names: Names) -> share.ShareFetchRequest:
    return share.ShareFetchRequest(
        group_id=names.group,
        member_id=names.member_id,
        share_session_epoch=0,
        max_wait_ms=0,
        max_bytes=1_000,
        max_records=1,
        batch_size=1,
        topics=[
            share.ShareFetchTopic(
                topic_id=names.topic_id, partitions=[share.ShareFetchPartition(partition_index=0)]
            )
        ],
    )


def share_acknowledge(names: Names) -> share.ShareAcknowledgeRequest:
    batch = share.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    return share.ShareAcknowledgeRequest(
        group_id=names.group,
        member_id=names.member_id,
        share_session_epoch=1,
        topics=[
            share.AcknowledgeTopic(
                topic_id=names.topic_id,
                partitions=[
                    share.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
                ],
            )
        ],
    )


def incremental_alter(kind: int, name: str, setting: str, value: str) -> Any:
    change = configs.IncrementalAlterConfigsAlterableConfig(name=setting, value=value)
    resource = configs.IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[change]
    )
    return configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def alter(kind: int, name: str) -> Any:
    resource = configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    return configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def describe_configs(kind: int, name: str) -> Any:
    resource = configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return configs.DescribeConfigsRequest(resources=[resource])


ANY_CODE = 1
ANY_ACL = {
    "resource_type_filter": ANY_CODE,
    "resource_name_filter": None,
    "pattern_type_filter": ANY_CODE,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY_CODE,
    "permission_type": ANY_CODE,
}

RECORD_ROWS = (
    Row(
        key=ApiKey.PRODUCE,
        what="by name",
        version=12,
        request=lambda names: produce_request(names.topic),
        needs=(on(Operation.WRITE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.PRODUCE,
        what="by id",
        request=lambda names: produce_request(topic_id=names.topic_id),
        needs=(on(Operation.WRITE, TOPIC),),
        refused=TOPIC_REFUSED,
        by_id=True,
    ),
    Row(
        key=ApiKey.PRODUCE,
        what="with a transactional id",
        version=12,
        request=lambda names: produce_request(names.topic, transaction=names.transaction),
        needs=(on(Operation.WRITE, TRANSACTION), on(Operation.WRITE, TOPIC)),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.FETCH,
        what="by name",
        version=12,
        request=lambda names: fetch_request(names.topic),
        needs=(on(Operation.READ, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.FETCH,
        what="by id",
        version=13,
        request=lambda names: fetch_request(topic_id=names.topic_id),
        needs=(on(Operation.READ, TOPIC),),
        refused=TOPIC_REFUSED,
        by_id=True,
    ),
    Row(
        key=ApiKey.LOOKUP,
        request=lambda names: lookup.LookupRequest(topic=names.topic, sought=b"k"),
        needs=(on(Operation.READ, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.AUDIT_LOG,
        request=lambda names: audit_log.AuditLogRequest(limit=1),
        needs=(on(Operation.ALTER, CLUSTER),),
        refused=CLUSTER_REFUSED,
        shows_all=True,
    ),
    Row(
        key=ApiKey.HISTORY,
        what="of the broker",
        request=lambda names: history.HistoryRequest(step_ms=10_000, count=1),
        needs=(on(Operation.DESCRIBE, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.HISTORY,
        what="of a topic",
        request=lambda names: history.HistoryRequest(
            subject=1, name=names.topic, step_ms=10_000, count=1
        ),
        needs=(on(Operation.DESCRIBE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.HISTORY,
        what="of a group",
        request=lambda names: history.HistoryRequest(
            subject=2, name=names.group, step_ms=10_000, count=1
        ),
        needs=(on(Operation.DESCRIBE, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.WRITING_PRODUCERS,
        request=lambda names: writing_producers.WritingProducersRequest(),
        needs=(on(Operation.READ, TOPIC),),
        lists="topic",
        needs_producer=True,
    ),
    Row(
        key=ApiKey.SCHEDULE,
        request=lambda names: delays.ScheduleRequest(topic=names.topic),
        needs=(on(Operation.READ, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.SCHEDULE,
        what="cancel",
        request=lambda names: delays.ScheduleRequest(topic=names.topic, action=1),
        needs=(on(Operation.DELETE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.LIST_OFFSETS,
        request=lambda names: offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                offsets.ListOffsetsTopic(
                    name=names.topic,
                    partitions=[offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                )
            ],
        ),
        needs=(on(Operation.DESCRIBE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    *(
        Row(
            key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
            what=what,
            request=lambda names: offsets.OffsetForLeaderEpochRequest(
                topics=[
                    offsets.OffsetForLeaderTopic(
                        topic=names.topic,
                        partitions=[offsets.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
                    )
                ],
            ),
            needs=(need,),
            refused=TOPIC_REFUSED,
        )
        for what, need in (
            ("", on(Operation.DESCRIBE, TOPIC)),
            ("of a broker", on(Operation.CLUSTER_ACTION, CLUSTER)),
        )
    ),
    Row(
        key=ApiKey.DELETE_RECORDS,
        request=lambda names: topics.DeleteRecordsRequest(
            topics=[
                topics.DeleteRecordsTopic(
                    name=names.topic,
                    partitions=[topics.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=10_000,
        ),
        needs=(on(Operation.DELETE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    *(
        Row(
            key=ApiKey.INIT_PRODUCER_ID,
            what=what,
            request=lambda names: producers.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1_000
            ),
            needs=(need,),
            refused=CLUSTER_REFUSED,
        )
        for what, need in (
            ("of the cluster", on(Operation.IDEMPOTENT_WRITE, CLUSTER)),
            ("with any topic", on(Operation.WRITE, TOPIC)),
        )
    ),
    Row(
        key=ApiKey.INIT_PRODUCER_ID,
        what="with a transactional id",
        request=lambda names: producers.InitProducerIdRequest(
            transactional_id=names.transaction, transaction_timeout_ms=1_000
        ),
        needs=(on(Operation.WRITE, TRANSACTION),),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.INIT_PRODUCER_ID,
        what="for two-phase commit",
        request=lambda names: producers.InitProducerIdRequest(
            transactional_id=names.transaction, transaction_timeout_ms=1_000, enable2_pc=True
        ),
        needs=(on(Operation.WRITE, TRANSACTION), on(Operation.TWO_PHASE_COMMIT, TRANSACTION)),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_PRODUCERS,
        request=lambda names: producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name=names.topic, partition_indexes=[0])]
        ),
        needs=(on(Operation.READ, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
)

TOPIC_ROWS = (
    Row(
        key=ApiKey.METADATA,
        what="by name",
        request=lambda names: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=names.topic)],
            allow_auto_topic_creation=False,
        ),
        needs=(on(Operation.DESCRIBE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.METADATA,
        what="by id",
        request=lambda names: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=None, topic_id=names.topic_id)],
            allow_auto_topic_creation=False,
        ),
        needs=(on(Operation.DESCRIBE, TOPIC),),
        refused=TOPIC_REFUSED,
        lists="topic",
        by_id=True,
    ),
    *(
        Row(
            key=ApiKey.METADATA,
            what=f"of all topics in version {version}",
            version=version,
            request=lambda names, version=version: metadata.MetadataRequest(
                topics=None if version else [], allow_auto_topic_creation=False
            ),
            needs=(on(Operation.DESCRIBE, TOPIC),),
            lists="topic",
        )
        for version in (0, 12)
    ),
    *(
        Row(
            key=ApiKey.METADATA,
            what=f"that creates a topic by {need.type.name}",
            request=lambda names: metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=names.new_topic)],
                allow_auto_topic_creation=True,
            ),
            needs=(Right(Operation.DESCRIBE, TOPIC, "new_topic"), need),
            refused=TOPIC_REFUSED,
        )
        for need in (
            Right(Operation.CREATE, TOPIC, "new_topic"),
            on(Operation.CREATE, CLUSTER),
        )
    ),
    Row(
        key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        what="by name",
        request=lambda names: metadata.DescribeTopicPartitionsRequest(
            topics=[metadata.TopicRequest(name=names.topic)]
        ),
        needs=(on(Operation.DESCRIBE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        what="of all topics",
        request=lambda names: metadata.DescribeTopicPartitionsRequest(),
        needs=(on(Operation.DESCRIBE, TOPIC),),
        lists="topic",
    ),
    *(
        Row(
            key=ApiKey.CREATE_TOPICS,
            what=f"by {need.type.name}",
            request=lambda names: create_request(names.new_topic),
            needs=(need,),
            refused=TOPIC_REFUSED,
        )
        for need in (
            Right(Operation.CREATE, TOPIC, "new_topic"),
            on(Operation.CREATE, CLUSTER),
        )
    ),
    Row(
        key=ApiKey.DELETE_TOPICS,
        what="by name in version 5",
        version=5,
        request=lambda names: topics.DeleteTopicsRequest(
            topic_names=[names.topic], timeout_ms=10_000
        ),
        needs=(on(Operation.DELETE, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    *(
        Row(
            key=ApiKey.DELETE_TOPICS,
            what=f"by name and {need.type.name}",
            request=lambda names: topics.DeleteTopicsRequest(
                topics=[topics.DeleteTopicState(name=names.topic)], timeout_ms=10_000
            ),
            needs=(need,),
            refused=TOPIC_REFUSED,
        )
        for need in (on(Operation.DELETE, TOPIC), on(Operation.DELETE, CLUSTER))
    ),
    Row(
        key=ApiKey.DELETE_TOPICS,
        what="by id",
        request=lambda names: topics.DeleteTopicsRequest(
            topics=[topics.DeleteTopicState(name=None, topic_id=names.topic_id)], timeout_ms=10_000
        ),
        needs=(on(Operation.DELETE, TOPIC),),
        refused=TOPIC_REFUSED,
        lists="topic",
        by_id=True,
    ),
    Row(
        key=ApiKey.CREATE_PARTITIONS,
        request=lambda names: topics.CreatePartitionsRequest(
            topics=[topics.CreatePartitionsTopic(name=names.topic, count=2, assignments=None)],
            timeout_ms=10_000,
        ),
        needs=(on(Operation.ALTER, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
)

GROUP_ROWS = (
    *(
        Row(
            key=ApiKey.FIND_COORDINATOR,
            what=f"in version {version}",
            version=version,
            request=lambda names, version=version: groups.FindCoordinatorRequest(
                key=names.group if version < 4 else "",
                key_type=0,
                coordinator_keys=[names.group] if version >= 4 else [],
            ),
            needs=(on(Operation.DESCRIBE, GROUP),),
            refused=GROUP_REFUSED,
        )
        for version in (3, 6)
    ),
    Row(
        key=ApiKey.FIND_COORDINATOR,
        what="of a transaction",
        request=lambda names: groups.FindCoordinatorRequest(
            key_type=1, coordinator_keys=[names.transaction]
        ),
        needs=(on(Operation.DESCRIBE, TRANSACTION),),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.JOIN_GROUP,
        request=join_request,
        needs=(on(Operation.READ, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.SYNC_GROUP,
        request=lambda names: groups.SyncGroupRequest(
            group_id=names.group,
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
        ),
        needs=(on(Operation.READ, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.HEARTBEAT,
        request=lambda names: groups.HeartbeatRequest(
            group_id=names.group, generation_id=1, member_id="m"
        ),
        needs=(on(Operation.READ, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.LEAVE_GROUP,
        request=lambda names: groups.LeaveGroupRequest(
            group_id=names.group, members=[groups.MemberIdentity(member_id="m")]
        ),
        needs=(on(Operation.READ, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
        request=lambda names: consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=f"{names.group}-of-members",
            member_id=names.member_id,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[names.topic],
            topic_partitions=[],
        ),
        needs=(Right(Operation.READ, GROUP, "group*"), on(Operation.DESCRIBE, TOPIC)),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_GROUPS,
        request=lambda names: groups.DescribeGroupsRequest(groups=[names.group]),
        needs=(on(Operation.DESCRIBE, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.CONSUMER_GROUP_DESCRIBE,
        request=lambda names: consumer_groups.ConsumerGroupDescribeRequest(group_ids=[names.group]),
        needs=(on(Operation.DESCRIBE, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.LIST_GROUPS,
        request=lambda names: groups.ListGroupsRequest(),
        needs=(on(Operation.DESCRIBE, GROUP),),
        lists="group",
    ),
    Row(
        key=ApiKey.LIST_GROUPS,
        what="of the cluster",
        request=lambda names: groups.ListGroupsRequest(),
        needs=(on(Operation.DESCRIBE, CLUSTER),),
        lists="group",
        shows_all=True,
    ),
    Row(
        key=ApiKey.DELETE_GROUPS,
        request=lambda names: groups.DeleteGroupsRequest(groups_names=[names.group]),
        needs=(on(Operation.DELETE, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.OFFSET_COMMIT,
        what="by name",
        version=9,
        request=lambda names: commit_request(names.group, name=names.topic),
        needs=(on(Operation.READ, GROUP), on(Operation.READ, TOPIC)),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.OFFSET_COMMIT,
        what="by id",
        version=10,
        request=lambda names: commit_request(names.group, topic_id=names.topic_id),
        needs=(on(Operation.READ, GROUP), on(Operation.READ, TOPIC)),
        refused=GROUP_REFUSED,
        by_id=True,
    ),
    *(
        Row(
            key=ApiKey.OFFSET_FETCH,
            what=f"in version {version}",
            version=version,
            request=lambda names: offsets.OffsetFetchRequest(
                group_id=names.group,
                topics=[offsets.OffsetFetchRequestTopic(name=names.topic, partition_indexes=[0])],
            ),
            needs=(on(Operation.DESCRIBE, GROUP), on(Operation.DESCRIBE, TOPIC)),
            refused=GROUP_REFUSED,
        )
        for version in (1, 7)
    ),
    Row(
        key=ApiKey.OFFSET_FETCH,
        what="of groups",
        version=9,
        request=lambda names: offsets.OffsetFetchRequest(
            groups=[
                offsets.OffsetFetchRequestGroup(
                    group_id=names.group,
                    topics=[
                        offsets.OffsetFetchRequestTopic(name=names.topic, partition_indexes=[0])
                    ],
                )
            ],
        ),
        needs=(on(Operation.DESCRIBE, GROUP), on(Operation.DESCRIBE, TOPIC)),
        refused=GROUP_REFUSED,
    ),
    *(
        Row(
            key=ApiKey.OFFSET_FETCH,
            what=f"of all topics in version {version}",
            version=version,
            request=lambda names: offsets.OffsetFetchRequest(
                group_id=names.group,
                topics=None,
                groups=[offsets.OffsetFetchRequestGroup(group_id=names.group, topics=None)],
            ),
            needs=(on(Operation.DESCRIBE, GROUP), on(Operation.DESCRIBE, TOPIC)),
            refused=GROUP_REFUSED,
            lists="topic",
        )
        for version in (7, 9)
    ),
    Row(
        key=ApiKey.OFFSET_DELETE,
        request=lambda names: offsets.OffsetDeleteRequest(
            group_id=names.group,
            topics=[
                offsets.OffsetDeleteRequestTopic(
                    name=names.topic,
                    partitions=[offsets.OffsetDeleteRequestPartition(partition_index=0)],
                )
            ],
        ),
        needs=(on(Operation.DELETE, GROUP), on(Operation.READ, TOPIC)),
        refused=GROUP_REFUSED,
    ),
)

SHARE_ROWS = (
    Row(
        key=ApiKey.SHARE_GROUP_HEARTBEAT,
        request=lambda names: share.ShareGroupHeartbeatRequest(
            group_id=f"{names.group}-of-members",
            member_id=names.member_id,
            subscribed_topic_names=[names.topic],
        ),
        needs=(Right(Operation.READ, GROUP, "group*"), on(Operation.DESCRIBE, TOPIC)),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.SHARE_GROUP_DESCRIBE,
        request=lambda names: share.ShareGroupDescribeRequest(group_ids=[names.group]),
        needs=(on(Operation.DESCRIBE, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.SHARE_FETCH,
        request=share_fetch,
        needs=(on(Operation.READ, GROUP), on(Operation.READ, TOPIC)),
        refused=GROUP_REFUSED,
        by_id=True,
    ),
    Row(
        key=ApiKey.SHARE_ACKNOWLEDGE,
        request=share_acknowledge,
        needs=(on(Operation.READ, GROUP), on(Operation.READ, TOPIC)),
        refused=GROUP_REFUSED,
        by_id=True,
        needs_share_session=True,
    ),
    Row(
        key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        request=lambda names: share.DescribeShareGroupOffsetsRequest(
            groups=[
                share.DescribeShareGroupOffsetsRequestGroup(
                    group_id=names.group,
                    topics=[
                        share.DescribeShareGroupOffsetsRequestTopic(
                            topic_name=names.topic, partitions=[0]
                        )
                    ],
                )
            ]
        ),
        needs=(on(Operation.DESCRIBE, GROUP), on(Operation.DESCRIBE, TOPIC)),
        refused=GROUP_REFUSED,
        needs_share_group=True,
    ),
    Row(
        key=ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        request=lambda names: share.AlterShareGroupOffsetsRequest(
            group_id=names.group,
            topics=[
                share.AlterShareGroupOffsetsRequestTopic(
                    topic_name=names.topic,
                    partitions=[
                        share.AlterShareGroupOffsetsRequestPartition(
                            partition_index=0, start_offset=0
                        )
                    ],
                )
            ],
        ),
        needs=(on(Operation.READ, GROUP), on(Operation.READ, TOPIC)),
        refused=GROUP_REFUSED,
        needs_share_group=True,
    ),
    Row(
        key=ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        request=lambda names: share.DeleteShareGroupOffsetsRequest(
            group_id=names.group,
            topics=[share.DeleteShareGroupOffsetsRequestTopic(topic_name=names.topic)],
        ),
        needs=(on(Operation.DELETE, GROUP), on(Operation.READ, TOPIC)),
        refused=GROUP_REFUSED,
        needs_share_group=True,
    ),
)

CLUSTER_ROWS = (
    Row(
        key=ApiKey.API_VERSIONS,
        request=lambda names: metadata.ApiVersionsRequest(
            client_software_name="test", client_software_version="1"
        ),
        needs=(),
    ),
    Row(
        key=ApiKey.SASL_HANDSHAKE,
        request=lambda names: sasl.SaslHandshakeRequest(mechanism="PLAIN"),
        needs=(),
        refused=ErrorCode.ILLEGAL_SASL_STATE,  # on a listener without SASL
    ),
    Row(
        key=ApiKey.SASL_AUTHENTICATE,
        request=lambda names: sasl.SaslAuthenticateRequest(auth_bytes=b"a token"),
        needs=(),
        refused=ErrorCode.ILLEGAL_SASL_STATE,
    ),
    Row(
        key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        request=lambda names: sasl.DescribeUserScramCredentialsRequest(
            users=[sasl.UserName(name="a user")]
        ),
        needs=(on(Operation.DESCRIBE, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        what="of all users",
        request=lambda names: sasl.DescribeUserScramCredentialsRequest(users=None),
        needs=(on(Operation.DESCRIBE, CLUSTER),),
        refused=CLUSTER_REFUSED,
        shows_all=True,
    ),
    Row(
        key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        request=lambda names: sasl.AlterUserScramCredentialsRequest(
            deletions=[sasl.ScramCredentialDeletion(name="a user", mechanism=1)],
            upsertions=[
                sasl.ScramCredentialUpsertion(
                    name="another user",
                    mechanism=2,
                    iterations=4_096,
                    salt=b"salt",
                    salted_password=b"salted",
                )
            ],
        ),
        needs=(on(Operation.ALTER, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_CLUSTER,
        request=lambda names: metadata.DescribeClusterRequest(),
        needs=(),
    ),
    Row(
        key=ApiKey.DESCRIBE_LOG_DIRS,
        request=lambda names: configs.DescribeLogDirsRequest(topics=None),
        needs=(on(Operation.DESCRIBE, CLUSTER),),
        refused=CLUSTER_REFUSED,
        lists="topic",
        shows_all=True,
    ),
    Row(
        key=ApiKey.ELECT_LEADERS,
        request=lambda names: reassignments.ElectLeadersRequest(
            topic_partitions=[reassignments.TopicPartitions(topic=names.topic, partitions=[0])],
            timeout_ms=10_000,
        ),
        needs=(on(Operation.ALTER, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        request=lambda names: reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                reassignments.ReassignableTopic(
                    name=names.topic,
                    partitions=[reassignments.ReassignablePartition(partition_index=0)],
                )
            ]
        ),
        needs=(on(Operation.ALTER, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
        request=lambda names: reassignments.ListPartitionReassignmentsRequest(topics=None),
        needs=(on(Operation.DESCRIBE, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_ACLS,
        request=lambda names: acls.DescribeAclsRequest(**ANY_ACL),
        needs=(on(Operation.DESCRIBE, CLUSTER),),
        refused=CLUSTER_REFUSED,
        shows_all=True,
    ),
    Row(
        key=ApiKey.CREATE_ACLS,
        request=lambda names: acls.CreateAclsRequest(
            creations=[
                acls.AclCreation(
                    resource_type=TOPIC,
                    resource_name=names.topic,
                    principal="User:other",
                    host="*",
                    operation=Operation.READ,
                    permission_type=3,
                )
            ]
        ),
        needs=(on(Operation.ALTER, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.DELETE_ACLS,
        request=lambda names: acls.DeleteAclsRequest(
            filters=[acls.DeleteAclsFilter(**{**ANY_ACL, "principal_filter": "User:other"})]
        ),
        needs=(on(Operation.ALTER, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
        request=lambda names: quotas.DescribeClientQuotasRequest(),
        needs=(on(Operation.DESCRIBE_CONFIGS, CLUSTER),),
        refused=CLUSTER_REFUSED,
        shows_all=True,
    ),
    Row(
        key=ApiKey.ALTER_CLIENT_QUOTAS,
        request=lambda names: quotas.AlterClientQuotasRequest(
            entries=[
                quotas.QuotaAlteration(
                    entity=[quotas.QuotaEntityData(entity_type="user", entity_name="other")],
                    ops=[quotas.QuotaOperation(key="request_percentage", value=200.0)],
                )
            ]
        ),
        needs=(on(Operation.ALTER_CONFIGS, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.LIST_CONFIG_RESOURCES,
        request=lambda names: configs.ListConfigResourcesRequest(),
        needs=(on(Operation.DESCRIBE_CONFIGS, CLUSTER),),
        refused=CLUSTER_REFUSED,
        lists="topic",
        shows_all=True,
    ),
    Row(
        key=ApiKey.DESCRIBE_CONFIGS,
        what="of a topic",
        request=lambda names: describe_configs(TOPIC_CONFIG, names.topic),
        needs=(on(Operation.DESCRIBE_CONFIGS, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_CONFIGS,
        what="of a group",
        request=lambda names: describe_configs(GROUP_CONFIG, names.group),
        needs=(on(Operation.DESCRIBE_CONFIGS, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.DESCRIBE_CONFIGS,
        what="of a broker",
        request=lambda names: describe_configs(BROKER_CONFIG, str(names.broker_id)),
        needs=(on(Operation.DESCRIBE_CONFIGS, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.ALTER_CONFIGS,
        what="of a topic",
        request=lambda names: alter(TOPIC_CONFIG, names.topic),
        needs=(on(Operation.ALTER_CONFIGS, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.ALTER_CONFIGS,
        what="of a broker",
        request=lambda names: alter(BROKER_CONFIG, str(names.broker_id)),
        needs=(on(Operation.ALTER_CONFIGS, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        what="of a topic",
        request=lambda names: incremental_alter(TOPIC_CONFIG, names.topic, "retention.ms", "1000"),
        needs=(on(Operation.ALTER_CONFIGS, TOPIC),),
        refused=TOPIC_REFUSED,
    ),
    Row(
        key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        what="of a group",
        request=lambda names: incremental_alter(
            GROUP_CONFIG, names.group, "share.record.lock.duration.ms", "30000"
        ),
        needs=(on(Operation.ALTER_CONFIGS, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        what="the filter of a group",
        request=lambda names: incremental_alter(
            GROUP_CONFIG, names.group, "zhumq.filter", "a || b"
        ),
        needs=(on(Operation.ALTER_CONFIGS, GROUP),),
        refused=GROUP_REFUSED,
    ),
    Row(
        key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        what="of a broker",
        request=lambda names: incremental_alter(
            BROKER_CONFIG, str(names.broker_id), "log.cleaner.threads", "1"
        ),
        needs=(on(Operation.ALTER_CONFIGS, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
)


def add_partitions(names: Names) -> transactions.AddPartitionsToTxnRequest:
    return transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=names.transaction,
        v3_and_below_producer_id=1,
        v3_and_below_topics=[
            transactions.AddPartitionsToTxnTopic(name=names.topic, partitions=[0])
        ],
    )


def add_partitions_as_broker(names: Names) -> transactions.AddPartitionsToTxnRequest:
    return transactions.AddPartitionsToTxnRequest(
        transactions=[
            transactions.AddPartitionsToTxnTransaction(
                transactional_id=names.transaction,
                producer_id=1,
                verify_only=True,
                topics=[transactions.AddPartitionsToTxnTopic(name=names.topic, partitions=[0])],
            )
        ]
    )


def write_markers(names: Names) -> transactions.WriteTxnMarkersRequest:
    return transactions.WriteTxnMarkersRequest(
        markers=[
            transactions.WritableTxnMarker(
                producer_id=77,
                topics=[
                    transactions.WritableTxnMarkerTopic(name=names.topic, partition_indexes=[0])
                ],
            )
        ]
    )


TRANSACTION_ROWS = (
    Row(
        key=ApiKey.ADD_PARTITIONS_TO_TXN,
        version=3,
        request=add_partitions,
        needs=(on(Operation.WRITE, TRANSACTION), on(Operation.WRITE, TOPIC)),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.ADD_PARTITIONS_TO_TXN,
        what="of a broker",
        version=5,
        request=add_partitions_as_broker,
        needs=(on(Operation.CLUSTER_ACTION, CLUSTER),),
        refused=CLUSTER_REFUSED,
    ),
    Row(
        key=ApiKey.ADD_OFFSETS_TO_TXN,
        request=lambda names: transactions.AddOffsetsToTxnRequest(
            transactional_id=names.transaction, producer_id=1, group_id=names.group
        ),
        needs=(on(Operation.WRITE, TRANSACTION), on(Operation.READ, GROUP)),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.TXN_OFFSET_COMMIT,
        request=lambda names: transactions.TxnOffsetCommitRequest(
            transactional_id=names.transaction,
            group_id=names.group,
            producer_id=1,
            topics=[
                transactions.TxnOffsetCommitRequestTopic(
                    name=names.topic, partitions=[transactions.TxnOffsetCommitRequestPartition()]
                )
            ],
        ),
        needs=(
            on(Operation.WRITE, TRANSACTION),
            on(Operation.READ, GROUP),
            on(Operation.READ, TOPIC),
        ),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.END_TXN,
        request=lambda names: transactions.EndTxnRequest(
            transactional_id=names.transaction, producer_id=1, committed=True
        ),
        needs=(on(Operation.WRITE, TRANSACTION),),
        refused=TRANSACTION_REFUSED,
    ),
    *(
        Row(
            key=ApiKey.WRITE_TXN_MARKERS,
            what=f"by {need.operation.name}",
            request=write_markers,
            needs=(need,),
            refused=CLUSTER_REFUSED,
        )
        for need in (on(Operation.CLUSTER_ACTION, CLUSTER), on(Operation.ALTER, CLUSTER))
    ),
    Row(
        key=ApiKey.DESCRIBE_TRANSACTIONS,
        request=lambda names: transactions.DescribeTransactionsRequest(
            transactional_ids=[names.transaction]
        ),
        needs=(on(Operation.DESCRIBE, TRANSACTION),),
        refused=TRANSACTION_REFUSED,
    ),
    Row(
        key=ApiKey.LIST_TRANSACTIONS,
        request=lambda names: transactions.ListTransactionsRequest(),
        needs=(on(Operation.DESCRIBE, TRANSACTION),),
        lists="transaction",
        needs_transactional_id=True,
    ),
)

ROWS = (
    *RECORD_ROWS,
    *TOPIC_ROWS,
    *GROUP_ROWS,
    *SHARE_ROWS,
    *CLUSTER_ROWS,
    *TRANSACTION_ROWS,
)

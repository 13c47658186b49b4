"""Topic names and ids in offset requests: converts any version to names for the shard, and back."""

import uuid
from typing import NamedTuple, Protocol

from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.requests import refused_topic, refused_transactional_topic
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from zhumq.protocol.messages.transactions import (
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE_VERSION = 10  # KIP-848, of both OffsetCommit and OffsetFetch
GROUPS_SINCE_VERSION = 8  # KIP-709: OffsetFetch for several groups
TOP_LEVEL_ERROR_SINCE_VERSION = 2  # of OffsetFetch


class TopicNames(Protocol):
    """The topics that exist."""

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The id of the topic of this name; None if there is none."""

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic of this id; None if there is none."""

    def shape(self, name: str) -> TopicShape | None:
        """Id and partition count of the topic of this name; None if there is none."""


class NamedCommit(NamedTuple):
    """A commit by topic names, and the error responses of topics that do not exist."""

    message: OffsetCommitRequest
    refused: list[OffsetCommitResponseTopic]


def name_commit(message: OffsetCommitRequest, version: int, topics: TopicNames) -> NamedCommit:
    """Resolve the topics of a commit to names, and refuse the topics that do not exist."""
    by_id = version >= TOPIC_IDS_SINCE_VERSION
    named = []
    refused = []
    for topic in message.topics:
        name = topics.topic_name(topic.topic_id) if by_id else topic.name
        if name is None:
            refused.append(refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not by_id and topics.topic_id(name) is None:
            refused.append(refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            named.append(
                OffsetCommitRequestTopic(
                    name=name, topic_id=topic.topic_id, partitions=topic.partitions
                )
            )
    return NamedCommit(
        OffsetCommitRequest(
            group_id=message.group_id,
            generation_id_or_member_epoch=message.generation_id_or_member_epoch,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            retention_time_ms=message.retention_time_ms,
            topics=named,
        ),
        refused,
    )


class SplitCommit(NamedTuple):
    """The partitions of a commit in a transaction that exist, and the error responses of the others."""

    existing: list[TxnOffsetCommitRequestTopic]
    refused: list[TxnOffsetCommitResponseTopic]


def split_commit(asked: list[TxnOffsetCommitRequestTopic], topics: TopicNames) -> SplitCommit:
    """Refuse the topics and partitions that do not exist."""
    split = SplitCommit([], [])
    for topic in asked:
        shape = topics.shape(topic.name)
        known = range(0 if shape is None else shape.partition_count)
        existing, missing = (
            TxnOffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    each for each in topic.partitions if (each.partition_index in known) is is_known
                ],
            )
            for is_known in (True, False)
        )
        if existing.partitions:
            split.existing.append(existing)
        if missing.partitions:
            split.refused.append(
                refused_transactional_topic(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
    return split


def name_fetch(
    message: OffsetFetchRequest, version: int, topics: TopicNames
) -> list[OffsetFetchRequestGroup]:
    """A fetch request of any version, group by group. A topic without a name does not exist."""
    if version < GROUPS_SINCE_VERSION:
        return [OffsetFetchRequestGroup(group_id=message.group_id, topics=message.topics)]
    if version < TOPIC_IDS_SINCE_VERSION:
        return message.groups
    return [
        OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=None
            if group.topics is None
            else [
                OffsetFetchRequestTopic(
                    name=topics.topic_name(topic.topic_id) or "",
                    topic_id=topic.topic_id,
                    partition_indexes=topic.partition_indexes,
                )
                for topic in group.topics
            ],
        )
        for group in message.groups
    ]


def unname_fetch(
    message: OffsetFetchRequest,
    answered: list[OffsetFetchResponseGroup],
    version: int,
    topics: TopicNames,
) -> OffsetFetchResponse:
    """The shards' responses in the format of the request's version."""
    if version < GROUPS_SINCE_VERSION:
        return _single_group_response(message, answered[0], version)
    if version >= TOPIC_IDS_SINCE_VERSION:
        for group in answered:
            group.topics = [
                with_id for topic in group.topics if (with_id := _with_id(topic, topics))
            ]
    return OffsetFetchResponse(groups=answered)


def _with_id(
    topic: OffsetFetchResponseTopic, topics: TopicNames
) -> OffsetFetchResponseTopic | None:
    if topic.topic_id != ZERO_UUID or not topic.name:
        if topic.name:
            return topic
        return OffsetFetchResponseTopic(
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=-1,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                )
                for each in topic.partitions
            ],
        )
    # All topics were requested: one that was deleted meanwhile has no id and is left out.
    topic_id = topics.topic_id(topic.name)
    if topic_id is None:
        return None
    topic.topic_id = topic_id
    return topic


def _single_group_response(
    message: OffsetFetchRequest, group: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    response = OffsetFetchResponse(error_code=group.error_code)
    if group.error_code == ErrorCode.NONE or version >= TOP_LEVEL_ERROR_SINCE_VERSION:
        response.topics = group.topics
        return response
    # Version 1 has error codes for partitions only.
    response.topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=each, committed_offset=-1, error_code=group.error_code
                )
                for each in topic.partition_indexes
            ],
        )
        for topic in message.topics or []
    ]
    return response

"""Requests and responses of a group shard, and refusals."""

from dataclasses import dataclass
from typing import Final, assert_never

from zhumq.groups.consumer_topics import MayDescribe, describes_all
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from zhumq.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from zhumq.protocol.messages.share import (
    ShareGroupDescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from zhumq.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# Producers of older versions of TxnOffsetCommit fail at COORDINATOR_LOAD_IN_PROGRESS.
LOADING_IN_TRANSACTIONS_SINCE_VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeletedRequest:
    """Topics were deleted: delete their committed offsets."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeletedResponse:
    """Number of deleted committed offsets."""

    offsets_deleted: int = 0
    error_code: int = ErrorCode.NONE


GroupMessage = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | ConsumerGroupHeartbeatRequest
    | ConsumerGroupDescribeRequest
    | ShareGroupHeartbeatRequest
    | ShareGroupDescribeRequest
    | OffsetCommitRequest
    | TxnOffsetCommitRequest
    | OffsetFetchRequest
    | OffsetDeleteRequest
    | DescribeGroupsRequest
    | ListGroupsRequest
    | DeleteGroupsRequest
    | TopicsDeletedRequest
)
GroupResponse = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | ConsumerGroupHeartbeatResponse
    | ConsumerGroupDescribeResponse
    | ShareGroupHeartbeatResponse
    | ShareGroupDescribeResponse
    | OffsetCommitResponse
    | TxnOffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | DescribeGroupsResponse
    | ListGroupsResponse
    | DeleteGroupsResponse
    | TopicsDeletedResponse
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """A message with the sender's data from its connection."""

    message: GroupMessage
    version: int
    client_id: str = ""
    client_host: str = ""
    # Whether the sender may know of a topic: regular expressions find no other topics.
    may_describe: MayDescribe = describes_all


def refusal(request: GroupRequest, code: ErrorCode) -> GroupResponse:
    """The response with `code` in the field that this kind of response has for it."""
    message = request.message
    match message:
        case JoinGroupRequest():
            return JoinGroupResponse(
                error_code=code,
                member_id=message.member_id,
                protocol_name=no_protocol_name(request.version),
            )
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            # While the coordinator loads, a member must not look for another one: it only has to wait.
            loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=code)
        case ConsumerGroupDescribeRequest():
            return ConsumerGroupDescribeResponse(
                groups=[
                    ConsumerGroupDescribedGroup(error_code=code, group_id=group_id)
                    for group_id in message.group_ids
                ]
            )
        case ShareGroupHeartbeatRequest():
            return ShareGroupHeartbeatResponse(error_code=code)
        case ShareGroupDescribeRequest():
            return ShareGroupDescribeResponse(
                groups=[
                    ShareGroupDescribedGroup(error_code=code, group_id=group_id)
                    for group_id in message.group_ids
                ]
            )
        case (
            OffsetCommitRequest()
            | TxnOffsetCommitRequest()
            | OffsetFetchRequest()
            | OffsetDeleteRequest()
        ):
            return _offset_refusal(message, code, request.version)
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(
                groups=[
                    DescribedGroup(error_code=code, group_id=group_id)
                    for group_id in message.groups
                ]
            )
        case ListGroupsRequest():
            return ListGroupsResponse(error_code=code)
        case DeleteGroupsRequest():
            return DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=code)
                    for group_id in message.groups_names
                ]
            )
        case TopicsDeletedRequest():
            return TopicsDeletedResponse(error_code=code)
        case _:
            assert_never(message)


def _offset_refusal(
    message: OffsetCommitRequest
    | TxnOffsetCommitRequest
    | OffsetFetchRequest
    | OffsetDeleteRequest,
    code: ErrorCode,
    version: int,
) -> GroupResponse:
    match message:
        case OffsetCommitRequest():
            return refused_commit(message, code)
        case TxnOffsetCommitRequest():
            if (
                code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                and version < LOADING_IN_TRANSACTIONS_SINCE_VERSION
            ):
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return refused_transactional_commit(message, code)
        case OffsetFetchRequest():
            return OffsetFetchResponse(
                error_code=code,
                groups=[
                    OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                    for group in message.groups
                ],
            )
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=code)
        case _:
            assert_never(message)


def refused_commit(message: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition of a commit."""
    return OffsetCommitResponse(topics=[refused_topic(topic, code) for topic in message.topics])


def refused_topic(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    """The same error for every partition of one topic of a commit."""
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def refused_transactional_commit(
    message: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """The same error for every partition of a commit in a transaction."""
    return TxnOffsetCommitResponse(
        topics=[refused_transactional_topic(topic, code) for topic in message.topics]
    )


def refused_transactional_topic(
    topic: TxnOffsetCommitRequestTopic, code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    """The same error for every partition of one topic of a commit in a transaction."""
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def answer_leaving(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    """The answer of LeaveGroup for one member."""
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=code,
    )


def no_protocol_name(version: int) -> str | None:
    """The value for "no protocol chosen" in a JoinGroup response of this version."""
    # JoinGroup v7 made the field nullable (KIP-559).
    return None if version >= 7 else ""

"""Versioned structures inside of bytes fields: subscriptions, assignments, records of the offsets topic."""

import uuid
from typing import TypeVar

from zhumq.model.errors import MalformedFrame
from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.compiler import decode_message, decoder, encoder
from zhumq.protocol.messages.consumer_groups import TopicIdPartitions
from zhumq.protocol.primitives import BAD_BYTES, INT16
from zhumq.protocol.schema import Message, field, int8, int32, int64

M = TypeVar("M", bound=Message)


class ConsumerProtocolTopicPartition(Message):
    """TopicPartition in Kafka; the model uses that name here."""

    topic: str = ""
    partitions: list[int32] = field()


class ConsumerProtocolSubscription(Message, versions="0-3", newer_versions_readable=True):
    topics: list[str] = field()
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolTopicPartition] = field(versions="1+")
    generation_id: int32 = field(versions="2+", default=-1)
    rack_id: str | None = field(versions="3+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3", newer_versions_readable=True):
    assigned_partitions: list[ConsumerProtocolTopicPartition] = field()
    user_data: bytes | None = None


class OffsetCommitKey(Message, versions="0-1"):
    group: str = ""
    topic: str = ""
    partition: int32 = 0


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int64 = 0
    leader_epoch: int32 = field(versions="3+", default=-1)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = field(versions="1", default=-1)
    topic_id: uuid.UUID = field(versions="4+", tag=0, default=ZERO_UUID)


class GroupMetadataKey(Message, versions="2"):
    group: str = ""


class MemberMetadata(Message):
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int32 = field(versions="1+", default=0)
    session_timeout: int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int64 = field(versions="2+", default=-1)
    members: list[MemberMetadata] = field()


# The consumer groups of KIP-848. The first number of such a key is the type of the record, and the
# first number of a value is a version. So `versions` of a key class is its record type.


class ConsumerGroupMetadataKey(Message, versions="3"):
    group_id: str = ""


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int32 = 0
    # KIP-1101: a hash of the topics that members read, to detect that they changed.
    metadata_hash: int64 = field(tag=0, default=0)


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    group_id: str = ""
    member_id: str = ""


class ClassicProtocol(Message):
    name: str = ""
    metadata: bytes = b""


class ClassicMemberMetadata(Message):
    # A nullable tagged struct starts with a byte that says it is not null. Null is never written.
    presence: int8 = 1
    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = field()


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None = None
    # Of a member that uses the classic protocol while its group is being migrated.
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int32 = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicIdPartitions] = field()


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicIdPartitions] = field()
    partitions_pending_revocation: list[TopicIdPartitions] = field()


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = field()
    version: int64 = 0
    timestamp: int64 = 0


# Share groups (KIP-932).


class ShareGroupMemberMetadataKey(Message, versions="10"):
    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field()


class ShareGroupMetadataKey(Message, versions="11"):
    group_id: str = ""


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int32 = 0
    metadata_hash: int64 = 0


def encode_versioned(message: Message, version: int) -> bytes:
    """The version as an int16, then the message."""
    cls = type(message)
    if version not in cls.__declared__.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    parts: list[bytes] = [INT16.pack(version)]
    encoder(cls, version)(message, parts)
    return b"".join(parts)


def decode_versioned(cls: type[M], data: bytes | memoryview) -> tuple[int, M]:
    """The version as it was written, and the message.

    Consumers may be newer than the broker, so their two structures are also read in newer versions:
    these only add fields at the end, which are ignored.
    """
    if len(data) < INT16.size:
        raise MalformedFrame(f"{cls.__name__}: no version")
    data = bytes(data)  # copies a view: what is kept must not keep the batch alive
    (version,) = INT16.unpack_from(data)
    declared = cls.__declared__
    if version in declared.versions:
        if not declared.newer_versions_readable:
            return version, decode_message(cls, version, data, INT16.size)
        readable = version
    elif declared.newer_versions_readable and version > declared.versions.last:
        readable = declared.versions.last
    else:
        raise MalformedFrame(f"{cls.__name__} has no version {version}")
    try:
        message, _ = decoder(cls, readable)(data, INT16.size)
    except BAD_BYTES as error:
        raise MalformedFrame(f"{cls.__name__} version {version}: {error}") from error
    return version, message

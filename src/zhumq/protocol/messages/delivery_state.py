"""Delivery state: the records of `__share_group_state`, and the requests of brokers to its shards."""

import uuid

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import Message, field, int8, int16, int32, int64

# The records. As in the offsets topic, the first number of a key is the type of the record.


class DeliveryRun(Message):
    """Neighbouring offsets in the same state."""

    first_offset: int64 = 0
    last_offset: int64 = 0
    state: int8 = 0
    delivery_count: int16 = 0
    reason: str | None = None


class SharePartitionSnapshotKey(Message, versions="0"):
    group_id: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0


class SharePartitionSnapshotValue(Message, versions="0", flexible="0+"):
    """The complete state of a share partition."""

    # Updates belong to the snapshot with the same epoch; other updates are obsolete.
    snapshot_epoch: int32 = 0
    # Grows with each reset, as when an administrator sets the start offset.
    state_epoch: int32 = 0
    leader_epoch: int32 = -1
    # Of the last write: a later request with this number or a lower one writes nothing. The upper half
    # counts how often the share partition was opened.
    write_number: int64 = 0
    start_offset: int64 = 0
    # The producer id of its dead letters, and how many were written.
    dead_letter_producer_id: int64 = 0
    dead_letters_written: int64 = 0
    runs: list[DeliveryRun] = field()


class SharePartitionUpdateKey(Message, versions="1"):
    group_id: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    # Counts from 0 after each snapshot, so that compaction bounds the updates of a share partition.
    slot: int32 = 0


class SharePartitionUpdateValue(Message, versions="0", flexible="0+"):
    """What changed since the snapshot and the updates before this one."""

    snapshot_epoch: int32 = 0
    leader_epoch: int32 = -1
    write_number: int64 = 0
    start_offset: int64 = 0
    dead_letters_written: int64 = 0
    runs: list[DeliveryRun] = field()


class TopicClaimKey(Message, versions="2"):
    topic: str = ""


class TopicClaimValue(Message, versions="0", flexible="0+"):
    """Which group reads a topic point-to-point, and how."""

    group_id: str = ""
    mode: str = ""
    # A topic of the same name that is created later is another one.
    topic_id: uuid.UUID = field(tag=0, default=ZERO_UUID)


class PushSessionKey(Message, versions="3"):
    group_id: str = ""
    consumer: str = ""
    topic: str = ""


class PushSessionValue(Message, versions="0", flexible="0+"):
    """A push consumer's session, as it is kept while the consumer is not connected."""

    mode: str = ""
    partitions: list[int32] | None = None
    client: str = ""
    state: str = ""
    state_since_ms: int64 = 0
    retries: int32 = 0
    retry_at_ms: int64 = 0
    reason: str = ""


class GroupSettingsKey(Message, versions="4"):
    group_id: str = ""


class GroupSetting(Message):
    name: str = ""
    value: str = ""


class GroupSettingsValue(Message, versions="0", flexible="0+"):
    """The settings of one group."""

    settings: list[GroupSetting] = field()


# Requests to the shard of a group (of a topic, for claims), from any broker, and their answers.


class ReadSharePartitionRequest(Message, versions="0", flexible="0+"):
    """The leader of a partition opens its share partition. This fences leaders of earlier epochs."""

    group_id: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    leader_epoch: int32 = -1


class ReadSharePartitionResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    is_known: bool = False
    state_epoch: int32 = 0
    # The first write number of the leader that gets this answer.
    write_number: int64 = 0
    start_offset: int64 = 0
    dead_letter_producer_id: int64 = 0
    dead_letters_written: int64 = 0
    runs: list[DeliveryRun] = field()


class WriteSharePartitionRequest(Message, versions="0", flexible="0+"):
    group_id: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    leader_epoch: int32 = -1
    state_epoch: int32 = 0
    # Counts from the number in the ReadSharePartition answer on.
    write_number: int64 = 0
    start_offset: int64 = 0
    dead_letters_written: int64 = 0
    runs: list[DeliveryRun] = field()
    # Replace the whole state by this, in a new state epoch.
    resets: bool = False
    dead_letter_producer_id: int64 = 0


class WriteSharePartitionResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    state_epoch: int32 = 0
    write_number: int64 = 0


class DescribeSharePartitionsRequest(Message, versions="0", flexible="0+"):
    # Empty: of all groups of the shard.
    group_id: str = ""


class DescribedSharePartition(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    start_offset: int64 = 0
    leader_epoch: int32 = -1
    state_epoch: int32 = 0
    # Offsets above the start that are done already.
    done_count: int64 = 0
    group_id: str = field(tag=0, default="")


class DescribeSharePartitionsResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    share_partitions: list[DescribedSharePartition] = field()


class DeleteSharePartitionsRequest(Message, versions="0", flexible="0+"):
    # Empty: of all groups of the shard.
    group_id: str = ""
    # Null: of all topics, and the group's sessions with them.
    topic_ids: list[uuid.UUID] | None = None


class DeleteSharePartitionsResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    deleted_count: int32 = 0


class ClaimTopicRequest(Message, versions="0", flexible="0+"):
    topic: str = ""
    # Empty: only read the claim.
    group_id: str = ""
    mode: str = ""
    # Release the claim instead, if this group has it; with an empty group, whichever group has it.
    gives_up: bool = False
    topic_id: uuid.UUID = field(tag=0, default=ZERO_UUID)


class ClaimTopicResponse(Message, versions="0", flexible="0+"):
    """The group that has the claim now; empty: no group has it."""

    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    mode: str = ""


class ListClaimsRequest(Message, versions="0", flexible="0+"):
    # Empty: of all groups.
    group_id: str = ""


class ListedClaim(Message):
    topic: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    group_id: str = ""
    mode: str = ""


class ListClaimsResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    claims: list[ListedClaim] = field()


class SaveSessionRequest(Message, versions="0", flexible="0+"):
    group_id: str = ""
    consumer: str = ""
    topic: str = ""
    # Null: delete it.
    session: PushSessionValue | None = None


class SaveSessionResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None


class ListSessionsRequest(Message, versions="0", flexible="0+"):
    # Empty: of all groups of the shard.
    group_id: str = ""


class ListedSession(Message):
    group_id: str = ""
    consumer: str = ""
    topic: str = ""
    session: PushSessionValue = field()


class ListSessionsResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    sessions: list[ListedSession] = field()


class GroupSettingsRequest(Message, versions="0", flexible="0+"):
    """Read a group's settings, after changing some of them."""

    group_id: str = ""
    sets: list[GroupSetting] = field()
    deletes: list[str] = field()


class GroupSettingsResponse(Message, versions="0", flexible="0+"):
    """The group's current settings."""

    error_code: int16 = 0
    error_message: str | None = None
    settings: list[GroupSetting] = field()


class ListGroupSettingsRequest(Message, versions="0", flexible="0+"):
    """Lists the groups of the shard that have settings of their own."""


class ListGroupSettingsResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    group_ids: list[str] = field()


# Requests between brokers; clients cannot send these keys.

"""Delivery state: the records of `__share_group_state`, and what brokers ask its shards."""

import uuid

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import Message, field, int8, int16, int32, int64

# The records. As in the offsets topic, the first number of a key is the kind of the record.


class DeliveryRun(Message):
    """Neighbouring offsets that stand alike."""

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
    """All that is known of a window."""

    # Updates belong to the snapshot of the same number; those of another one say nothing any more.
    snapshot_epoch: int32 = 0
    # Grows whenever somebody else than the window decides where it starts.
    state_epoch: int32 = 0
    leader_epoch: int32 = -1
    # Of the last write: one that comes later than those after it is not done any more. The upper half
    # counts how often the window was opened.
    write_number: int64 = 0
    start_offset: int64 = 0
    # As which producer its dead letters are written, and how many were.
    dead_letter_producer_id: int64 = 0
    dead_letters_written: int64 = 0
    runs: list[DeliveryRun] = field()


class SharePartitionUpdateKey(Message, versions="1"):
    group_id: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    # Counts from 0 after each snapshot, so that compaction keeps only so many updates of a window.
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
    # A topic of the same name that is made later is another one.
    topic_id: uuid.UUID = field(tag=0, default=ZERO_UUID)


class PushSessionKey(Message, versions="3"):
    group_id: str = ""
    consumer: str = ""
    topic: str = ""


class PushSessionValue(Message, versions="0", flexible="0+"):
    """A push consumer's session as it is kept while nobody is connected."""

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
    """What was set for one group."""

    settings: list[GroupSetting] = field()


# Requests to the shard of a group (of a topic, for claims), from whichever broker, and their answers.


class ReadSharePartitionRequest(Message, versions="0", flexible="0+"):
    """The leader of the partition takes over its window: those of earlier epochs are fenced by this."""

    group_id: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    leader_epoch: int32 = -1


class ReadSharePartitionResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    is_known: bool = False
    state_epoch: int32 = 0
    # The writes of whoever reads this are numbered from here on.
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
    # From the answer with which the window was opened on.
    write_number: int64 = 0
    start_offset: int64 = 0
    dead_letters_written: int64 = 0
    runs: list[DeliveryRun] = field()
    # Begin anew with exactly this, in a new state epoch: what was known is forgotten.
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
    # Offsets behind the start that are done with already.
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
    # Empty: only look.
    group_id: str = ""
    mode: str = ""
    # Give the claim up instead, if it is this group's; with an empty group, whosever it is.
    gives_up: bool = False
    topic_id: uuid.UUID = field(tag=0, default=ZERO_UUID)


class ClaimTopicResponse(Message, versions="0", flexible="0+"):
    """Whose the topic is now; nobody's: an empty group."""

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
    # Null: forget it.
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
    """Look at a group's settings, or change some of them first."""

    group_id: str = ""
    sets: list[GroupSetting] = field()
    deletes: list[str] = field()


class GroupSettingsResponse(Message, versions="0", flexible="0+"):
    """As they are now."""

    error_code: int16 = 0
    error_message: str | None = None
    settings: list[GroupSetting] = field()


class ListGroupSettingsRequest(Message, versions="0", flexible="0+"):
    """Which groups of the shard have settings of their own."""


class ListGroupSettingsResponse(Message, versions="0", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = None
    group_ids: list[str] = field()


# Between brokers: the keys of these are no client's business.


class AskDeliveryStateRequest(Message, api_key=1100):
    """A request to the shard of a partition of the state topic that the other broker leads."""

    partition: int32 = 0
    # Which of the requests above it is, and what it says.
    kind: int8 = 0
    body: bytes = b""


class AskDeliveryStateResponse(Message, api_key=1100):
    body: bytes = b""


class AskGroupRequest(Message, api_key=1102):
    """An OffsetCommit (0) or OffsetFetch (1) for a group that the other broker coordinates."""

    kind: int8 = 0
    body: bytes = b""


class AskGroupResponse(Message, api_key=1102):
    body: bytes = b""


class AppendDeadLettersRequest(Message, api_key=1101):
    """Dead letters for a partition that the other broker leads."""

    topic: str = ""
    partition: int32 = 0
    batch: bytes = b""


class AppendDeadLettersResponse(Message, api_key=1101):
    error_code: int16 = 0
    error_message: str | None = None

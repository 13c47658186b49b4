"""What brokers say to each other: who they are, replica fetches, votes, ends of logs."""

import uuid
from collections.abc import Sized
from typing import Annotated

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import RECORDS, Message, field, int8, int16, int32, int64


class HelloRequest(Message, api_key=1000):
    """Who connects, to whom it believes to connect, and a nonce for the other side's proof."""

    version: int16 = 0
    cluster_id: str = ""
    broker_id: int32 = -1
    broker_epoch: int64 = -1
    to_broker_id: int32 = -1
    nonce: bytes = b""


class HelloResponse(Message, api_key=1000):
    nonce: bytes = b""
    proof: bytes = b""


class ProofRequest(Message, api_key=1001):
    proof: bytes = b""


class ProofResponse(Message, api_key=1001):
    broker_id: int32 = -1


class ReplicaFetchPartition(Message):
    """Where a follower is; travels only when it differs from what the session holds."""

    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    epoch: int32 = 0
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = -1
    flushed_offset: int64 = 0
    # What it has heard of the leader's: only more than that is news.
    high_watermark: int64 = -1
    is_raft: bool = True
    recovering: bool = False
    # What the leader sent last for this offset did not match its checksums.
    was_corrupt: bool = False
    # Together they grow with every fetch of a replica: the start of its broker, and a count in it.
    incarnation: int64 = 0
    sequence: int64 = 0
    # The newest epoch whose leader's log it has on its disk up to where the epoch starts.
    accepted_epoch: int32 = -1


class ForgottenReplica(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0


class ReplicaFetchRequest(Message, api_key=1002):
    """The session is the connection: what was said of a partition stands until it is answered."""

    max_bytes: int32 = 0
    partitions: list[ReplicaFetchPartition] = field()
    forgotten: list[ForgottenReplica] = field()


class ReplicaFetchAnswer(Message):
    """An answer to what was said of one partition, which it echoes."""

    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    error_code: int16 = 0
    epoch: int32 = 0
    leader_id: int32 = -1
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = -1
    incarnation: int64 = 0
    sequence: int64 = 0
    high_watermark: int64 = 0
    log_start_offset: int64 = 0
    serving: bool = False
    # Where the epoch starts in the leader's log.
    epoch_start_offset: int64 = 0
    # The leader's log may have been compacted: offsets may be missing.
    gaps_allowed: bool = False
    # The fetch stays in the session: there was news, but no records.
    stands: bool = False
    diverging_epoch: int32 = -1
    diverging_end_offset: int64 = -1
    start_over_at: int64 = -1
    records: Annotated[Sized | None, RECORDS] = b""


class ReplicaFetchResponse(Message, api_key=1002):
    answers: list[ReplicaFetchAnswer] = field()


class VoteQuestion(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    epoch: int32 = 0
    last_epoch: int32 = -1
    end_offset: int64 = 0
    pre_vote: bool = False
    is_raft: bool = True
    voters: list[int32] = field()


class VoteReply(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    asked_epoch: int32 = 0
    epoch: int32 = 0
    leader_id: int32 = -1
    granted: bool = False
    pre_vote: bool = False
    last_epoch: int32 = -1
    end_offset: int64 = 0


class LeaderAnnouncement(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    epoch: int32 = 0


class ReplicaMessagesRequest(Message, api_key=1003):
    """All that one broker has to tell another about elections at one moment. A vote is answered by
    a message of its own, in the other direction."""

    questions: list[VoteQuestion] = field()
    replies: list[VoteReply] = field()
    announcements: list[LeaderAnnouncement] = field()


class ReplicaMessagesResponse(Message, api_key=1003):
    taken: int8 = 0


class LogEndsPartition(Message):
    topic: str = ""
    partition: int32 = 0


class LogEndsRequest(Message, api_key=1004):
    partitions: list[LogEndsPartition] = field()


class LogEndAnswer(Message):
    topic: str = ""
    partition: int32 = 0
    last_epoch: int32 = -1
    end_offset: int64 = -1


class LogEndsResponse(Message, api_key=1004):
    log_ends: list[LogEndAnswer] = field()


class ElectPreferredRequest(Message, api_key=1005):
    """To the leader of raft partitions: let their first replicas lead."""

    partitions: list[LogEndsPartition] = field()


class ElectPreferredAnswer(Message):
    topic: str = ""
    partition: int32 = 0
    error_code: int16 = 0


class ElectPreferredResponse(Message, api_key=1005):
    answers: list[ElectPreferredAnswer] = field()

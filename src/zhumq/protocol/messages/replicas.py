"""Requests between brokers: handshake, replica fetches, votes, log ends."""

import uuid
from collections.abc import Sized
from typing import Annotated

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import RECORDS, Message, field, int8, int16, int32, int64


class HelloRequest(Message, api_key=1000):
    """The connecting broker, the broker it expects to reach, and a nonce for that broker's proof."""

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
    """A follower's fetch state; sent only when it differs from the session's."""

    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    epoch: int32 = 0
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = -1
    flushed_offset: int64 = 0
    # The leader's high watermark that the follower knows: the leader answers once it has a higher one.
    high_watermark: int64 = -1
    is_raft: bool = True
    recovering: bool = False
    # The records that the leader sent last for this offset did not match their checksums.
    was_corrupt: bool = False
    # Order the fetches of a replica: incarnation identifies a start of its broker, sequence counts
    # within it.
    incarnation: int64 = 0
    sequence: int64 = 0
    # The newest epoch whose leader's log the replica has on disk up to where the epoch starts.
    accepted_epoch: int32 = -1


class ForgottenReplica(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0


class ReplicaFetchRequest(Message, api_key=1002):
    """Fetches in the session of a connection: the state of a partition is kept until it is answered."""

    max_bytes: int32 = 0
    partitions: list[ReplicaFetchPartition] = field()
    forgotten: list[ForgottenReplica] = field()


class ReplicaFetchAnswer(Message):
    """The answer for one partition; it echoes the request's fetch state."""

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
    # The fetch stays in the session: the answer has updates, but no records.
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
    """Election messages of one broker to another, batched. Votes are answered by a message of their
    own, in the other direction."""

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
    """To the leader of raft partitions: transfer leadership to the preferred replicas."""

    partitions: list[LogEndsPartition] = field()


class ElectPreferredAnswer(Message):
    topic: str = ""
    partition: int32 = 0
    error_code: int16 = 0


class ElectPreferredResponse(Message, api_key=1005):
    answers: list[ElectPreferredAnswer] = field()

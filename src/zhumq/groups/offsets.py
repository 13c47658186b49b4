"""Offsets of groups: commit, also in a transaction, fetch, delete and expire."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zhumq.groups.group import Group, Turn
from zhumq.groups.pending_offsets import PendingOffsets
from zhumq.groups.persisted import (
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetKey,
    fits,
    offset_record,
)
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from zhumq.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_OFFSET = -1
TIMESTAMP_MAX = 2**63 - 1
DEFAULT_RETENTION = -1  # OffsetCommit's retention_time_ms: use the broker's setting

PartitionOffsets = dict[int, CommittedOffset]


class Expired(NamedTuple):
    """The expired offsets of a group, and whether these are all it has."""

    keys: tuple[OffsetKey, ...]
    all_expired: bool


class CommittedOffsets:
    """The committed offsets of all groups of a shard. Written by replay only."""

    def __init__(self) -> None:
        # Invariant: no empty dictionaries inside; a group is in here only if it has offsets.
        self._by_group: dict[str, dict[str, PartitionOffsets]] = {}

    def put(self, key: OffsetKey, committed: CommittedOffset) -> None:
        topics = self._by_group.setdefault(key.group_id, {})
        topics.setdefault(key.topic, {})[key.partition] = committed

    def remove(self, key: OffsetKey) -> None:
        topics = self._by_group.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group_id]

    def __len__(self) -> int:
        """Number of partitions with a committed offset, of all groups."""
        return sum(
            len(partitions) for topics in self._by_group.values() for partitions in topics.values()
        )

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        return self._by_group.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> dict[str, PartitionOffsets]:
        return self._by_group.get(group_id, {})

    def keys_of_group(self, group_id: str) -> Iterator[OffsetKey]:
        for topic, partitions in self.of_group(group_id).items():
            for partition in partitions:
                yield OffsetKey(group_id, topic, partition)

    def keys_of_topics(self, names: Iterable[str]) -> list[OffsetKey]:
        deleted = frozenset(names)
        return [
            OffsetKey(group_id, topic, partition)
            for group_id, topics in self._by_group.items()
            for topic in deleted & topics.keys()
            for partition in topics[topic]
        ]

    def items(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        for group_id in self._by_group:
            for key in self.keys_of_group(group_id):
                yield key, self._by_group[group_id][key.topic][key.partition]


def commit(
    message: OffsetCommitRequest, settings: GroupSettings, turn: Turn
) -> OffsetCommitResponse:
    """Record every offset of a commit whose sender has been checked."""
    retention_ms = message.retention_time_ms
    expire_ms = NO_TIMESTAMP
    if retention_ms != DEFAULT_RETENTION:
        expire_ms = min(turn.now_ms + retention_ms, TIMESTAMP_MAX)
    response = OffsetCommitResponse()
    for topic in message.topics:
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=_record(message.group_id, topic.name, each, settings, expire_ms, turn),
            )
            for each in topic.partitions
        ]
        response.topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return response


def commit_in_transaction(
    message: TxnOffsetCommitRequest, settings: GroupSettings, turn: Turn
) -> TxnOffsetCommitResponse:
    """Record every offset of a transaction whose sender has been checked."""
    response = TxnOffsetCommitResponse()
    group_id = message.group_id
    for topic in message.topics:
        partitions = [
            TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=_record(group_id, topic.name, each, settings, NO_TIMESTAMP, turn),
            )
            for each in topic.partitions
        ]
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return response


def _record(
    group_id: str,
    topic: str,
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    settings: GroupSettings,
    expire_ms: int,
    turn: Turn,
) -> ErrorCode:
    """Record one offset, unless its metadata is too large."""
    metadata = partition.committed_metadata or ""
    if len(metadata) > settings.offset_metadata_bytes_max or not fits(metadata):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=turn.now_ms,
        expire_timestamp_ms=expire_ms,
    )
    key = OffsetKey(group_id, topic, partition.partition_index)
    turn.records.append(offset_record(key, committed))
    return ErrorCode.NONE


def fetch(
    offsets: CommittedOffsets, asked: OffsetFetchRequestGroup, unstable: PendingOffsets | None
) -> OffsetFetchResponseGroup:
    """The committed offsets of a group for the requested partitions, or with None for all.

    With `unstable`, an error for the partitions that have pending offsets (KIP-447).
    """
    group_id = asked.group_id
    of_group = offsets.of_group(group_id)

    def fetched(
        topic: str, partition: int, committed: CommittedOffset | None
    ) -> OffsetFetchResponsePartition:
        if unstable and OffsetKey(group_id, topic, partition) in unstable:
            return OffsetFetchResponsePartition(
                partition_index=partition,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
            )
        return _fetched(partition, committed)

    response = OffsetFetchResponseGroup(group_id=asked.group_id)
    if asked.topics is None:
        response.topics = [
            OffsetFetchResponseTopic(
                name=name,
                partitions=[fetched(name, each, committed) for each, committed in of_topic.items()],
            )
            for name, of_topic in of_group.items()
        ]
        return response
    for topic in asked.topics:
        of_topic = of_group.get(topic.name, {})
        response.topics.append(
            OffsetFetchResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    fetched(topic.name, each, of_topic.get(each))
                    for each in topic.partition_indexes
                ],
            )
        )
    return response


def delete(
    offsets: CommittedOffsets,
    pending: PendingOffsets,
    group: Group,
    message: OffsetDeleteRequest,
    turn: Turn,
) -> OffsetDeleteResponse:
    """Delete the offsets, also pending ones, of topics that no member of the group reads."""
    response = OffsetDeleteResponse()
    for topic in message.topics:
        subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        answered = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answered)
        for partition in topic.partitions:
            key = OffsetKey(message.group_id, topic.name, partition.partition_index)
            if not subscribed and (offsets.get(key) is not None or key in pending):
                turn.records.append(offset_record(key, None))
            answered.partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
    return response


def expired(
    offsets: CommittedOffsets,
    pending: PendingOffsets,
    group: Group,
    *,
    retention_ms: int,
    now_ms: int,
) -> Expired:
    """The offsets of a group whose retention is over (KIP-211). Those of partitions with pending offsets stay."""
    keys = []
    all_expired = not pending.has_group(group.group_id)
    for topic, partitions in offsets.of_group(group.group_id).items():
        if group.is_subscribed_to(topic):
            all_expired = False
            continue
        for partition, committed in partitions.items():
            key = OffsetKey(group.group_id, topic, partition)
            if _is_expired(committed, group, retention_ms, now_ms) and key not in pending:
                keys.append(key)
            else:
                all_expired = False
    return Expired(tuple(keys), all_expired)


def _is_expired(committed: CommittedOffset, group: Group, retention_ms: int, now_ms: int) -> bool:
    start_ms = group.offset_age_start_ms(committed.commit_timestamp_ms)
    if start_ms is None:
        return False
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - start_ms >= retention_ms


def _fetched(partition: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartition:
    if committed is None:
        return OffsetFetchResponsePartition(
            partition_index=partition, committed_offset=NO_OFFSET, metadata=""
        )
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )

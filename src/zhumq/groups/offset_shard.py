"""The offsets of a shard's groups, committed and pending: requests about them, and their records."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from zhumq.groups import offsets
from zhumq.groups.consumer import ConsumerGroup
from zhumq.groups.group import Group, Turn
from zhumq.groups.offsets import CommittedOffsets
from zhumq.groups.pending_offsets import PendingOffsets, pending_bytes
from zhumq.groups.persisted import OffsetKey, fits, offset_record
from zhumq.groups.requests import (
    TopicsDeletedRequest,
    TopicsDeletedResponse,
    refused_commit,
    refused_transactional_commit,
)
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Producer, StateRecord
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from zhumq.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse

GROUP_ID_NOT_FOUND_IN_COMMIT_SINCE_VERSION = 9  # KIP-848

OffsetMessage = (
    OffsetCommitRequest
    | TxnOffsetCommitRequest
    | OffsetFetchRequest
    | OffsetDeleteRequest
    | TopicsDeletedRequest
)
OffsetResponse = (
    OffsetCommitResponse
    | TxnOffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | TopicsDeletedResponse
)


class GroupOffsets:
    """The offsets of all groups of a shard."""

    def __init__(self, settings: GroupSettings, groups: Mapping[str, Group]) -> None:
        self._settings = settings
        self._groups = groups
        self.committed = CommittedOffsets()
        self.pending = PendingOffsets()

    def answer(self, message: OffsetMessage, version: int, turn: Turn) -> OffsetResponse:
        match message:
            case OffsetCommitRequest():
                return self._commit(message, version, turn)
            case TxnOffsetCommitRequest():
                return self._commit_in_transaction(message, turn)
            case OffsetFetchRequest():
                unstable = self.pending if message.require_stable else None
                return OffsetFetchResponse(
                    groups=[self._fetch(asked, unstable) for asked in message.groups]
                )
            case OffsetDeleteRequest():
                return self._delete(message, turn)
            case TopicsDeletedRequest():
                keys = self.committed.keys_of_topics(message.names)
                keys += self.pending.keys_of_topics(message.names)
                keys = list(dict.fromkeys(keys))
                turn.record(offset_record(key, None) for key in keys)
                return TopicsDeletedResponse(offsets_deleted=len(keys))
            case _:
                assert_never(message)

    def expire(self, turn: Turn) -> None:
        """Delete the offsets whose retention is over, and the groups that are left without any."""
        for group in list(self._groups.values()):
            expired = offsets.expired(
                self.committed,
                self.pending,
                group,
                retention_ms=self._settings.offsets_retention_ms,
                now_ms=turn.now_ms,
            )
            turn.record(offset_record(key, None) for key in expired.keys)
            if expired.all_expired and group.is_idle:
                turn.record(group.tombstones())

    def tombstones(self, group_id: str) -> Iterator[StateRecord]:
        """The records that delete the offsets of a group."""
        keys = dict.fromkeys(self.committed.keys_of_group(group_id))
        keys.update(dict.fromkeys(self.pending.keys_of_group(group_id)))
        return (offset_record(key, None) for key in keys)

    def outdate_pending(self, key: OffsetKey, *, is_deleted: bool) -> None:
        """The offset of a partition was committed outside of transactions, or deleted."""
        if is_deleted:
            self.pending.remove(key)
        else:
            self.pending.supersede(key)

    # Requests

    def _commit(
        self, message: OffsetCommitRequest, version: int, turn: Turn
    ) -> OffsetCommitResponse:
        group = self._groups.get(message.group_id)
        generation = message.generation_id_or_member_epoch
        if group is not None:
            code = group.check_commit(message.member_id, message.group_instance_id, generation)
        elif not fits(message.group_id):
            code = ErrorCode.INVALID_GROUP_ID
        elif generation < 0:
            # A simple consumer's first commit creates its group.
            code = ErrorCode.NONE
        elif version >= GROUP_ID_NOT_FOUND_IN_COMMIT_SINCE_VERSION:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            code = ErrorCode.ILLEGAL_GENERATION
        if code is not ErrorCode.NONE:
            return refused_commit(message, code)
        if group is not None:
            group.renew_session(message.member_id, turn)
        return offsets.commit(message, self._settings, turn)

    def _commit_in_transaction(
        self, message: TxnOffsetCommitRequest, turn: Turn
    ) -> TxnOffsetCommitResponse:
        code = self._check_transactional(message)
        if code is not ErrorCode.NONE:
            return refused_transactional_commit(message, code)
        response = offsets.commit_in_transaction(message, self._settings, turn)
        added_bytes = pending_bytes(turn.records)
        limit_bytes = self._settings.shard_pending_offset_bytes_max
        if self.pending.size_bytes + added_bytes > limit_bytes:
            turn.records.clear()
            # The producer tries again, until other transactions end or its own times out.
            return refused_transactional_commit(message, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        turn.producer = Producer(message.producer_id, message.producer_epoch)
        return response

    def _check_transactional(self, message: TxnOffsetCommitRequest) -> ErrorCode:
        if not message.group_id or not fits(message.group_id):
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(message.group_id)
        if group is None:
            # As for a simple consumer's first commit.
            return ErrorCode.NONE if message.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        code = group.check_commit(
            message.member_id,
            message.group_instance_id,
            message.generation_id,
            is_transactional=True,
        )
        # Producers do not know the error of the consumer protocol.
        return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code

    def _fetch(
        self, asked: OffsetFetchRequestGroup, unstable: PendingOffsets | None
    ) -> OffsetFetchResponseGroup:
        group = self._groups.get(asked.group_id)
        if isinstance(group, ConsumerGroup):
            code = group.check_fetch(asked.member_id, asked.member_epoch)
            if code is not ErrorCode.NONE:
                return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
        return offsets.fetch(self.committed, asked, unstable)

    def _delete(self, message: OffsetDeleteRequest, turn: Turn) -> OffsetDeleteResponse:
        group = self._groups.get(message.group_id)
        if not message.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            code = group.check_offset_delete()
            if code is ErrorCode.NONE:
                return offsets.delete(self.committed, self.pending, group, message, turn)
        return OffsetDeleteResponse(error_code=code)

"""The share groups of a shard: heartbeats, descriptions, loading from the log."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

from zhumq.groups.consumer_heartbeat import (
    CLIENT_ID_LENGTH_MAX,
    Refused,
    assignment_of,
    invalid,
    unknown_member,
)
from zhumq.groups.consumer_topics import ClusterTopics
from zhumq.groups.group import DeadlineKey, DeadlineKind, Group, Turn
from zhumq.groups.persisted import ShareKey, ShareRecordKind, fits
from zhumq.groups.requests import GroupRequest
from zhumq.groups.settings import GroupSettings
from zhumq.groups.share import (
    ASSIGNOR_NAME,
    ShareGroup,
    ShareMember,
    member_deletion,
    member_record,
)
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.messages.coordinator_records import (
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    decode_versioned,
)
from zhumq.protocol.messages.share import (
    ShareGroupDescribeAssignment,
    ShareGroupDescribedGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1


class ShareGroups:
    """Handles requests for share groups. The shard owns the groups."""

    def __init__(
        self, settings: GroupSettings, topics: ClusterTopics, groups: dict[str, Group]
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups

    def answer(
        self,
        message: ShareGroupHeartbeatRequest | ShareGroupDescribeRequest,
        request: GroupRequest,
        turn: Turn,
    ) -> ShareGroupHeartbeatResponse | ShareGroupDescribeResponse:
        if isinstance(message, ShareGroupHeartbeatRequest):
            return self.heartbeat(message, request, turn)
        return ShareGroupDescribeResponse(
            groups=[self.describe(group_id) for group_id in message.group_ids]
        )

    # Heartbeats

    def heartbeat(
        self, message: ShareGroupHeartbeatRequest, request: GroupRequest, turn: Turn
    ) -> ShareGroupHeartbeatResponse:
        """Handle a heartbeat: join, continue, leave."""
        try:
            self._check(message)
            if message.member_epoch == LEAVING_EPOCH:
                return self._leave(message, turn)
            return self._join_or_continue(message, request, turn)
        except Refused as reason:
            return ShareGroupHeartbeatResponse(
                error_code=reason.code, error_message=str(reason), member_id=message.member_id
            )

    def _check(self, message: ShareGroupHeartbeatRequest) -> None:
        """Check what does not depend on the group, and that all texts fit into a record. Raises Refused."""
        for name, text in (
            ("GroupId", message.group_id),
            ("MemberId", message.member_id),
            ("RackId", message.rack_id),
        ):
            if text is not None and (not text.strip() or not fits(text)):
                raise invalid(f"{name} can't be empty or longer than a record can hold.")
        if message.member_epoch < LEAVING_EPOCH:
            raise invalid("MemberEpoch is invalid.")
        if message.member_epoch == JOINING_EPOCH and not message.subscribed_topic_names:
            raise invalid("SubscribedTopicNames must be set in first request.")
        if not all(fits(name) for name in message.subscribed_topic_names or ()):
            raise invalid("SubscribedTopicNames must fit into a record.")

    def _join_or_continue(
        self, message: ShareGroupHeartbeatRequest, request: GroupRequest, turn: Turn
    ) -> ShareGroupHeartbeatResponse:
        joins = message.member_epoch == JOINING_EPOCH
        group = self._group_for(message.group_id, joins=joins)
        known = group.members.get(message.member_id)
        if known is None:
            if not joins:
                raise unknown_member(message.member_id, message.group_id)
            if len(group.members) >= self._settings.share_members_max:
                raise Refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    "The share group has reached its maximum capacity of "
                    f"{self._settings.share_members_max} members.",
                )
        elif message.member_epoch > group.epoch:
            raise Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The share group member has a greater member epoch "
                f"({message.member_epoch}) than the one known by the group coordinator "
                f"({group.epoch}). The member must abandon all its partitions and rejoin.",
            )
        asked = _updated_by(known or ShareMember(member_id=message.member_id), message, request)
        if asked != known:
            record = member_record(group.group_id, asked)
            if len(record.key) + len(record.value or b"") > self._settings.group_record_bytes_max:
                raise invalid("The subscription is too large.")
            # No refusal from here on.
            self._groups[group.group_id] = group
            group.members[asked.member_id] = asked
            turn.record([record])
        changed = known is None or known.subscribed_names != asked.subscribed_names
        group.refresh(self._topics, turn, changed=changed)
        group.begin_session(asked.member_id, turn)
        response = ShareGroupHeartbeatResponse(
            member_id=asked.member_id,
            member_epoch=group.epoch,
            heartbeat_interval_ms=self._settings.share_heartbeat_interval_ms,
        )
        # A member with an earlier epoch did not get the latest assignment.
        if message.member_epoch != group.epoch or message.subscribed_topic_names is not None:
            response.assignment = assignment_of(group.target_of(asked.member_id))
        return response

    def _group_for(self, group_id: str, *, joins: bool) -> ShareGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not joins:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Share group {group_id} not found.")
        return ShareGroup(group_id, session_timeout_ms=self._settings.share_session_timeout_ms)

    def _leave(
        self, message: ShareGroupHeartbeatRequest, turn: Turn
    ) -> ShareGroupHeartbeatResponse:
        group = self._groups.get(message.group_id)
        if not isinstance(group, ShareGroup) or message.member_id not in group.members:
            raise unknown_member(message.member_id, message.group_id)
        self._remove(group, message.member_id, turn)
        return ShareGroupHeartbeatResponse(member_id=message.member_id, member_epoch=LEAVING_EPOCH)

    def _remove(self, group: ShareGroup, member_id: str, turn: Turn) -> None:
        del group.members[member_id]
        turn.deadlines.cancel(DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id))
        turn.record([member_deletion(group.group_id, member_id)])
        group.refresh(self._topics, turn, changed=True)

    def deadline_passed(self, group: ShareGroup, key: DeadlineKey, turn: Turn) -> None:
        """Remove a member whose session has expired."""
        if key.member_id in group.members:
            self._remove(group, key.member_id, turn)

    # Loading, replaying

    def restore(self, key: ShareKey, value: bytes) -> None:
        """Apply the last record of a key."""
        group = self._groups.get(key.group_id)
        if not isinstance(group, ShareGroup):
            group = ShareGroup(
                key.group_id, session_timeout_ms=self._settings.share_session_timeout_ms
            )
            self._groups[key.group_id] = group
        try:
            if key.kind is ShareRecordKind.GROUP:
                _, recorded = decode_versioned(ShareGroupMetadataValue, value)
                group.epoch, group.metadata_hash = recorded.epoch, recorded.metadata_hash
                return
            _, asked = decode_versioned(ShareGroupMemberMetadataValue, value)
        except MalformedFrame:
            return
        group.members[key.name] = ShareMember(
            member_id=key.name,
            rack_id=asked.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            subscribed_names=frozenset(asked.subscribed_topic_names),
        )

    def resume(self, group: ShareGroup, turn: Turn) -> None:
        """Start a full session for every member and assign: the log has been read."""
        for member_id in group.members:
            group.begin_session(member_id, turn)
        if group.members:
            group.refresh(self._topics, turn, changed=True)

    def replay(self, key: ShareKey, value: bytes | None) -> None:
        # A group applies its own decisions when it makes them. Only its deletion is decided elsewhere.
        is_deleted = key.kind is ShareRecordKind.GROUP and value is None
        if is_deleted and isinstance(self._groups.get(key.group_id), ShareGroup):
            del self._groups[key.group_id]

    # Describing

    def describe(self, group_id: str) -> ShareGroupDescribedGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            why = "not found" if group is None else "not a share group"
            return ShareGroupDescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is {why}.",
                group_id=group_id,
            )
        return ShareGroupDescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.epoch,
            assignor_name=ASSIGNOR_NAME,
            members=[
                ShareGroupDescribeMember(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=group.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.subscribed_names),
                    assignment=self._named(group.target_of(member.member_id)),
                )
                for member in group.members.values()
            ],
        )

    def _named(
        self, partitions: Mapping[uuid.UUID, frozenset[int]]
    ) -> ShareGroupDescribeAssignment:
        return ShareGroupDescribeAssignment(
            topic_partitions=[
                ShareGroupDescribeTopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=sorted(indexes)
                )
                for topic_id, indexes in partitions.items()
                if (name := self._topics.topic_name(topic_id)) is not None
            ]
        )


def _updated_by(
    member: ShareMember, message: ShareGroupHeartbeatRequest, request: GroupRequest
) -> ShareMember:
    names = message.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if message.rack_id is None else message.rack_id,
        client_id=request.client_id[:CLIENT_ID_LENGTH_MAX],
        client_host=request.client_host,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
    )

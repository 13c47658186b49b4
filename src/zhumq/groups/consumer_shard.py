"""The consumer groups of a shard: creates, upgrades and downgrades groups, and dispatches requests."""

import uuid
from collections.abc import Callable, Mapping

from zhumq.groups.classic import ClassicGroup
from zhumq.groups.classic_protocol import ClassicProtocol
from zhumq.groups.classic_replies import answer_parked_join, answer_parked_sync
from zhumq.groups.consumer import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
)
from zhumq.groups.consumer_classic_members import ClassicMembers
from zhumq.groups.consumer_heartbeat import (
    ConsumerProtocol,
    Refused,
    rebalance_deadline,
    refused,
)
from zhumq.groups.consumer_migration import downgraded, upgraded
from zhumq.groups.consumer_records import RecordedGroup, records_of
from zhumq.groups.consumer_topics import ClusterTopics
from zhumq.groups.group import DeadlineKey, DeadlineKind, Group, Turn
from zhumq.groups.persisted import ConsumerKey, group_record
from zhumq.groups.requests import GroupRequest, answer_leaving
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_TYPE_CLASSIC = 0
MEMBER_TYPE_CONSUMER = 1


class ConsumerGroups:
    """Handles requests for consumer groups. The shard owns the groups."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: ClusterTopics,
        draw_member_suffix: Callable[[], str],
        groups: dict[str, Group],
        classic: ClassicProtocol,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._classic = classic
        self._protocol = ConsumerProtocol(settings, topics, draw_member_suffix)
        self._members = ClassicMembers(self._protocol, topics, draw_member_suffix)

    # Members of the consumer protocol

    def heartbeat(
        self, message: ConsumerGroupHeartbeatRequest, request: GroupRequest, turn: Turn
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat: join, continue, leave."""
        try:
            self._protocol.check(message, request.version)
            if message.member_epoch == JOINING_EPOCH:
                return self._join(message, request, turn)
            group = self._existing(message.group_id)
            if message.member_epoch in (LEAVING_EPOCH, AWAY_EPOCH):
                response = self._protocol.leave(group, message, turn)
                self._downgrade_if_due(group, turn)
                return response
            return self._protocol.heartbeat(group, message, request, turn)
        except Refused as reason:
            return refused(reason)

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            # Kafka answers GROUP_ID_NOT_FOUND, which is fatal for its consumers. A member that gets
            # UNKNOWN_MEMBER_ID joins again, as it must here.
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Consumer group {group_id} not found.")
        return group

    def _join(
        self, message: ConsumerGroupHeartbeatRequest, request: GroupRequest, turn: Turn
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._groups.get(message.group_id)
        if isinstance(group, ConsumerGroup):
            return self._protocol.heartbeat(group, message, request, turn)
        if group is None:
            created = ConsumerGroup(
                message.group_id,
                session_timeout_ms=self._settings.consumer_session_timeout_ms,
                default_assignor=self._settings.consumer_assignors[0],
            )
            response = self._protocol.heartbeat(created, message, request, turn)
            self._groups[message.group_id] = created
            return response
        if not isinstance(group, ClassicGroup):
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {message.group_id} is not a consumer group."
            )
        return self._upgrade(group, message, request, turn)

    def _upgrade(
        self,
        classic: ClassicGroup,
        message: ConsumerGroupHeartbeatRequest,
        request: GroupRequest,
        turn: Turn,
    ) -> ConsumerGroupHeartbeatResponse:
        """Upgrade a classic group when the first member of the consumer protocol joins."""
        group = upgraded(classic, self._settings, self._topics)
        before = len(turn.records)
        if not group.is_empty or classic.protocol_type is not None:
            turn.record(classic.tombstones())
        if not group.is_empty:
            turn.record(records_of(group))
        try:
            response = self._protocol.heartbeat(group, message, request, turn)
        except Refused:
            del turn.records[before:]
            raise
        for member_id in classic.members:
            answer_parked_join(classic, member_id, ErrorCode.REBALANCE_IN_PROGRESS, turn)
            answer_parked_sync(classic, member_id, ErrorCode.REBALANCE_IN_PROGRESS, turn)
        for member_id in classic.pending_members:
            turn.deadlines.cancel(DeadlineKey(DeadlineKind.SESSION, classic.group_id, member_id))
        for kind in (DeadlineKind.JOIN, DeadlineKind.SYNC):
            turn.deadlines.cancel(DeadlineKey(kind, classic.group_id))
        self._groups[group.group_id] = group
        self._protocol.resume(group, turn)
        return response

    def _downgrade_if_due(self, group: ConsumerGroup, turn: Turn) -> None:
        """Downgrade to a classic group when the last member of the consumer protocol is gone."""
        classic = downgraded(group, self._settings, self._topics, turn.now_ms)
        if classic is None:
            return
        record = group_record(group.group_id, classic.to_record())
        if len(record.key) + len(record.value or b"") > self._settings.group_record_bytes_max:
            return
        turn.record([*group.tombstones(), record])
        self._groups[group.group_id] = classic
        for member_id in classic.members:
            turn.deadlines.cancel(rebalance_deadline(group, member_id))
            classic.renew_session(member_id, turn)
        self._classic.prepare_rebalance(classic, turn)

    def deadline_passed(self, group: ConsumerGroup, key: DeadlineKey, turn: Turn) -> None:
        """Remove a member whose session expired, or that did not revoke its partitions in time."""
        assert key.kind in (DeadlineKind.SESSION, DeadlineKind.REBALANCE)
        if key.member_id in group.members:
            self._protocol.remove(group, [key.member_id], turn)
            self._downgrade_if_due(group, turn)

    # Members of the classic protocol

    def join(
        self, group: ConsumerGroup, message: JoinGroupRequest, request: GroupRequest, turn: Turn
    ) -> JoinGroupResponse:
        """A JoinGroup to a consumer group with members. Raises Refused."""
        response = self._members.join(group, message, request, turn)
        self._downgrade_if_due(group, turn)
        return response

    def sync(
        self, group: ConsumerGroup, message: SyncGroupRequest, turn: Turn
    ) -> SyncGroupResponse:
        try:
            return self._members.sync(group, message, turn)
        except Refused as reason:
            return SyncGroupResponse(error_code=reason.code)

    def classic_heartbeat(
        self, group: ConsumerGroup, message: HeartbeatRequest, turn: Turn
    ) -> ErrorCode:
        try:
            return self._members.heartbeat(group, message, turn)
        except Refused as reason:
            return reason.code

    def leave(
        self, group: ConsumerGroup, message: LeaveGroupRequest, turn: Turn
    ) -> LeaveGroupResponse:
        """Remove every listed member, with an error code for each that cannot be removed."""
        responses = []
        leaving: dict[str, None] = {}
        for identity in message.members:
            code = ErrorCode.NONE
            try:
                leaving[self._members.leaving(group, identity).member_id] = None
            except Refused as reason:
                code = reason.code
            responses.append(answer_leaving(identity, code))
        if leaving:
            self._protocol.remove(group, leaving, turn)
            self._downgrade_if_due(group, turn)
        return LeaveGroupResponse(members=responses)

    # Loading, describing

    def restore(self, values: Mapping[ConsumerKey, bytes]) -> None:
        """Build groups from the last record of every key."""
        recorded: dict[str, RecordedGroup] = {}
        for key, value in values.items():
            of_group = recorded.setdefault(key.group_id, RecordedGroup(group_id=key.group_id))
            of_group.values[key] = value
        for group_id, of_group in recorded.items():
            group = of_group.restore(
                session_timeout_ms=self._settings.consumer_session_timeout_ms,
                default_assignor=self._settings.consumer_assignors[0],
            )
            if group is not None:
                self._groups[group_id] = group

    def resume(self, group: ConsumerGroup, turn: Turn) -> None:
        self._protocol.resume(group, turn)
        # The last member of the consumer protocol may have left just before the end of the log.
        self._downgrade_if_due(group, turn)

    def describe(self, group_id: str) -> ConsumerGroupDescribedGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            why = "not found" if group is None else "not a consumer group"
            return ConsumerGroupDescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is {why}.",
                group_id=group_id,
            )
        return ConsumerGroupDescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor_name,
            members=[self._described(group, member) for member in group.members.values()],
        )

    def _described(
        self, group: ConsumerGroup, member: ConsumerMember
    ) -> ConsumerGroupDescribeMember:
        return ConsumerGroupDescribeMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_names),
            subscribed_topic_regex=member.subscribed_regex,
            assignment=self._named(member.assigned),
            target_assignment=self._named(group.target_of(member.member_id)),
            member_type=MEMBER_TYPE_CONSUMER if member.classic is None else MEMBER_TYPE_CLASSIC,
        )

    def _named(
        self, partitions: Mapping[uuid.UUID, frozenset[int]]
    ) -> ConsumerGroupDescribeAssignment:
        return ConsumerGroupDescribeAssignment(
            topic_partitions=[
                ConsumerGroupDescribeTopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=sorted(indexes)
                )
                for topic_id, indexes in partitions.items()
                if (name := self._topics.topic_name(topic_id)) is not None
            ]
        )

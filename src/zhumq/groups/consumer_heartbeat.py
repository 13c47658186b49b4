"""The consumer group protocol (KIP-848): heartbeats, leaving and expired deadlines."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from zhumq.groups.assignors import Partitions
from zhumq.groups.consumer import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from zhumq.groups.consumer_reconcile import reconcile
from zhumq.groups.consumer_records import (
    current_record,
    member_deletions,
    member_record,
    target_record,
)
from zhumq.groups.consumer_regex import RegexInvalid, TopicRegex
from zhumq.groups.consumer_targets import ConsumerTargets
from zhumq.groups.consumer_topics import ClusterTopics, MayDescribe
from zhumq.groups.group import DeadlineKey, DeadlineKind, Turn
from zhumq.groups.persisted import fits
from zhumq.groups.requests import GroupRequest
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    TopicIdPartitions,
)

CLIENT_ID_LENGTH_MAX = 255  # of a client id as it is stored and shown
MEMBER_ID_OF_CLIENT_SINCE_VERSION = 1  # KIP-1082
UNCHANGED_TIMEOUT_MS = -1


class Refused(Exception):
    """A refused heartbeat. Nothing has changed."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class ConsumerProtocol:
    """The rules by which a consumer group changes. Holds no group state."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: ClusterTopics,
        draw_member_suffix: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._targets = ConsumerTargets(topics, record_bytes_max=settings.group_record_bytes_max)
        self._draw_member_suffix = draw_member_suffix

    def check(self, message: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """Check what does not depend on the group, and that all texts fit into a record. Raises Refused."""
        epoch = message.member_epoch
        if not self._settings.consumer_protocol_enabled:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled."
            )
        for name, text in (
            ("GroupId", message.group_id),
            ("InstanceId", message.instance_id),
            ("RackId", message.rack_id),
        ):
            if text is not None and (not text.strip() or not fits(text)):
                raise invalid(f"{name} can't be empty or longer than a record can hold.")
        if not fits(message.member_id) or not fits(message.subscribed_topic_regex or ""):
            raise invalid("MemberId and SubscribedTopicRegex must fit into a record.")
        if epoch < AWAY_EPOCH:
            raise invalid("MemberEpoch is invalid.")
        if not message.member_id and (
            epoch != JOINING_EPOCH or version >= MEMBER_ID_OF_CLIENT_SINCE_VERSION
        ):
            raise invalid("MemberId can't be empty.")
        if epoch == AWAY_EPOCH and message.instance_id is None:
            raise invalid("InstanceId can't be null.")
        if epoch == JOINING_EPOCH:
            if message.rebalance_timeout_ms < 0:
                raise invalid("RebalanceTimeoutMs must be provided in first request.")
            if message.topic_partitions is None or message.topic_partitions:
                raise invalid("TopicPartitions must be empty when (re-)joining.")
            if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
                raise invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                    "(re-)joining."
                )
        assignor = message.server_assignor
        if assignor is not None and assignor not in self._settings.consumer_assignors:
            known = ", ".join(self._settings.consumer_assignors)
            raise Refused(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {assignor} is not supported. Supported assignors: {known}.",
            )

    # Heartbeat

    def heartbeat(
        self,
        group: ConsumerGroup,
        message: ConsumerGroupHeartbeatRequest,
        request: GroupRequest,
        turn: Turn,
    ) -> ConsumerGroupHeartbeatResponse:
        """Join or continue: update the member's subscription and reconcile it by one step."""
        owned = _read(message.topic_partitions)
        replaced, member = self._member_for(group, message, owned)
        asked = _updated_by(member, message, request)
        self._check_member(group, member, asked)
        # No refusal from here on.
        if replaced is not None:
            self.replace_static(group, replaced, member, turn)
        updated = self.update(group, asked, owned, turn, request.may_describe)
        group.begin_session(updated, turn)
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._settings.consumer_heartbeat_interval_ms,
        )
        if _is_full(message) or updated.assigned != member.assigned:
            response.assignment = assignment_of(updated.assigned)
        return response

    def _member_for(
        self,
        group: ConsumerGroup,
        message: ConsumerGroupHeartbeatRequest,
        owned: Partitions | None,
    ) -> tuple[ConsumerMember | None, ConsumerMember]:
        """The member that it replaces, if any, and the sender: as it is known or, if it joins, a new member."""
        joins = message.member_epoch == JOINING_EPOCH
        member_id = message.member_id or self._draw_member_suffix()
        member = group.members.get(member_id)
        instance_id = message.instance_id
        holder = None if instance_id is None else group.static_member(instance_id)
        if holder is not None and holder.member_id != member_id:
            if not joins:
                raise Refused(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} was fenced by "
                    f"member {holder.member_id}.",
                )
            if holder.epoch != AWAY_EPOCH and holder.classic is None:
                raise Refused(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the "
                    f"group because the instance id is owned by member {holder.member_id}.",
                )
            return holder, successor_of(holder, member_id)
        if member is None or (instance_id is not None and holder is None):
            if not joins:
                raise unknown_member(member_id, group.group_id)
            if member is None:
                self.check_room(group)
            return None, member or ConsumerMember(member_id=member_id, instance_id=instance_id)
        if not joins:
            _check_epoch(member, message.member_epoch, owned)
        return None, member

    def check_room(self, group: ConsumerGroup) -> None:
        if len(group.members) >= self._settings.consumer_members_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{self._settings.consumer_members_max} members.",
            )

    def _check_member(
        self, group: ConsumerGroup, member: ConsumerMember, asked: ConsumerMember
    ) -> None:
        pattern = asked.subscribed_regex
        if pattern is not None and pattern not in group.regexes:
            try:
                TopicRegex(pattern)
            except RegexInvalid as error:
                raise Refused(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{pattern[:100]}` is not a valid regular expression: "
                    f"{error}.",
                ) from error
        if asked is not member and asked != member:
            self.check_size(group, asked)

    def check_size(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Refuse a member that does not fit into one record."""
        record = member_record(group.group_id, member)
        if len(record.key) + len(record.value or b"") > self._settings.group_record_bytes_max:
            raise invalid("The subscription is too large.")

    # For members of either protocol

    def update(
        self,
        group: ConsumerGroup,
        asked: ConsumerMember,
        owned: Partitions | None,
        turn: Turn,
        may_describe: MayDescribe,
    ) -> ConsumerMember:
        """Update a member, compute a new target assignment if needed, and reconcile the member."""
        before = group.members.get(asked.member_id)
        changed = False
        if asked is not before and asked != before:
            group.put_member(asked)
            turn.record([member_record(group.group_id, asked)])
            changed = before is None or _asks_for_other_partitions(before, asked)
        self._targets.refresh(group, turn, changed=changed, may_describe=may_describe)
        updated = reconcile(
            asked,
            target=group.target_of(asked.member_id),
            target_epoch=group.assignment_epoch,
            owners=group.owners,
            owned=owned,
        )
        if updated is not asked or before is None:
            group.put_member(updated)
            turn.record([current_record(group.group_id, updated)])
            self._watch_revocation(group, updated, turn)
        return updated

    def replace_static(
        self,
        group: ConsumerGroup,
        replaced: ConsumerMember,
        successor: ConsumerMember,
        turn: Turn,
    ) -> None:
        """KIP-848: a static member rejoins with a new id, and keeps its target assignment."""
        target = group.target_of(replaced.member_id)
        self._delete_member(group, replaced.member_id, turn)
        group.put_member(successor)
        group.targets[successor.member_id] = target
        turn.record(
            [
                member_record(group.group_id, successor),
                target_record(group.group_id, successor.member_id, target),
                current_record(group.group_id, successor),
            ]
        )

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
        key = rebalance_deadline(group, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            turn.set_deadline(key, member.rebalance_timeout_ms)
        else:
            turn.deadlines.cancel(key)

    # Leaving

    def leave(
        self, group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest, turn: Turn
    ) -> ConsumerGroupHeartbeatResponse:
        """Remove a member, or mark a static member as temporarily away."""
        member = group.members.get(message.member_id)
        if message.instance_id is not None:
            holder = group.static_member(message.instance_id)
            if holder is not None and holder is not member:
                raise Refused(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {message.member_id} was fenced by member {holder.member_id}.",
                )
            member = holder
        if member is None:
            raise unknown_member(message.member_id, group.group_id)
        if message.member_epoch == AWAY_EPOCH:
            self._leave_temporarily(group, member, turn)
        else:
            self.remove(group, [member.member_id], turn)
        return ConsumerGroupHeartbeatResponse(
            member_id=message.member_id, member_epoch=message.member_epoch
        )

    def _leave_temporarily(self, group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
        """Keep its session running: if it does not return in time, its partitions go to other members."""
        away = replace(
            member,
            epoch=AWAY_EPOCH,
            previous_epoch=member.epoch,
            state=MemberState.STABLE,
            pending_revocation={},
        )
        group.put_member(away)
        turn.record([current_record(group.group_id, away)])
        turn.deadlines.cancel(rebalance_deadline(group, member.member_id))

    def remove(self, group: ConsumerGroup, member_ids: Iterable[str], turn: Turn) -> None:
        """Remove members; their partitions go to other members with those members' next heartbeats."""
        for member_id in member_ids:
            self._delete_member(group, member_id, turn)
        # Other members may not use their topics and expressions.
        group.topics_version = None
        self._targets.bump(group, turn)

    def _delete_member(self, group: ConsumerGroup, member_id: str, turn: Turn) -> None:
        group.remove_member(member_id)
        turn.record(member_deletions(group.group_id, member_id))
        turn.deadlines.cancel(DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id))
        turn.deadlines.cancel(rebalance_deadline(group, member_id))

    # Loading

    def resume(self, group: ConsumerGroup, turn: Turn) -> None:
        """Start a full session for every member of a group that was read from the log."""
        for member in group.members.values():
            group.begin_session(member, turn)
            self._watch_revocation(group, member, turn)


def refused(reason: Refused) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=reason.code, error_message=str(reason))


def successor_of(replaced: ConsumerMember, member_id: str) -> ConsumerMember:
    """The same static member with another id. It starts at the joining epoch, with nothing to revoke."""
    return replace(
        replaced,
        member_id=member_id,
        epoch=JOINING_EPOCH,
        previous_epoch=JOINING_EPOCH,
        state=MemberState.STABLE,
        pending_revocation={},
    )


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    if epoch == member.epoch:
        return
    # The response with the new epoch may be lost; accepted if the member owns only assigned partitions.
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and owned is not None
        and all(
            indexes <= member.assigned.get(topic_id, frozenset())
            for topic_id, indexes in owned.items()
        )
    ):
        return
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member epoch {epoch} is not the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _updated_by(
    member: ConsumerMember, message: ConsumerGroupHeartbeatRequest, request: GroupRequest
) -> ConsumerMember:
    """The member with the fields that the heartbeat sets; the others stay."""
    names = message.subscribed_topic_names
    regex = message.subscribed_topic_regex
    if (
        names is None
        and regex is None
        and message.server_assignor is None
        and message.rack_id is None
        and message.rebalance_timeout_ms == UNCHANGED_TIMEOUT_MS
        and message.instance_id in (None, member.instance_id)
        and member.classic is None
    ):
        # Nearly every heartbeat changes nothing.
        return member
    return replace(
        member,
        instance_id=member.instance_id if message.instance_id is None else message.instance_id,
        rack_id=member.rack_id if message.rack_id is None else message.rack_id,
        client_id=request.client_id[:CLIENT_ID_LENGTH_MAX],
        client_host=request.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if message.rebalance_timeout_ms == UNCHANGED_TIMEOUT_MS
        else max(message.rebalance_timeout_ms, 0),
        server_assignor=member.server_assignor
        if message.server_assignor is None
        else message.server_assignor,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        # An empty expression removes the previous one.
        subscribed_regex=member.subscribed_regex if regex is None else regex or None,
        classic=None,
    )


def _asks_for_other_partitions(before: ConsumerMember, asked: ConsumerMember) -> bool:
    return (before.subscribed_names, before.subscribed_regex, before.server_assignor) != (
        asked.subscribed_names,
        asked.subscribed_regex,
        asked.server_assignor,
    )


def _is_full(message: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the heartbeat has all fields: the member joins, or resynchronizes."""
    return (
        message.rebalance_timeout_ms != UNCHANGED_TIMEOUT_MS
        and message.topic_partitions is not None
        and (
            message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None
        )
    )


def _read(written: list[TopicIdPartitions] | None) -> Partitions | None:
    if written is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in written}


def assignment_of(partitions: Partitions) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            TopicIdPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
        ]
    )


def rebalance_deadline(group: ConsumerGroup, member_id: str) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.REBALANCE, group.group_id, member_id)


def invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, why)


def unknown_member(member_id: str, group_id: str) -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )

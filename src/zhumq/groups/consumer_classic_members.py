"""Members of a consumer group that use the classic protocol: join, sync, heartbeat, leave (KIP-848)."""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace

from zhumq.groups.assignors import Partitions
from zhumq.groups.classic import Protocols, protocols_of
from zhumq.groups.consumer import ClassicSide, ConsumerGroup, ConsumerMember, MemberState
from zhumq.groups.consumer_heartbeat import (
    CLIENT_ID_LENGTH_MAX,
    ConsumerProtocol,
    Refused,
    rebalance_deadline,
    successor_of,
)
from zhumq.groups.consumer_protocol import PROTOCOL_TYPE
from zhumq.groups.consumer_topics import ClusterTopics
from zhumq.groups.group import Turn
from zhumq.groups.requests import GroupRequest
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.messages.coordinator_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_versioned,
    encode_versioned,
)
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_ID_REQUIRED_SINCE_VERSION = 4  # KIP-394
ASSIGNMENT_VERSION_MAX = 3


class ClassicMembers:
    """Translates: a join is a heartbeat with owned partitions, a sync returns the resulting assignment.

    No member is leader. When a member's assignment changes, its heartbeat is answered with
    REBALANCE_IN_PROGRESS, and only this member joins again.
    """

    def __init__(
        self,
        protocol: ConsumerProtocol,
        topics: ClusterTopics,
        draw_member_suffix: Callable[[], str],
    ) -> None:
        self._protocol = protocol
        self._topics = topics
        self._draw_member_suffix = draw_member_suffix

    def join(
        self, group: ConsumerGroup, message: JoinGroupRequest, request: GroupRequest, turn: Turn
    ) -> JoinGroupResponse:
        """Add or update a member. Raises Refused, and then nothing has changed."""
        protocols = protocols_of(message.protocols)
        _check_protocols(group, message, protocols)
        subscription = read_subscription(protocols[0][1])
        if subscription is None:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the metadata is not a consumer subscription"
            )
        member_id = message.member_id
        instance_id = message.group_instance_id
        if not member_id and instance_id is None:
            member_id = f"{request.client_id[:CLIENT_ID_LENGTH_MAX]}-{self._draw_member_suffix()}"
            if request.version >= MEMBER_ID_REQUIRED_SINCE_VERSION:
                return JoinGroupResponse(
                    error_code=ErrorCode.MEMBER_ID_REQUIRED,
                    member_id=member_id,
                    protocol_name=None if request.version >= 7 else "",
                )
        claims = any(each.partitions for each in subscription.owned_partitions)
        if claims and member_id not in group.members:
            # It was removed while it was away: UNKNOWN_MEMBER_ID makes it give up its partitions.
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the member was removed")
        replaced, member = self._member_for(group, member_id, instance_id)
        asked = replace(
            member,
            client_id=request.client_id[:CLIENT_ID_LENGTH_MAX],
            client_host=request.client_host,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=message.session_timeout_ms
            if request.version == 0
            else max(message.rebalance_timeout_ms, 0),
            server_assignor=None,
            subscribed_names=frozenset(subscription.topics),
            subscribed_regex=None,
            classic=ClassicSide(session_timeout_ms=message.session_timeout_ms, protocols=protocols),
        )
        self._protocol.check_size(group, asked)
        if replaced is not None:
            self._protocol.replace_static(group, replaced, member, turn)
        owned = partitions_by_id(subscription.owned_partitions, self._topics)
        updated = self._protocol.update(group, asked, owned, turn, request.may_describe)
        group.begin_session(updated, turn)
        # It must send SyncGroup in time; heartbeats are not enough.
        turn.set_deadline(
            rebalance_deadline(group, updated.member_id), updated.rebalance_timeout_ms
        )
        return JoinGroupResponse(
            generation_id=updated.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocols[0][0],
            member_id=updated.member_id,
        )

    def _member_for(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember | None, ConsumerMember]:
        if instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                self._protocol.check_room(group)
            return None, member or ConsumerMember(member_id=member_id)
        holder = group.static_member(instance_id)
        if member_id:
            return None, _find(group, member_id, instance_id)
        member_id = f"{instance_id}-{self._draw_member_suffix()}"
        if holder is None:
            self._protocol.check_room(group)
            return None, ConsumerMember(member_id=member_id, instance_id=instance_id)
        return holder, successor_of(holder, member_id)

    def sync(
        self, group: ConsumerGroup, message: SyncGroupRequest, turn: Turn
    ) -> SyncGroupResponse:
        """The member's current assignment."""
        member = _find(group, message.member_id, message.group_instance_id)
        classic = _classic_side(member)
        if message.generation_id != member.epoch:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, "the generation is not the member's epoch")
        if message.protocol_type not in (None, PROTOCOL_TYPE) or message.protocol_name not in (
            None,
            classic.protocol_name,
        ):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol is not the member's")
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member, turn)
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "the group has a new epoch")
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            turn.deadlines.cancel(rebalance_deadline(group, member.member_id))
        group.begin_session(member, turn)
        return SyncGroupResponse(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=classic.protocol_name,
            assignment=write_assignment(member, self._topics),
        )

    def heartbeat(self, group: ConsumerGroup, message: HeartbeatRequest, turn: Turn) -> ErrorCode:
        """Renew the member's session and answer whether it must rejoin."""
        member = _find(group, message.member_id, message.group_instance_id)
        _classic_side(member)
        if message.generation_id != member.epoch:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, "the generation is not the member's epoch")
        group.begin_session(member, turn)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not group.is_waiting_for_others(member)
            )
        ):
            self._expect_join(group, member, turn)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leaving(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        """The member that a LeaveGroup names. Raises Refused."""
        if not identity.member_id:
            # An administrator removes a static member of either protocol by its instance id alone.
            holder = group.static_member(identity.group_instance_id or "")
            if identity.group_instance_id is None or holder is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "no such static member")
            return holder
        member = _find(group, identity.member_id, identity.group_instance_id)
        _classic_side(member)
        return member

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
        key = rebalance_deadline(group, member.member_id)
        if key not in turn.deadlines:
            turn.set_deadline(key, member.rebalance_timeout_ms)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """The decoded subscription of a classic consumer; None if it is not one."""
    try:
        return decode_versioned(ConsumerProtocolSubscription, metadata)[1]
    except MalformedFrame:
        return None


def partitions_by_id(
    named: Iterable[ConsumerProtocolTopicPartition], topics: ClusterTopics
) -> Partitions:
    """The partitions of existing topics, by topic id."""
    found: dict[uuid.UUID, frozenset[int]] = {}
    for each in named:
        shape = topics.shape(each.topic)
        if shape is not None and each.partitions:
            before = found.get(shape.topic_id, frozenset())
            found[shape.topic_id] = before | frozenset(each.partitions)
    return found


def write_assignment(member: ConsumerMember, topics: ClusterTopics) -> bytes:
    """A member's assignment, encoded in the version of the classic protocol that it uses."""
    metadata = b"\x00\x00" if member.classic is None else member.classic.protocols[0][1]
    version = int.from_bytes(metadata[:2], "big", signed=True)
    named = [
        ConsumerProtocolTopicPartition(topic=name, partitions=sorted(indexes))
        for topic_id, indexes in member.assigned.items()
        if (name := topics.topic_name(topic_id)) is not None
    ]
    return encode_versioned(
        ConsumerProtocolAssignment(assigned_partitions=named),
        min(max(version, 0), ASSIGNMENT_VERSION_MAX),
    )


def _check_protocols(group: ConsumerGroup, message: JoinGroupRequest, protocols: Protocols) -> None:
    """Keep a downgrade possible: all classic members must have one protocol in common."""
    common = {name for name, _ in protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != message.member_id:
            common &= {name for name, _ in member.classic.protocols}
    if message.protocol_type != PROTOCOL_TYPE or not common:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocols are not supported")


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is not None:
        # KIP-345: an instance id belongs to the member that joined with it last.
        holder = group.static_member(instance_id)
        if holder is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "no such static member")
        if holder.member_id != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, "another member has this instance id")
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "no such member")
    return member


def _classic_side(member: ConsumerMember) -> ClassicSide:
    if member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the member uses the consumer protocol")
    return member.classic

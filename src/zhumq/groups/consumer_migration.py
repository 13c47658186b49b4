"""Online migration of a group with its members: classic to consumer protocol, and back (KIP-848)."""

from collections.abc import Iterable
from dataclasses import replace

from zhumq.groups.assignors import Partitions
from zhumq.groups.classic import ClassicGroup, ClassicGroupState, ClassicMember
from zhumq.groups.consumer import ClassicSide, ConsumerGroup, ConsumerMember, MemberState
from zhumq.groups.consumer_classic_members import (
    partitions_by_id,
    read_subscription,
    write_assignment,
)
from zhumq.groups.consumer_heartbeat import Refused
from zhumq.groups.consumer_protocol import PROTOCOL_TYPE
from zhumq.groups.consumer_topics import ClusterTopics, shapes_hash
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.messages.coordinator_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_versioned,
)

# The user data of these assignors only helps to keep partitions where they are.
ASSIGNORS_OF_CLIENTS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


def upgraded(
    classic: ClassicGroup, settings: GroupSettings, topics: ClusterTopics
) -> ConsumerGroup:
    """The group converted to the consumer protocol. Raises Refused; does not change `classic`."""
    group = ConsumerGroup(
        classic.group_id,
        session_timeout_ms=settings.consumer_session_timeout_ms,
        default_assignor=settings.consumer_assignors[0],
    )
    group.epoch = group.assignment_epoch = classic.generation
    if classic.is_empty:
        # There are no members to convert; the committed offsets stay.
        return group
    if not settings.consumer_migration_policy.upgrades:
        raise _cannot_upgrade(classic, "the migration policy forbids it")
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _cannot_upgrade(classic, "its members are not consumers")
    if len(classic.members) >= settings.consumer_members_max:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group has too many members.")
    subscriptions = {
        each.member_id: _subscription(each, classic) for each in classic.members.values()
    }
    for each in classic.members.values():
        member = _to_consumer(each, subscriptions[each.member_id], classic, topics, group)
        group.put_member(member)
        group.targets[member.member_id] = member.assigned
    for member in list(group.members.values()):
        claimed = subscriptions[member.member_id].owned_partitions
        group.put_member(_with_revocation(member, _free(claimed, topics, group)))
    for name in group.subscribed_names:
        shape = topics.shape(name)
        if shape is not None:
            group.shapes[name] = shape
    group.metadata_hash = shapes_hash(group.shapes)
    return group


def downgraded(
    group: ConsumerGroup, settings: GroupSettings, topics: ClusterTopics, now_ms: int
) -> ClassicGroup | None:
    """The group converted to the classic protocol; None if that is not due."""
    if not group.members or not group.has_only_classic_members:
        return None
    if not settings.consumer_migration_policy.downgrades:
        return None
    if len(group.members) > settings.members_max:
        return None
    return ClassicGroup.with_members(
        group.group_id,
        generation=group.epoch,
        members=[_to_classic(member, topics) for member in group.members.values()],
        now_ms=now_ms,
    )


def _subscription(member: ClassicMember, classic: ClassicGroup) -> ConsumerProtocolSubscription:
    subscription = read_subscription(member.protocols[0][1])
    if subscription is None:
        raise _cannot_upgrade(classic, "a subscription cannot be decoded")
    return subscription


def _to_consumer(
    member: ClassicMember,
    subscription: ConsumerProtocolSubscription,
    classic: ClassicGroup,
    topics: ClusterTopics,
    group: ConsumerGroup,
) -> ConsumerMember:
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_names=frozenset(subscription.topics),
        classic=ClassicSide(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=_free(_current_partitions(member, subscription, classic), topics, group),
    )


def _with_revocation(member: ConsumerMember, claimed: Partitions) -> ConsumerMember:
    """Add partitions that the member reported as owned and was not assigned: it may still be reading them."""
    if not claimed:
        return member
    return replace(member, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=claimed)


def _free(
    named: Iterable[ConsumerProtocolTopicPartition], topics: ClusterTopics, group: ConsumerGroup
) -> Partitions:
    """The partitions without an owner. A custom assignor may assign one partition twice."""
    found = {
        topic_id: frozenset(each for each in indexes if (topic_id, each) not in group.owners)
        for topic_id, indexes in partitions_by_id(named, topics).items()
    }
    return {topic_id: indexes for topic_id, indexes in found.items() if indexes}


def _current_partitions(
    member: ClassicMember, subscription: ConsumerProtocolSubscription, classic: ClassicGroup
) -> list[ConsumerProtocolTopicPartition]:
    """The partitions that a member may be reading now."""
    if not member.assignment:
        # During a rebalance it may still read the partitions that it reported as owned when it joined.
        stable = classic.state is ClassicGroupState.STABLE
        return [] if stable else subscription.owned_partitions
    try:
        _, assignment = decode_versioned(ConsumerProtocolAssignment, member.assignment)
    except MalformedFrame as error:
        raise _cannot_upgrade(classic, "an assignment cannot be decoded") from error
    if assignment.user_data and classic.protocol_name not in ASSIGNORS_OF_CLIENTS:
        # The user data of a custom assignor would be lost.
        raise _cannot_upgrade(classic, "its assignor uses custom user data")
    return assignment.assigned_partitions


def _to_classic(member: ConsumerMember, topics: ClusterTopics) -> ClassicMember:
    classic = member.classic
    assert classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
        assignment=write_assignment(member, topics),
    )


def _cannot_upgrade(classic: ClassicGroup, why: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {classic.group_id} cannot be upgraded to a consumer group: {why}.",
    )

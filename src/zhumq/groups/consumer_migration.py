"""A group changes its protocol while its members go on: classic to consumer, and back. KIP-848."""

from zhumq.groups.classic import ClassicGroup, ClassicMember
from zhumq.groups.consumer import ClassicSide, ConsumerGroup, ConsumerMember
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
from zhumq.protocol.messages.coordinator_records import ConsumerProtocolAssignment, decode_versioned


def upgraded(
    classic: ClassicGroup, settings: GroupSettings, topics: ClusterTopics
) -> ConsumerGroup:
    """The same group with the coordinator assigning. Raises Refused; changes nothing itself."""
    group = ConsumerGroup(
        classic.group_id,
        session_timeout_ms=settings.consumer_session_timeout_ms,
        default_assignor=settings.consumer_assignors[0],
    )
    if classic.is_empty:
        # Nobody is there to take along; what was committed stays.
        return group
    if not settings.consumer_migration_policy.upgrades:
        raise _not_a_consumer_group(classic, "and must not become one")
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _not_a_consumer_group(classic, "nor one of consumers")
    if len(classic.members) >= settings.consumer_members_max:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group has too many members.")
    group.epoch = group.assignment_epoch = classic.generation
    for each in classic.members.values():
        member = _taken_over(each, classic, topics, group)
        group.put_member(member)
        group.targets[member.member_id] = member.assigned
    for name in group.subscribed_names:
        shape = topics.shape(name)
        if shape is not None:
            group.shapes[name] = shape
    group.metadata_hash = shapes_hash(group.shapes)
    return group


def downgraded(
    group: ConsumerGroup, settings: GroupSettings, topics: ClusterTopics, now_ms: int
) -> ClassicGroup | None:
    """The same group with a member assigning; None if that is not due."""
    if not group.members or not group.speaks_classic_only:
        return None
    if not settings.consumer_migration_policy.downgrades:
        return None
    if len(group.members) > settings.members_max:
        return None
    return ClassicGroup.with_members(
        group.group_id,
        generation=group.epoch,
        members=[_given_back(member, topics) for member in group.members.values()],
        now_ms=now_ms,
    )


def _taken_over(
    member: ClassicMember, classic: ClassicGroup, topics: ClusterTopics, group: ConsumerGroup
) -> ConsumerMember:
    subscription = read_subscription(member.protocols[0][1])
    if subscription is None:
        raise _not_a_consumer_group(classic, "because a subscription cannot be read")
    assigned = {}
    if member.assignment:
        try:
            _, assignment = decode_versioned(ConsumerProtocolAssignment, member.assignment)
        except MalformedFrame as error:
            raise _not_a_consumer_group(classic, "because an assignment cannot be read") from error
        if assignment.user_data:
            # What an assignor of the user's own tells its members would be lost.
            raise _not_a_consumer_group(classic, "because its assignor has data of its own")
        found = partitions_by_id(assignment.assigned_partitions, topics)
        for topic_id, indexes in found.items():
            # An assignor of the user's own may have given a partition to two; only one can have it.
            free = frozenset(each for each in indexes if (topic_id, each) not in group.owners)
            if free:
                assigned[topic_id] = free
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
        assigned=assigned,
    )


def _given_back(member: ConsumerMember, topics: ClusterTopics) -> ClassicMember:
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


def _not_a_consumer_group(classic: ClassicGroup, why: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} is not a consumer group, {why}."
    )

"""A group changes its protocol while its members go on: classic to consumer, and back. KIP-848."""

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

# What these tell their members beside partitions only helps them to keep partitions where they are.
ASSIGNORS_OF_CLIENTS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


def upgraded(
    classic: ClassicGroup, settings: GroupSettings, topics: ClusterTopics
) -> ConsumerGroup:
    """The same group with the coordinator assigning. Raises Refused; changes nothing itself."""
    group = ConsumerGroup(
        classic.group_id,
        session_timeout_ms=settings.consumer_session_timeout_ms,
        default_assignor=settings.consumer_assignors[0],
    )
    group.epoch = group.assignment_epoch = classic.generation
    if classic.is_empty:
        # Nobody is there to take along; what was committed stays.
        return group
    if not settings.consumer_migration_policy.upgrades:
        raise _not_a_consumer_group(classic, "and must not become one")
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _not_a_consumer_group(classic, "nor one of consumers")
    if len(classic.members) >= settings.consumer_members_max:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group has too many members.")
    subscriptions = {
        each.member_id: _subscription(each, classic) for each in classic.members.values()
    }
    for each in classic.members.values():
        member = _taken_over(each, subscriptions[each.member_id], classic, topics, group)
        group.put_member(member)
        group.targets[member.member_id] = member.assigned
    for member in list(group.members.values()):
        claimed = subscriptions[member.member_id].owned_partitions
        group.put_member(_with_claims(member, _free(claimed, topics, group)))
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


def _subscription(member: ClassicMember, classic: ClassicGroup) -> ConsumerProtocolSubscription:
    subscription = read_subscription(member.protocols[0][1])
    if subscription is None:
        raise _not_a_consumer_group(classic, "because a subscription cannot be read")
    return subscription


def _taken_over(
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
        assigned=_free(_had(member, subscription, classic), topics, group),
    )


def _with_claims(member: ConsumerMember, claimed: Partitions) -> ConsumerMember:
    """What it said it had when it joined and was not given again it may be reading to this moment."""
    if not claimed:
        return member
    return replace(member, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=claimed)


def _free(
    named: Iterable[ConsumerProtocolTopicPartition], topics: ClusterTopics, group: ConsumerGroup
) -> Partitions:
    """Those of the partitions that nobody has. An assignor of the user's own may give one to two."""
    found = {
        topic_id: frozenset(each for each in indexes if (topic_id, each) not in group.owners)
        for topic_id, indexes in partitions_by_id(named, topics).items()
    }
    return {topic_id: indexes for topic_id, indexes in found.items() if indexes}


def _had(
    member: ClassicMember, subscription: ConsumerProtocolSubscription, classic: ClassicGroup
) -> list[ConsumerProtocolTopicPartition]:
    """What a member may be reading now."""
    if not member.assignment:
        # In the middle of a rebalance it may still have what it had, and said so when it joined.
        stable = classic.state is ClassicGroupState.STABLE
        return [] if stable else subscription.owned_partitions
    try:
        _, assignment = decode_versioned(ConsumerProtocolAssignment, member.assignment)
    except MalformedFrame as error:
        raise _not_a_consumer_group(classic, "because an assignment cannot be read") from error
    if assignment.user_data and classic.protocol_name not in ASSIGNORS_OF_CLIENTS:
        # What an assignor of the user's own tells its members would be lost.
        raise _not_a_consumer_group(classic, "because its assignor has data of its own")
    return assignment.assigned_partitions


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

"""The records of a consumer group: writing and reading."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from zhumq.groups.assignors import Partitions
from zhumq.groups.consumer import ClassicSide, ConsumerGroup, ConsumerMember, MemberState
from zhumq.groups.persisted import ConsumerKey, ConsumerRecordKind, encode_group_key
from zhumq.model.errors import MalformedFrame
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.consumer_groups import TopicIdPartitions
from zhumq.protocol.messages.coordinator_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    decode_versioned,
    encode_versioned,
)
from zhumq.protocol.schema import Message

VALUE_VERSION = 0

M = TypeVar("M", bound=Message)


# Writing


def group_epoch_record(group: ConsumerGroup) -> StateRecord:
    return _record(
        ConsumerKey(ConsumerRecordKind.GROUP, group.group_id),
        ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> StateRecord:
    """A member's subscription."""
    classic = member.classic
    return _record(
        ConsumerKey(ConsumerRecordKind.MEMBER, group_id, member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_names),
            subscribed_topic_regex=member.subscribed_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in classic.protocols
                ],
            ),
        ),
    )


def target_epoch_record(group: ConsumerGroup) -> StateRecord:
    return _record(
        ConsumerKey(ConsumerRecordKind.TARGET_EPOCH, group.group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> StateRecord:
    """A member's target assignment."""
    return _record(
        ConsumerKey(ConsumerRecordKind.TARGET, group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_written(target)),
    )


def current_record(group_id: str, member: ConsumerMember) -> StateRecord:
    """A member's current assignment."""
    return _record(
        ConsumerKey(ConsumerRecordKind.CURRENT, group_id, member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_written(member.assigned),
            partitions_pending_revocation=_written(member.pending_revocation),
        ),
    )


def regex_record(group_id: str, pattern: str, topics: Iterable[str]) -> StateRecord:
    """The topics that an expression matches."""
    return _record(
        ConsumerKey(ConsumerRecordKind.REGEX, group_id, pattern),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics)),
    )


def deletion(kind: ConsumerRecordKind, group_id: str, name: str = "") -> StateRecord:
    return StateRecord(key=encode_group_key(ConsumerKey(kind, group_id, name)), value=None)


def member_deletions(group_id: str, member_id: str) -> list[StateRecord]:
    """The tombstones of a member, the current assignment first, as in Kafka."""
    return [
        deletion(kind, group_id, member_id)
        for kind in (
            ConsumerRecordKind.CURRENT,
            ConsumerRecordKind.TARGET,
            ConsumerRecordKind.MEMBER,
        )
    ]


def records_of(group: ConsumerGroup) -> Iterator[StateRecord]:
    """All records of the group. At any time equal to its last records in the log."""
    group_id = group.group_id
    for member in group.members.values():
        yield member_record(group_id, member)
    for pattern, topics in group.regexes.items():
        yield regex_record(group_id, pattern, topics)
    yield group_epoch_record(group)
    for member_id, target in group.targets.items():
        yield target_record(group_id, member_id, target)
    yield target_epoch_record(group)
    for member in group.members.values():
        yield current_record(group_id, member)


def _record(key: ConsumerKey, value: Message) -> StateRecord:
    return StateRecord(key=encode_group_key(key), value=encode_versioned(value, VALUE_VERSION))


def _written(partitions: Partitions) -> list[TopicIdPartitions]:
    return [
        TopicIdPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
        for topic_id in sorted(partitions)
    ]


# Reading


@dataclass(slots=True, kw_only=True)
class RecordedGroup:
    """The last records of one group, collected while a log is read. In any order; any may be missing."""

    group_id: str
    values: dict[ConsumerKey, bytes] = field(default_factory=dict)

    def restore(self, *, session_timeout_ms: int, default_assignor: str) -> ConsumerGroup | None:
        """The restored group; None if its own record is missing."""
        group = ConsumerGroup(
            self.group_id,
            session_timeout_ms=session_timeout_ms,
            default_assignor=default_assignor,
        )
        epoch = self._read(ConsumerRecordKind.GROUP, "", ConsumerGroupMetadataValue)
        if epoch is None:
            return None
        group.epoch = epoch.epoch
        group.metadata_hash = epoch.metadata_hash
        target_epoch = self._read(
            ConsumerRecordKind.TARGET_EPOCH, "", ConsumerGroupTargetAssignmentMetadataValue
        )
        group.assignment_epoch = 0 if target_epoch is None else target_epoch.assignment_epoch
        for member_id in self._names(ConsumerRecordKind.MEMBER):
            member = self._member(member_id)
            if member is not None:
                group.put_member(member)
        for member_id in self._names(ConsumerRecordKind.TARGET):
            target = self._read(
                ConsumerRecordKind.TARGET, member_id, ConsumerGroupTargetAssignmentMemberValue
            )
            if target is not None and member_id in group.members:
                group.targets[member_id] = _read_partitions(target.topic_partitions)
        for pattern in self._names(ConsumerRecordKind.REGEX):
            regex = self._read(
                ConsumerRecordKind.REGEX, pattern, ConsumerGroupRegularExpressionValue
            )
            if regex is not None:
                group.regexes[pattern] = frozenset(regex.topics)
        return group

    def _names(self, kind: ConsumerRecordKind) -> list[str]:
        return [key.name for key in self.values if key.kind is kind]

    def _read(self, kind: ConsumerRecordKind, name: str, cls: type[M]) -> M | None:
        value = self.values.get(ConsumerKey(kind, self.group_id, name))
        if value is None:
            return None
        try:
            return decode_versioned(cls, value)[1]
        except MalformedFrame:
            return None

    def _member(self, member_id: str) -> ConsumerMember | None:
        asked = self._read(ConsumerRecordKind.MEMBER, member_id, ConsumerGroupMemberMetadataValue)
        if asked is None:
            return None
        classic = asked.classic_member_metadata
        member = ConsumerMember(
            member_id=member_id,
            instance_id=asked.instance_id,
            rack_id=asked.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            rebalance_timeout_ms=asked.rebalance_timeout_ms,
            server_assignor=asked.server_assignor,
            subscribed_names=frozenset(asked.subscribed_topic_names),
            subscribed_regex=asked.subscribed_topic_regex or None,
            classic=None
            if classic is None or not classic.supported_protocols
            else ClassicSide(
                session_timeout_ms=classic.session_timeout_ms,
                protocols=tuple(
                    (each.name, bytes(each.metadata)) for each in classic.supported_protocols
                ),
            ),
        )
        current = self._read(
            ConsumerRecordKind.CURRENT, member_id, ConsumerGroupCurrentMemberAssignmentValue
        )
        if current is None or current.state not in set(MemberState):
            # Written by a later version: the member starts over as if it had just joined.
            return member
        return replace(
            member,
            epoch=current.member_epoch,
            previous_epoch=current.previous_member_epoch,
            state=MemberState(current.state),
            assigned=_read_partitions(current.assigned_partitions),
            pending_revocation=_read_partitions(current.partitions_pending_revocation),
        )


def _read_partitions(written: Iterable[TopicIdPartitions]) -> Partitions:
    read: dict[uuid.UUID, frozenset[int]] = {}
    for each in written:
        read[each.topic_id] = frozenset(each.partitions) | read.get(each.topic_id, frozenset())
    return read

"""A share group (KIP-932): its members, their assignments, and its records."""

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from zhumq.groups.assignors import NOTHING, AssignedMember, Partitions, uniform
from zhumq.groups.consumer_topics import ClusterTopics, TopicShape, shapes_hash
from zhumq.groups.group import DeadlineKey, DeadlineKind, Group, GroupType, Turn
from zhumq.groups.member_memory import names_bytes
from zhumq.groups.persisted import ShareKey, ShareRecordKind, encode_group_key
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import (
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    encode_versioned,
)

PROTOCOL_TYPE = "share"
ASSIGNOR_NAME = "simple"
VALUE_VERSION = 0


class ShareGroupState(StrEnum):
    """State of a share group; tools show these names."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """One member and its subscription."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: frozenset[str] = frozenset()


class ShareGroup(Group):
    """The members of a share group. A new assignment takes effect at once: partitions are not exclusive, so no
    member has to revoke any first."""

    type = GroupType.SHARE
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str, *, session_timeout_ms: int) -> None:
        self.group_id = group_id
        self._session_timeout_ms = session_timeout_ms
        # Grows whenever the assignment may have to change; the epoch that heartbeats carry.
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        # The metadata version of the assignment; None: not assigned yet.
        self.topics_version: int | None = None

    @property
    def member_bytes(self) -> int:
        return sum(names_bytes(member.subscribed_names) for member in self.members.values())

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def refresh(self, topics: ClusterTopics, turn: Turn, *, changed: bool) -> None:
        """Start a new epoch if a member or its topics changed, and assign."""
        if not changed and self.topics_version == topics.version:
            return
        self.topics_version = topics.version
        shapes: dict[str, TopicShape] = {}
        for name in frozenset().union(*(each.subscribed_names for each in self.members.values())):
            shape = topics.shape(name)
            if shape is not None:
                shapes[name] = shape
        metadata_hash = shapes_hash(shapes)
        if not changed and metadata_hash == self.metadata_hash:
            return
        self.metadata_hash = metadata_hash
        self.epoch += 1
        turn.record([group_record(self)])
        self.targets = assign_shares(self.members, shapes, self.targets)

    def begin_session(self, member_id: str, turn: Turn) -> None:
        turn.set_deadline(
            DeadlineKey(DeadlineKind.SESSION, self.group_id, member_id), self._session_timeout_ms
        )

    # Implementation of Group

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        # It has no committed offsets that expire: its positions are in `__share_group_state` until it is deleted.
        return False

    @property
    def state_name(self) -> str:
        state = ShareGroupState.EMPTY if self.is_empty else ShareGroupState.STABLE
        return state.value

    def check_commit(
        self,
        member_id: str,  # noqa: ARG002  as in every group
        instance_id: str | None,  # noqa: ARG002
        generation: int,  # noqa: ARG002
        *,
        is_transactional: bool = False,  # noqa: ARG002
    ) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.subscribed_names for member in self.members.values())

    def renew_session(self, member_id: str, turn: Turn) -> None:
        """Only heartbeats renew a session here."""

    def tombstones(self) -> list[StateRecord]:
        keys = [
            ShareKey(ShareRecordKind.MEMBER, self.group_id, member_id) for member_id in self.members
        ]
        keys.append(ShareKey(ShareRecordKind.GROUP, self.group_id))
        return [StateRecord(key=encode_group_key(key), value=None) for key in keys]


def group_record(group: ShareGroup) -> StateRecord:
    return StateRecord(
        key=encode_group_key(ShareKey(ShareRecordKind.GROUP, group.group_id)),
        value=encode_versioned(
            ShareGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash),
            VALUE_VERSION,
        ),
    )


def member_record(group_id: str, member: ShareMember) -> StateRecord:
    return StateRecord(
        key=encode_group_key(ShareKey(ShareRecordKind.MEMBER, group_id, member.member_id)),
        value=encode_versioned(
            ShareGroupMemberMetadataValue(
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_names),
            ),
            VALUE_VERSION,
        ),
    )


def member_deletion(group_id: str, member_id: str) -> StateRecord:
    key = ShareKey(ShareRecordKind.MEMBER, group_id, member_id)
    return StateRecord(key=encode_group_key(key), value=None)


def records_of(group: ShareGroup) -> list[StateRecord]:
    """All records of a group."""
    return [
        group_record(group),
        *(member_record(group.group_id, member) for member in group.members.values()),
    ]


def assign_shares(
    members: Mapping[str, ShareMember],
    shapes: Mapping[str, TopicShape],
    before: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """Assign every partition evenly; a member without one also reads the partition with the fewest readers."""
    counts = {shape.topic_id: shape.partition_count for shape in shapes.values()}
    subscribed = {
        member.member_id: frozenset(
            shapes[name].topic_id for name in member.subscribed_names if name in shapes
        )
        for member in members.values()
    }
    owned: set[tuple[uuid.UUID, int]] = set()
    asking = []
    for member_id, topic_ids in subscribed.items():
        kept: dict[uuid.UUID, frozenset[int]] = {}
        for topic_id, indexes in before.get(member_id, NOTHING).items():
            # Of several readers of a partition only the first one is its owner, who may keep it.
            kept[topic_id] = frozenset(index for index in indexes if (topic_id, index) not in owned)
            owned.update((topic_id, index) for index in kept[topic_id])
        asking.append(AssignedMember(member_id=member_id, subscribed=topic_ids, before=kept))
    shares = dict(uniform(asking, counts))
    readers: Counter[tuple[uuid.UUID, int]] = Counter(
        (topic_id, index)
        for share in shares.values()
        for topic_id, indexes in share.items()
        for index in indexes
    )
    for member_id, topic_ids in subscribed.items():
        choice = [
            (topic_id, index) for topic_id in sorted(topic_ids) for index in range(counts[topic_id])
        ]
        if shares.get(member_id) or not choice:
            continue
        topic_id, index = min(choice, key=lambda each: readers[each])
        readers[topic_id, index] += 1
        shares[member_id] = {topic_id: frozenset({index})}
    return shares

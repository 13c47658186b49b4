"""A consumer group (KIP-848): its members, their current and target assignments, and the partition owners."""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from zhumq.groups.assignors import NOTHING, Partitions
from zhumq.groups.classic import Protocols
from zhumq.groups.consumer_protocol import PROTOCOL_TYPE
from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.group import DeadlineKey, DeadlineKind, Group, GroupType, Turn
from zhumq.groups.member_memory import names_bytes
from zhumq.groups.persisted import ConsumerKey, ConsumerRecordKind, encode_group_key
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import StateRecord

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
# A static member that leaves temporarily: its partitions stay reserved.
AWAY_EPOCH: Final = -2


class ConsumerGroupState(StrEnum):
    """State of a consumer group; tools show these names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """Progress of a member towards its target assignment; records contain these numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it must revoke partitions first
    UNRELEASED_PARTITIONS = 2  # other members must release partitions of its target


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSide:
    """The classic protocol's data of a member that still uses it."""

    session_timeout_ms: int
    protocols: Protocols

    @property
    def protocol_name(self) -> str:
        """The protocol in the member's responses. All its protocols carry the same subscription."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member: its subscription and its current assignment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str | None = None
    classic: ClassicSide | None = None
    # The epoch that its heartbeats must carry, and the previous one, in case the response is lost.
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)

    @property
    def held(self) -> Iterator[tuple[uuid.UUID, int]]:
        """Every partition that no other member may own yet."""
        for partitions in (self.assigned, self.pending_revocation):
            for topic_id, indexes in partitions.items():
                for index in indexes:
                    yield topic_id, index


class ConsumerGroup(Group):
    """The members of a group and its epochs. ConsumerProtocol decides the next steps.

    The group epoch grows whenever the assignment may have to change. The assignment epoch is the group epoch for
    which the target assignment was computed. A member's epoch follows when it has revoked what is no longer in its
    target.
    """

    type = GroupType.CONSUMER
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str, *, session_timeout_ms: int, default_assignor: str) -> None:
        self.group_id = group_id
        self._session_timeout_ms = session_timeout_ms
        self._default_assignor = default_assignor
        # Invariant: every member's epoch <= assignment_epoch <= epoch.
        self.epoch = 0
        self.assignment_epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Partitions] = {}
        # The topics that each expression of a member matched when it was last resolved.
        self.regexes: dict[str, frozenset[str]] = {}
        # Invariant: exactly the partitions that the members hold; each has one owner.
        self.owners: dict[tuple[uuid.UUID, int], str] = {}
        # The metadata version of `shapes`; None: not resolved yet.
        self.topics_version: int | None = None
        self.shapes: dict[str, TopicShape] = {}

    @property
    def member_bytes(self) -> int:
        return sum(names_bytes(member.subscribed_names) for member in self.members.values())

    # Members

    def put_member(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._disown(before)
            if before.instance_id is not None and before.instance_id != member.instance_id:
                self.static_members.pop(before.instance_id, None)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for partition in member.held:
            self.owners.setdefault(partition, member.member_id)

    def remove_member(self, member_id: str) -> ConsumerMember:
        member = self.members.pop(member_id)
        self._disown(member)
        self.targets.pop(member_id, None)
        if member.instance_id is not None and (
            self.static_members.get(member.instance_id) == member_id
        ):
            del self.static_members[member.instance_id]
        return member

    def _disown(self, member: ConsumerMember) -> None:
        for partition in member.held:
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics of a member, by name or by its expression."""
        if member.subscribed_regex is None:
            return member.subscribed_names
        return member.subscribed_names | self.regexes.get(member.subscribed_regex, frozenset())

    @property
    def subscribed_names(self) -> frozenset[str]:
        return frozenset().union(*(self.names_of(member) for member in self.members.values()))

    @property
    def assignor_name(self) -> str:
        """The assignor that most members request; among equals the first one requested."""
        votes = Counter(
            member.server_assignor
            for member in self.members.values()
            if member.server_assignor is not None
        )
        return votes.most_common(1)[0][0] if votes else self._default_assignor

    @property
    def has_only_classic_members(self) -> bool:
        return all(member.classic is not None for member in self.members.values())

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of this member's target."""
        return any(
            self.owners.get((topic_id, index), member.member_id) != member.member_id
            for topic_id, indexes in self.target_of(member.member_id).items()
            for index in indexes
        )

    # Implementation of Group

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        for member in self.members.values():
            if member.state is not MemberState.STABLE or member.epoch != self.assignment_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        return self.is_empty

    @property
    def state_name(self) -> str:
        return self.state.value

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        if generation < 0 and self.is_empty:
            # A simple consumer, or a tool, commits without membership.
            return ErrorCode.NONE
        if is_transactional and generation == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE
        if instance_id is not None:
            known_id = self.static_members.get(instance_id)
            if known_id is not None and known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self._check_epoch(member_id, generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this sender may read committed offsets now (OffsetFetch v9)."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        return self._check_epoch(member_id or "", member_epoch)

    def _check_epoch(self, member_id: str, epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        if member.classic is not None:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.names_of(member) for member in self.members.values())

    def renew_session(self, member_id: str, turn: Turn) -> None:
        # Consumer protocol sessions are renewed by heartbeats only; classic ones as in a classic group.
        member = self.members.get(member_id)
        if member is not None and member.classic is not None:
            self.begin_session(member, turn)

    def begin_session(self, member: ConsumerMember, turn: Turn) -> None:
        classic = member.classic
        turn.set_deadline(
            DeadlineKey(DeadlineKind.SESSION, self.group_id, member.member_id),
            self._session_timeout_ms if classic is None else classic.session_timeout_ms,
        )

    def tombstones(self) -> list[StateRecord]:
        keys = [
            ConsumerKey(kind, self.group_id, member_id)
            for member_id in self.members
            for kind in (
                ConsumerRecordKind.CURRENT,
                ConsumerRecordKind.TARGET,
                ConsumerRecordKind.MEMBER,
            )
        ]
        keys += [
            ConsumerKey(ConsumerRecordKind.REGEX, self.group_id, each) for each in self.regexes
        ]
        keys.append(ConsumerKey(ConsumerRecordKind.TARGET_EPOCH, self.group_id))
        keys.append(ConsumerKey(ConsumerRecordKind.GROUP, self.group_id))
        return [StateRecord(key=encode_group_key(key), value=None) for key in keys]

"""A classic group: its members, its state and its protocol. The leader member assigns partitions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from zhumq.groups.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from zhumq.groups.group import (
    DeadlineKey,
    DeadlineKind,
    Group,
    GroupType,
    Parked,
    Turn,
)
from zhumq.groups.member_memory import MEMBER_BYTES
from zhumq.groups.persisted import group_record
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import GroupMetadataValue, MemberMetadata
from zhumq.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)


class ClassicGroupState(StrEnum):
    """State of a classic group; tools show these names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset(
        {ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.STABLE: frozenset(
        {ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.DEAD: frozenset(),
}

Protocols = tuple[tuple[str, bytes], ...]


def protocols_of(offered: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The protocols of a request in the member's order of preference, each name once."""
    unique: dict[str, bytes] = {}
    for protocol in offered:
        unique.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(unique.items())


def protocols_bytes(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member. Its assignment is the one of the group's current generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # True until its first rebalance ends: a parked join does not keep such a member alive.
    is_new: bool = False

    def metadata_for(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate that this member prefers."""
        allowed = set(candidates)
        return next(name for name, _ in self.protocols if name in allowed)


class ClassicGroup(Group):
    """The members of a group and the state of its rebalance. ClassicProtocol decides the next steps."""

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, *, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.state_since_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        # Ids generated (KIP-394) for members that have not joined with them yet.
        self.pending_members: set[str] = set()
        # Members of the current generation that have not sent SyncGroup yet.
        self.pending_sync: set[str] = set()
        # Invariant: every parked request belongs to a current member.
        self.parked_joins: dict[str, Parked] = {}
        self.parked_syncs: dict[str, Parked] = {}
        # The rest of the initial rebalance delay; None outside of an initial rebalance.
        self.initial_delay: tuple[int, int] | None = None
        self.new_member_added = False
        self.subscribed: frozenset[str] | None = None
        self._protocol_support: Counter[str] = Counter()
        # Size of what all members offer: protocol names and subscriptions.
        self.metadata_bytes = 0

    @classmethod
    def from_record(
        cls, group_id: str, value: GroupMetadataValue, *, now_ms: int
    ) -> "ClassicGroup":
        """The group as it was persisted: stable if it has members, else empty."""
        group = cls(group_id, now_ms=now_ms)
        has_members = bool(value.members)
        group.state = ClassicGroupState.STABLE if has_members else ClassicGroupState.EMPTY
        timestamp_ms = value.current_state_timestamp
        group.state_since_ms = None if timestamp_ms == -1 else timestamp_ms
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol if has_members else None
        for member in value.members:
            group.add_member(
                ClassicMember(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    # Value version 0 knew only the session timeout.
                    rebalance_timeout_ms=max(member.rebalance_timeout, 0) or member.session_timeout,
                    session_timeout_ms=member.session_timeout,
                    protocols=((value.protocol or "", bytes(member.subscription)),),
                    assignment=bytes(member.assignment),
                )
            )
        group.leader_id = value.leader if value.leader in group.members else group.leader_id
        group.subscribed = group._subscribed_topics()
        return group

    @classmethod
    def with_members(
        cls, group_id: str, *, generation: int, members: Iterable[ClassicMember], now_ms: int
    ) -> "ClassicGroup":
        """A stable group of consumers, converted from another protocol with its members' assignments."""
        group = cls(group_id, now_ms=now_ms)
        group.state = ClassicGroupState.STABLE
        group.generation = generation
        group.protocol_type = PROTOCOL_TYPE
        for member in members:
            group.add_member(member)
        group.protocol_name = group.selected_protocol()
        group.subscribed = group._subscribed_topics()
        return group

    def to_record(self) -> GroupMetadataValue:
        """The group's persisted form."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata_for(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    # State

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Start a generation: all expected members have joined. Choose the protocol."""
        self.generation += 1
        self.pending_sync.clear()
        self.initial_delay = None
        if self.members:
            self.protocol_name = self.selected_protocol()
            self.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(ClassicGroupState.EMPTY, now_ms)
        self.subscribed = self._subscribed_topics()

    @property
    def can_rebalance(self) -> bool:
        return ClassicGroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    @property
    def all_members_joined(self) -> bool:
        return len(self.parked_joins) == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Members

    def add_member(self, member: ClassicMember) -> None:
        if not self.members:
            # The first member decides the protocol type; a group that became empty starts over.
            self._protocol_support.clear()
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count_protocols(member.protocols, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Remove a member or pending member. Its parked requests must have been answered."""
        assert member_id not in self.parked_joins
        assert member_id not in self.parked_syncs
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count_protocols(member.protocols, -1)
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static_member(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id; its position and its assignment stay."""
        # Rebuilding the table keeps the member's position, and with it the order of leader changes.
        member = self.members[old_id]
        self.members = {
            (new_id if member_id == old_id else member_id): each
            for member_id, each in self.members.items()
        }
        member.member_id = new_id
        assert member.instance_id is not None
        self.static_members[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        return member

    def update_member(
        self,
        member: ClassicMember,
        *,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def elect_joined_leader(self) -> bool:
        """Choose a leader that has joined this rebalance. False if no member has."""
        if self.leader_id is None:
            return False
        if self.leader_id not in self.parked_joins:
            joined = next((each for each in self.members if each in self.parked_joins), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check the sender's member id and instance id against the group."""
        if instance_id is not None:
            # KIP-345: an instance id belongs to the member that joined with it last.
            known_id = self.static_members.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """The members as the leader needs them to assign."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata_for(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member that offers these protocols can join."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self._protocol_support[name] == len(self.members) for name, _ in protocols
        )

    def selected_protocol(self) -> str:
        """The protocol that all members support and most prefer; among equals the first one voted for."""
        candidates = {
            name for name, count in self._protocol_support.items() if count == len(self.members)
        }
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def member_bytes(self) -> int:
        return len(self.members) * MEMBER_BYTES + self.metadata_bytes

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        self.metadata_bytes += change * protocols_bytes(protocols)
        for name, _ in protocols:
            self._protocol_support[name] += change
            if not self._protocol_support[name]:
                del self._protocol_support[name]

    def _subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if a subscription cannot be read."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            of_member = subscribed_topics(member.metadata_for(self.protocol_name))
            if of_member is None:
                return None
            topics |= of_member
        return frozenset(topics)

    # Implementation of Group

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self.pending_members

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
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and not is_transactional:
            # The member has rejoined and given up its partitions: another member may own what it commits.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        if not self.is_empty and self.protocol_type != PROTOCOL_TYPE:
            # The topics of members of other protocol types are unknown.
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed

    def offset_age_start_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            # No member ever joined: a simple consumer's offsets age from their commit.
            return commit_timestamp_ms
        if self.is_empty:
            # KIP-211: offsets stay while the group has members, and then for the whole retention.
            return commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        if self.state is ClassicGroupState.STABLE and self.subscribed is not None:
            # Only topics that no member reads any more get here.
            return commit_timestamp_ms
        return None

    def renew_session(self, member_id: str, turn: Turn) -> None:
        member = self.members.get(member_id)
        if member is not None:
            turn.set_deadline(
                DeadlineKey(DeadlineKind.SESSION, self.group_id, member_id),
                member.session_timeout_ms,
            )

    def tombstones(self) -> list[StateRecord]:
        return [group_record(self.group_id, None)]

    def described(self) -> DescribedGroup:
        # During a rebalance, metadata and assignments belong to different generations: show only names.
        stable = self.state is ClassicGroupState.STABLE
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol_name or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata_for(self.protocol_name) if stable else b"",
                    member_assignment=member.assignment if stable else b"",
                )
                for member in self.members.values()
            ],
        )

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Set every member's assignment; a member without one gets an empty assignment."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")

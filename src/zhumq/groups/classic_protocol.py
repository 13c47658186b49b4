"""The classic group protocol: join, sync, heartbeat, leave and expired deadlines."""

from collections.abc import Callable
from typing import NamedTuple

from zhumq.groups.classic import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
    Protocols,
    protocols_bytes,
    protocols_of,
)
from zhumq.groups.classic_replies import (
    UNKNOWN_MEMBER,
    answer_parked_join,
    answer_parked_sync,
    joined,
    refuse_join,
    synced,
)
from zhumq.groups.group import DeadlineKey, DeadlineKind, Parked, Turn
from zhumq.groups.persisted import group_record
from zhumq.groups.requests import GroupRequest, answer_leaving
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import ReplyToken, StateRecord
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_ID_REQUIRED_SINCE_VERSION = 4  # KIP-394
SKIP_ASSIGNMENT_SINCE_VERSION = 9  # KIP-814
CLIENT_ID_LENGTH_MAX = 255  # of a client id as it is stored and shown


class _Join(NamedTuple):
    """A JoinGroup request while it is handled."""

    message: JoinGroupRequest
    sender: GroupRequest
    protocols: Protocols
    parked: Parked


class ClassicProtocol:
    """The rules by which a classic group changes. Holds no group state."""

    def __init__(self, settings: GroupSettings, draw_member_suffix: Callable[[], str]) -> None:
        self._settings = settings
        self._draw_member_suffix = draw_member_suffix

    # Join

    def join(
        self,
        group: ClassicGroup,
        message: JoinGroupRequest,
        request: GroupRequest,
        token: ReplyToken,
        turn: Turn,
    ) -> None:
        """Add or update a member; answered when all members have joined, or at once with an error."""
        parked = Parked(token, request.version)
        member_id = message.member_id
        protocols = protocols_of(message.protocols)
        if not self._has_room_for(group, member_id) or not self._has_memory_for(
            group, member_id, protocols
        ):
            self._remove(group, member_id, turn)
            refuse_join(parked, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER, turn)
            self._complete_join_if_ready(group, turn)
        elif not group.supports(message.protocol_type, protocols):
            refuse_join(parked, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id, turn)
        else:
            join = _Join(message, request, protocols, parked)
            if member_id == UNKNOWN_MEMBER:
                self._join_unknown(group, join, turn)
            elif member_id in group.pending_members and message.group_instance_id is None:
                self._add_member(group, member_id, join, turn)
            else:
                self._join_known(group, join, turn)

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        members_max = self._settings.members_max
        if member_id == UNKNOWN_MEMBER and (
            len(group.pending_members) >= self._settings.pending_members_max
        ):
            return False
        match group.state:
            case ClassicGroupState.EMPTY | ClassicGroupState.DEAD:
                return True
            case ClassicGroupState.PREPARING_REBALANCE:
                # The first members to rejoin stay, so that a group loaded over its capacity shrinks to it.
                return member_id in group.parked_joins or len(group.parked_joins) < members_max
            case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
                return member_id in group.members or len(group.members) < members_max

    def _has_memory_for(self, group: ClassicGroup, member_id: str, protocols: Protocols) -> bool:
        known = group.members.get(member_id)
        replaced_bytes = protocols_bytes(known.protocols) if known is not None else 0
        metadata_bytes = group.metadata_bytes - replaced_bytes + protocols_bytes(protocols)
        return metadata_bytes <= self._settings.group_metadata_bytes_max

    def _join_unknown(self, group: ClassicGroup, join: _Join, turn: Turn) -> None:
        instance_id = join.message.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self._draw_member_suffix()}"
            replaced_id = group.static_members.get(instance_id)
            if replaced_id is None:
                self._add_member(group, member_id, join, turn)
            else:
                self._replace_static(group, replaced_id, member_id, join, turn)
            return
        client_id = join.sender.client_id[:CLIENT_ID_LENGTH_MAX]
        member_id = f"{client_id}-{self._draw_member_suffix()}"
        if join.parked.version >= MEMBER_ID_REQUIRED_SINCE_VERSION:
            # KIP-394: a client whose first answer got lost would otherwise join twice.
            group.pending_members.add(member_id)
            turn.set_deadline(_session(group, member_id), join.message.session_timeout_ms)
            refuse_join(join.parked, ErrorCode.MEMBER_ID_REQUIRED, member_id, turn)
        else:
            self._add_member(group, member_id, join, turn)

    def _join_known(self, group: ClassicGroup, join: _Join, turn: Turn) -> None:
        member_id = join.message.member_id
        error = group.check_member(member_id, join.message.group_instance_id)
        if error is not ErrorCode.NONE:
            refuse_join(join.parked, error, member_id, turn)
            return
        member = group.members[member_id]
        unchanged = member.protocols == join.protocols
        match group.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                rejoins = True
            case ClassicGroupState.COMPLETING_REBALANCE:
                # Unchanged: the response to its join was lost, and the client retries.
                rejoins = not unchanged
            case ClassicGroupState.STABLE:
                # A leader that rejoins requests a new assignment: it has seen a change of the topics.
                rejoins = member_id == group.leader_id or not unchanged
            case ClassicGroupState.EMPTY | ClassicGroupState.DEAD:
                raise AssertionError(f"{group.group_id}: {group.state} with members")
        if rejoins:
            self._update_member(group, member, join, turn)
            self._rebalance_or_complete_join(group, turn)
        else:
            turn.answer(join.parked.token, joined(group, member_id))

    def _add_member(self, group: ClassicGroup, member_id: str, join: _Join, turn: Turn) -> None:
        message = join.message
        if not group.members:
            group.protocol_type = message.protocol_type
        group.add_member(
            ClassicMember(
                member_id=member_id,
                instance_id=message.group_instance_id,
                client_id=join.sender.client_id[:CLIENT_ID_LENGTH_MAX],
                client_host=join.sender.client_host,
                rebalance_timeout_ms=_rebalance_timeout_ms(message, join.parked.version),
                session_timeout_ms=message.session_timeout_ms,
                protocols=join.protocols,
                is_new=True,
            )
        )
        if group.initial_delay is not None:
            group.new_member_added = True
        group.parked_joins[member_id] = join.parked
        # A new member sends no heartbeats while its join is parked, however long that takes. But a client that is
        # gone must not block the rebalance forever.
        turn.set_deadline(_session(group, member_id), self._settings.new_member_join_timeout_ms)
        self._rebalance_or_complete_join(group, turn)

    def _update_member(
        self, group: ClassicGroup, member: ClassicMember, join: _Join, turn: Turn
    ) -> None:
        group.update_member(
            member,
            protocols=join.protocols,
            rebalance_timeout_ms=_rebalance_timeout_ms(join.message, join.parked.version),
            session_timeout_ms=join.message.session_timeout_ms,
        )
        # A repeated join replaces the parked one. The parked one still gets a response, because a connection
        # sends responses in the order of the requests.
        answer_parked_join(group, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, turn)
        group.parked_joins[member.member_id] = join.parked

    def _replace_static(
        self, group: ClassicGroup, old_id: str, new_id: str, join: _Join, turn: Turn
    ) -> None:
        """KIP-345: a static member rejoins with a new id; the old one is fenced."""
        leader_before = group.leader_id
        answer_parked_join(group, old_id, ErrorCode.FENCED_INSTANCE_ID, turn)
        answer_parked_sync(group, old_id, ErrorCode.FENCED_INSTANCE_ID, turn)
        turn.deadlines.cancel(_session(group, old_id))
        member = group.replace_static_member(old_id, new_id)
        self._update_member(group, member, join, turn)
        group.renew_session(new_id, turn)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._complete_join_if_ready(group, turn)
            return
        stable = group.state is ClassicGroupState.STABLE
        record = group_record(group.group_id, group.to_record())
        if (
            not stable
            or group.selected_protocol() != group.protocol_name
            or self._is_too_large(record)
        ):
            self._rebalance_or_complete_join(group, turn)
            return
        # Nothing changes for the other members: no rebalance, the member keeps its assignment.
        del group.parked_joins[new_id]
        response = joined(group, new_id)
        if join.parked.version >= SKIP_ASSIGNMENT_SINCE_VERSION:
            response.skip_assignment = new_id == group.leader_id
        else:
            # An older client that learns that it leads would assign again.
            response.leader = leader_before or ""
            response.members = []
        turn.record([record])
        turn.answer(join.parked.token, response)

    # Rebalance

    def _rebalance_or_complete_join(self, group: ClassicGroup, turn: Turn) -> None:
        if group.can_rebalance:
            self.prepare_rebalance(group, turn)
        else:
            self._complete_join_if_ready(group, turn)

    def prepare_rebalance(self, group: ClassicGroup, turn: Turn) -> None:
        """Ask all members to join again, and wait for them."""
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            group.assign({})
            for member_id in list(group.parked_syncs):
                answer_parked_sync(group, member_id, ErrorCode.REBALANCE_IN_PROGRESS, turn)
                group.renew_session(member_id, turn)
        group.pending_sync.clear()
        turn.deadlines.cancel(_sync(group))
        initial = group.state is ClassicGroupState.EMPTY
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE, turn.now_ms)
        if initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            group.new_member_added = False
            turn.set_deadline(_join(group), delay_ms)
        elif group.all_members_joined:
            self._complete_join(group, turn)
        else:
            turn.set_deadline(_join(group), group.rebalance_timeout_ms)

    def _complete_join_if_ready(self, group: ClassicGroup, turn: Turn) -> None:
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.initial_delay is None
            and group.all_members_joined
        ):
            self._complete_join(group, turn)

    def join_deadline_passed(self, group: ClassicGroup, turn: Turn) -> None:
        """End the wait for joins."""
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if group.initial_delay is not None:
            delay_ms, remaining_ms = group.initial_delay
            if group.new_member_added and remaining_ms > 0:
                # More members are joining: wait longer, up to the rebalance timeout.
                group.new_member_added = False
                next_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
                group.initial_delay = (next_ms, max(remaining_ms - delay_ms, 0))
                turn.set_deadline(_join(group), next_ms)
                return
        self._complete_join(group, turn)

    def _complete_join(self, group: ClassicGroup, turn: Turn) -> None:
        turn.deadlines.cancel(_join(group))
        # A static member may be restarting: only its session timeout ends its membership.
        for member in list(group.members.values()):
            if member.member_id not in group.parked_joins and member.instance_id is None:
                self._remove(group, member.member_id, turn)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none of them has joined yet.
            turn.set_deadline(_join(group), group.rebalance_timeout_ms)
            return
        group.begin_generation(turn.now_ms)
        if group.is_empty:
            turn.record([group_record(group.group_id, group.to_record())])
            return
        for member in group.members.values():
            parked = group.parked_joins.pop(member.member_id, None)
            if parked is not None:
                turn.answer(parked.token, joined(group, member.member_id))
            group.renew_session(member.member_id, turn)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        turn.set_deadline(_sync(group), group.rebalance_timeout_ms)

    def _is_too_large(self, record: StateRecord) -> bool:
        return len(record.key) + len(record.value or b"") > self._settings.group_record_bytes_max

    # Sync

    def sync(
        self,
        group: ClassicGroup,
        message: SyncGroupRequest,
        version: int,
        token: ReplyToken,
        turn: Turn,
    ) -> None:
        """Answer with the member's assignment, once the leader has sent it."""
        member_id = message.member_id
        error = _check_sync(group, message)
        if error is not ErrorCode.NONE:
            turn.answer(token, SyncGroupResponse(error_code=error))
            return
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            turn.deadlines.cancel(_sync(group))
        if group.state is ClassicGroupState.STABLE:
            turn.answer(token, synced(group, member_id))
            return
        answer_parked_sync(group, member_id, ErrorCode.REBALANCE_IN_PROGRESS, turn)
        group.parked_syncs[member_id] = Parked(token, version)
        if member_id == group.leader_id:
            self._take_assignment(group, message, turn)

    def _take_assignment(self, group: ClassicGroup, message: SyncGroupRequest, turn: Turn) -> None:
        group.assign({each.member_id: bytes(each.assignment) for each in message.assignments})
        group.transition_to(ClassicGroupState.STABLE, turn.now_ms)
        record = group_record(group.group_id, group.to_record())
        if self._is_too_large(record):
            # The assignment cannot be persisted: no member gets one.
            group.assign({})
            for member_id in list(group.parked_syncs):
                answer_parked_sync(group, member_id, ErrorCode.UNKNOWN_SERVER_ERROR, turn)
                group.renew_session(member_id, turn)
            self.prepare_rebalance(group, turn)
            return
        turn.record([record])
        for member_id, parked in group.parked_syncs.items():
            turn.answer(parked.token, synced(group, member_id))
            group.renew_session(member_id, turn)
        group.parked_syncs.clear()

    def sync_deadline_passed(self, group: ClassicGroup, turn: Turn) -> None:
        """Remove members that joined but did not sync: they would own partitions without reading them."""
        if not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            self._remove(group, member_id, turn)
        self.prepare_rebalance(group, turn)

    # Heartbeat, leave, session timeout

    def heartbeat(self, group: ClassicGroup, message: HeartbeatRequest, turn: Turn) -> ErrorCode:
        """Renew the member's session and answer whether it must rejoin."""
        error = group.check_member(message.member_id, message.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if message.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        group.renew_session(message.member_id, turn)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, group: ClassicGroup, message: LeaveGroupRequest, turn: Turn
    ) -> LeaveGroupResponse:
        """Remove every listed member, with an error code for each that cannot be removed."""
        members_before = len(group.members)
        responses = []
        for leaving in message.members:
            error = self._leave_one(group, leaving, turn)
            responses.append(answer_leaving(leaving, error))
        self._after_removal(group, members_before, turn)
        return LeaveGroupResponse(members=responses)

    def _leave_one(self, group: ClassicGroup, leaving: MemberIdentity, turn: Turn) -> ErrorCode:
        member_id = leaving.member_id
        instance_id = leaving.group_instance_id
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(instance_id or "", UNKNOWN_MEMBER)
            if instance_id is None or member_id == UNKNOWN_MEMBER:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_members:
            error = group.check_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._remove(group, member_id, turn)
        return ErrorCode.NONE

    def session_deadline_passed(self, group: ClassicGroup, member_id: str, turn: Turn) -> None:
        """Remove a member whose session has expired, unless one of its requests is parked here."""
        member = group.members.get(member_id)
        if member is not None and not member.is_new:
            if member_id in group.parked_joins or member_id in group.parked_syncs:
                # Its next session begins when the parked request is answered.
                return
        elif member is None and member_id not in group.pending_members:
            return
        members_before = len(group.members)
        self._remove(group, member_id, turn)
        self._after_removal(group, members_before, turn)

    def _after_removal(self, group: ClassicGroup, members_before: int, turn: Turn) -> None:
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._complete_join_if_ready(group, turn)
        elif len(group.members) != members_before:
            # Pending members own no partitions: removing them needs no rebalance.
            self.prepare_rebalance(group, turn)

    def _remove(self, group: ClassicGroup, member_id: str, turn: Turn) -> None:
        answer_parked_join(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, turn)
        answer_parked_sync(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, turn)
        turn.deadlines.cancel(_session(group, member_id))
        group.remove_member(member_id)


def _session(group: ClassicGroup, member_id: str) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id)


def _join(group: ClassicGroup) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.JOIN, group.group_id)


def _sync(group: ClassicGroup) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.SYNC, group.group_id)


def _rebalance_timeout_ms(message: JoinGroupRequest, version: int) -> int:
    # JoinGroup v0 had one timeout for both.
    return message.session_timeout_ms if version == 0 else max(message.rebalance_timeout_ms, 0)


def _check_sync(group: ClassicGroup, message: SyncGroupRequest) -> ErrorCode:
    error = group.check_member(message.member_id, message.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if message.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # KIP-559: a protocol named in the request must be the group's.
    if message.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if message.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE

"""Responses to members of a classic group, sent at once or when a parked request ends."""

from zhumq.groups.classic import ClassicGroup
from zhumq.groups.group import Parked, Turn
from zhumq.groups.requests import no_protocol_name
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

UNKNOWN_MEMBER = ""


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=group.joined_members() if member_id == group.leader_id else [],
    )


def synced(group: ClassicGroup, member_id: str) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=group.members[member_id].assignment,
    )


def refuse_join(parked: Parked, error: ErrorCode, member_id: str, turn: Turn) -> None:
    turn.answer(
        parked.token,
        JoinGroupResponse(
            error_code=error,
            member_id=member_id,
            protocol_name=no_protocol_name(parked.version),
        ),
    )


def answer_parked_join(group: ClassicGroup, member_id: str, error: ErrorCode, turn: Turn) -> None:
    parked = group.parked_joins.pop(member_id, None)
    if parked is not None:
        # A member that gets UNKNOWN_MEMBER_ID joins again without an id.
        answered_id = UNKNOWN_MEMBER if error is ErrorCode.UNKNOWN_MEMBER_ID else member_id
        refuse_join(parked, error, answered_id, turn)


def answer_parked_sync(group: ClassicGroup, member_id: str, error: ErrorCode, turn: Turn) -> None:
    parked = group.parked_syncs.pop(member_id, None)
    if parked is not None:
        turn.answer(parked.token, SyncGroupResponse(error_code=error))

"""One reconciliation step of a member towards its target: revoke first, then assign what is free. Pure."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

from zhumq.groups.assignors import NOTHING, Partitions
from zhumq.groups.consumer import ConsumerMember, MemberState

Owners = Mapping[tuple[uuid.UUID, int], str]


def reconcile(
    member: ConsumerMember,
    *,
    target: Partitions,
    target_epoch: int,
    owners: Owners,
    owned: Partitions | None,
) -> ConsumerMember:
    """The member after one step. `owned`: the partitions that it reports as owned; None: not reported.

    KIP-848: a member moves to a new epoch only when it has revoked what is not in its target, and a partition
    gets a new owner only when no member holds it. So a partition never has two readers.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
        case MemberState.UNREVOKED_PARTITIONS:
            if _owns_any(owned, member.pending_revocation):
                return member
        case MemberState.UNRELEASED_PARTITIONS:
            pass
    return _next(member, target, target_epoch, owners, owned)


def _next(
    member: ConsumerMember,
    target: Partitions,
    target_epoch: int,
    owners: Owners,
    owned: Partitions | None,
) -> ConsumerMember:
    assigned: dict[uuid.UUID, frozenset[int]] = {}
    to_revoke: dict[uuid.UUID, frozenset[int]] = {}
    has_unreleased = False
    for topic_id, indexes in member.assigned.items():
        target_indexes = target.get(topic_id, frozenset())
        if kept := indexes & target_indexes:
            assigned[topic_id] = kept
        if gone := indexes - target_indexes:
            to_revoke[topic_id] = gone
    if to_revoke and _owns_any(owned, to_revoke):
        return _moved(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=member.epoch,
            assigned=assigned,
            pending_revocation=to_revoke,
        )
    for topic_id, target_indexes in target.items():
        kept = assigned.get(topic_id, frozenset())
        # What this member was revoking has no other owner yet: it can get it back.
        free = frozenset(
            index
            for index in target_indexes - kept
            if owners.get((topic_id, index), member.member_id) == member.member_id
        )
        if kept | free:
            assigned[topic_id] = kept | free
        has_unreleased = has_unreleased or len(kept) + len(free) < len(target_indexes)
    return _moved(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE,
        epoch=target_epoch,
        assigned=assigned,
        pending_revocation=NOTHING,
    )


def _moved(
    member: ConsumerMember,
    *,
    state: MemberState,
    epoch: int,
    assigned: Partitions,
    pending_revocation: Partitions,
) -> ConsumerMember:
    if (state, epoch, assigned, pending_revocation) == (
        member.state,
        member.epoch,
        member.assigned,
        member.pending_revocation,
    ):
        return member
    return replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )


def _owns_any(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether a member may still read any of these. A heartbeat without partitions counts as yes."""
    if owned is None:
        return True
    return any(
        indexes & owned.get(topic_id, frozenset()) for topic_id, indexes in partitions.items()
    )

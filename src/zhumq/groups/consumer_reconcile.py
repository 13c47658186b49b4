"""One step of a member towards its target: give up first, then take what is free. Pure."""

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
    """What becomes of a member that says it owns `owned`; None: it did not say.

    KIP-848: a member moves to a new epoch only when it has stopped reading what is no longer its, and a
    partition goes to its next reader only when nobody holds it. So it never has two.
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
        wanted = target.get(topic_id, frozenset())
        if kept := indexes & wanted:
            assigned[topic_id] = kept
        if gone := indexes - wanted:
            to_revoke[topic_id] = gone
    if to_revoke and _owns_any(owned, to_revoke):
        return _moved(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=member.epoch,
            assigned=assigned,
            pending_revocation=to_revoke,
        )
    for topic_id, wanted in target.items():
        kept = assigned.get(topic_id, frozenset())
        # What it was just giving up is nobody else's yet, and may become its own again.
        free = frozenset(
            index
            for index in wanted - kept
            if owners.get((topic_id, index), member.member_id) == member.member_id
        )
        if kept | free:
            assigned[topic_id] = kept | free
        has_unreleased = has_unreleased or len(kept) + len(free) < len(wanted)
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
    """Whether a member may still read any of these. Silence is no promise."""
    if owned is None:
        return True
    return any(
        indexes & owned.get(topic_id, frozenset()) for topic_id, indexes in partitions.items()
    )

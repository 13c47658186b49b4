"""Where a simulated partition's replicas are to be: the steps of a move, as the controller makes them.

Written anew rather than taken from `zhumq.metadata.moves`, so that a rule which is missing there is
not missing here as well.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.raft import RaftReplica
from zhumq.model.replication_mode import Mode

if TYPE_CHECKING:
    from zhumq.testing.simulated_coordinator import PartitionRecord

Alive = Callable[[int], bool]


def begin(
    record: "PartitionRecord", target: Sequence[int], is_alive: Alive
) -> "PartitionRecord | None":
    """The old replicas and the new ones together; None if nobody would be left in sync."""
    original = [each for each in record.replicas if each not in record.adding]
    leaving = [each for each in original if each not in target]
    moving = _with_replicas(
        record,
        (*target, *leaving),
        adding=frozenset(target) - frozenset(original),
        removing=frozenset(leaving),
    )
    return moving and _led(end_if_done(moving), record, is_alive)


def cancel(record: "PartitionRecord", is_alive: Alive) -> "PartitionRecord | None":
    """As it was before the move; None if nobody would be left in sync."""
    original = tuple(each for each in record.replicas if each not in record.adding)
    back = _with_replicas(record, original, adding=frozenset(), removing=frozenset())
    return back and _led(back, record, is_alive)


def accept(
    record: "PartitionRecord", before: "PartitionRecord", is_alive: Alive
) -> "PartitionRecord":
    """A record with another in-sync set, which may be the end of a move."""
    return _led(end_if_done(record), before, is_alive)


def end_if_done(record: "PartitionRecord") -> "PartitionRecord":
    target = tuple(each for each in record.replicas if each not in record.removing)
    in_sync = record.in_sync & frozenset(target)
    is_moving = record.adding or record.removing
    if not is_moving or not in_sync or not record.adding <= in_sync:
        return record
    return replace(
        record,
        replicas=target,
        in_sync=in_sync,
        eligible=frozenset(),
        adding=frozenset(),
        removing=frozenset(),
    )


def _with_replicas(
    record: "PartitionRecord",
    replicas: Iterable[int],
    *,
    adding: frozenset[int],
    removing: frozenset[int],
) -> "PartitionRecord | None":
    kept = tuple(replicas)
    in_sync = record.in_sync & frozenset(kept)
    if not in_sync:
        return None
    return replace(
        record,
        replicas=kept,
        in_sync=in_sync,
        eligible=record.eligible & frozenset(kept),
        adding=adding,
        removing=removing,
        wanted=None,
    )


def _led(
    record: "PartitionRecord", before: "PartitionRecord", is_alive: Alive
) -> "PartitionRecord":
    """Whoever is taken out must not follow, or be followed, in the old epoch."""
    if set(before.replicas) <= set(record.replicas):
        return record
    leader_id = record.leader_id
    if leader_id not in record.replicas:
        chosen = (each for each in record.replicas if each in record.in_sync and is_alive(each))
        leader_id = next(chosen, None)
    return replace(record, epoch=record.epoch + 1, leader_id=leader_id)


def has_other_voters(replica: RaftReplica | AssignedReplica, record: "PartitionRecord") -> bool:
    """Whether a replica in raft mode has missed that the partition went elsewhere and back to raft."""
    return record.mode is Mode.RAFT and set(replica.voters.ids) != set(record.replicas)

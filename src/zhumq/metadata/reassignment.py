"""Reassignment of replicas: the preview for a joining or leaving broker, and each step of a move.

A move never removes a replica before its replacement is in sync (KIP-455). The partition first has
the old and the new replicas; once all new ones are in sync, it has the new ones alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from zhumq.metadata.changes import PartitionChanged
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import (
    InSyncRequest,
    LeaderPolicy,
    changed_partition,
    check_in_sync_request,
    choose_leader,
    existing_partition,
    with_leader,
)
from zhumq.metadata.placement import VIRTUAL_NODES, place
from zhumq.model.cluster_errors import EligibleLeadersNotAvailable, NoReassignmentInProgress
from zhumq.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode

_IN_SYNC_ONLY = LeaderPolicy(unclean=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition and its replicas before and after a move."""

    topic_partition: TopicPartition
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]

    @property
    def copies(self) -> int:
        """How many brokers have to fetch the whole partition. 0: only the order of replicas changes."""
        return len(set(self.after) - set(self.before))


def plan_moves(
    image: ClusterImage, brokers: Iterable[Broker], *, virtual_nodes: int = VIRTUAL_NODES
) -> list[Move]:
    """The moves that bring all partitions to their placement on these brokers: a preview.

    For a broker that joined, pass all brokers. For a broker that leaves, pass all but that one.
    """
    members = tuple(brokers)
    return [
        move
        for topic in image.topics.values()
        for move in plan_moves_of(topic, members, virtual_nodes=virtual_nodes)
    ]


def plan_moves_of(
    topic: Topic,
    brokers: Sequence[Broker],
    *,
    copies: int | None = None,
    virtual_nodes: int = VIRTUAL_NODES,
) -> Iterator[Move]:
    """The moves of one topic to its placement on these brokers, with so many replicas, or as many as it has."""
    present = [state.target_replicas for state in topic.partitions]
    counts = [copies or len(replicas) for replicas in present]
    # After manual moves the partitions of one topic may have different numbers of replicas.
    placed = {
        each: _placed(brokers, topic.name, len(present), each, virtual_nodes)
        for each in set(counts)
    }
    for index, before in enumerate(present):
        after = placed[counts[index]][index]
        if after != before:
            name = TopicPartition(topic.name, index)
            yield Move(topic_partition=name, before=before, after=after)


def plan_more_copies(
    image: ClusterImage, topic: Topic, copies: int, *, virtual_nodes: int = VIRTUAL_NODES
) -> Iterator[PartitionChanged]:
    """Raise the replication factor of a topic that was created with too few brokers.

    Adds as many replicas as the live brokers allow. Existing replicas stay.
    """
    possible = min(copies, len(image.brokers))
    lacking = [
        index
        for index, state in enumerate(topic.partitions)
        if len(state.replicas) < possible and not (state.adding or state.planned_replicas)
    ]
    if not lacking:
        return
    placed = place(
        image.brokers.values(),
        topic.name,
        len(topic.partitions),
        possible,
        virtual_nodes=virtual_nodes,
    )
    for index in lacking:
        present = topic.partitions[index].replicas
        more = [each for each in placed[index] if each not in present]
        target = (*present, *more)[:possible]
        # A partition with a replica on a dead broker stays as it is.
        if all(each in image.brokers for each in target):
            yield begin_move(image, TopicPartition(topic.name, index), target)


def begin_move(
    image: ClusterImage, topic_partition: TopicPartition, target: Sequence[BrokerId]
) -> PartitionChanged:
    """Begin a reassignment to these brokers, also while another one is in progress.

    Voters cannot be replaced in one step. In raft mode, and while a named leader still has to win
    the votes, this only records the target: the partition goes through fetch mode first (see `modes`).
    """
    state = existing_partition(image, topic_partition)
    _check_target(image, topic_partition, target)
    has_voters = state.mode is Mode.RAFT or state.changing_mode
    if has_voters and set(target) != set(state.replicas):
        planned = replace(
            state, planned_replicas=tuple(target), partition_epoch=state.partition_epoch + 1
        )
        return changed_partition(topic_partition, planned)
    return changed_partition(topic_partition, move_begun(image, topic_partition, state, target))


def move_begun(
    image: ClusterImage,
    topic_partition: TopicPartition,
    state: PartitionState,
    target: Sequence[BrokerId],
) -> PartitionState:
    """The partition with its new and its old replicas. Raises BrokerError."""
    _check_target(image, topic_partition, target)
    original = _original(state)
    removing = tuple(broker_id for broker_id in original if broker_id not in target)
    moving = _with_replicas(
        topic_partition,
        replace(state, planned_replicas=()),
        replicas=(*target, *removing),
        adding=tuple(broker_id for broker_id in target if broker_id not in original),
        removing=removing,
    )
    return _led(image, _settled(moving), state)


def cancel_move(image: ClusterImage, topic_partition: TopicPartition) -> PartitionChanged:
    """Return the partition to its replicas from before the move."""
    state = existing_partition(image, topic_partition)
    if not state.adding and not state.removing and not state.planned_replicas:
        raise NoReassignmentInProgress(f"{topic_partition} has no reassignment in progress")
    back = _with_replicas(
        topic_partition,
        replace(state, planned_replicas=()),
        replicas=_original(state),
        adding=(),
        removing=(),
    )
    return changed_partition(topic_partition, _led(image, back, state))


def change_in_sync(
    image: ClusterImage,
    topic_partition: TopicPartition,
    request: InSyncRequest,
    min_in_sync: int = 1,
) -> PartitionChanged:
    """The in-sync set that a leader requests. Ends the move if all new replicas are in sync."""
    changed = _settled(check_in_sync_request(image, topic_partition, request, min_in_sync))
    before = existing_partition(image, topic_partition)
    return changed_partition(topic_partition, _led(image, changed, before))


def _check_target(
    image: ClusterImage, topic_partition: TopicPartition, target: Sequence[BrokerId]
) -> None:
    if not target or len(set(target)) != len(target):
        raise InvalidReplicaAssignment(
            f"{topic_partition} needs at least one replica and no duplicates"
        )
    unknown = [broker_id for broker_id in target if broker_id not in image.brokers]
    if unknown:
        raise InvalidReplicaAssignment(f"brokers {unknown} are not alive")


def _placed(
    members: Sequence[Broker], topic: str, count: int, copies: int, virtual_nodes: int
) -> list[tuple[BrokerId, ...]]:
    if copies > len(members):
        raise InvalidReplicationFactor(
            f"topic {topic!r} has {copies} replicas, but only {len(members)} brokers would be left"
        )
    return place(members, topic, count, copies, virtual_nodes=virtual_nodes)


def _original(state: PartitionState) -> tuple[BrokerId, ...]:
    return tuple(broker_id for broker_id in state.replicas if broker_id not in state.adding)


def _with_replicas(
    topic_partition: TopicPartition,
    state: PartitionState,
    *,
    replicas: tuple[BrokerId, ...],
    adding: tuple[BrokerId, ...],
    removing: tuple[BrokerId, ...],
) -> PartitionState:
    in_sync = tuple(broker_id for broker_id in state.in_sync if broker_id in replicas)
    if not in_sync:
        raise EligibleLeadersNotAvailable(
            f"{topic_partition} would be left without an in-sync replica"
        )
    return replace(
        state,
        replicas=replicas,
        in_sync=in_sync,
        eligible=tuple(broker_id for broker_id in state.eligible if broker_id in replicas),
        adding=adding,
        removing=removing,
        partition_epoch=state.partition_epoch + 1,
    )


def _settled(state: PartitionState) -> PartitionState:
    """The partition after the move if every new replica is in sync; else unchanged."""
    target = state.target_replicas
    in_sync = tuple(broker_id for broker_id in state.in_sync if broker_id in target)
    moving = state.adding or state.removing
    if not moving or not in_sync or not set(state.adding) <= set(in_sync):
        return state
    return replace(state, replicas=target, in_sync=in_sync, eligible=(), adding=(), removing=())


def _led(image: ClusterImage, state: PartitionState, before: PartitionState) -> PartitionState:
    """The partition with another leader if the current one holds no replica any more."""
    if state.mode is Mode.RAFT:
        return state  # The voters are unchanged and elect their leader themselves.
    if state.leader in state.replicas:
        if set(before.replicas) <= set(state.replicas):
            return state
        # Removed replicas must neither follow nor lead in the old epoch.
        return replace(state, leader_epoch=LeaderEpoch(state.leader_epoch + 1))
    chosen = choose_leader(state, image.brokers, _IN_SYNC_ONLY, {})
    led = with_leader(state, None if chosen is None else image.brokers[chosen])
    # Replicas and leader change in one step; the change of replicas already raised the version.
    return replace(led, partition_epoch=state.partition_epoch)

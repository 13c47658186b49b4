"""Partitions between raft and fetch mode: each step is safe while some replicas know only the last one.

What has to hold for a step is said in `consensus.changing_mode`. A partition of a raft topic that is to
move goes through fetch mode, whose in-sync set says when the new replicas have everything:
raft, handover, fetch, the move, raft again with the new replicas as voters.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from zhumq.metadata.changes import PartitionChanged
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import LeaderPolicy, name_leader, with_leader
from zhumq.metadata.reassignment import move_begun
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode


def plan_steps(
    image: ClusterImage, topic: Topic, policy: LeaderPolicy
) -> Iterator[PartitionChanged]:
    """The next step of each partition that is not yet in the mode, or the place, it ought to be."""
    for index, state in enumerate(topic.partitions):
        changed = _step(image, TopicPartition(topic.name, index), state, policy)
        if changed is not None:
            yield PartitionChanged(name=topic.name, partition=index, state=changed)


def is_settled(state: PartitionState, mode: Mode) -> bool:
    """Whether no step is left to be made."""
    return state.mode is mode and not state.planned_replicas and not state.changing_mode


def _step(
    image: ClusterImage,
    topic_partition: TopicPartition,
    state: PartitionState,
    policy: LeaderPolicy,
) -> PartitionState | None:
    if is_settled(state, policy.mode) or state.changing_mode:
        return None
    if state.mode is Mode.RAFT:
        return _to_fetch(state, image.brokers, policy)
    if state.planned_replicas:
        try:
            return move_begun(image, topic_partition, state, state.planned_replicas)
        except BrokerError:
            return None  # A broker it was to move to is not alive: it waits, or is cancelled.
    if state.adding or state.removing:
        return None
    preferred = state.replicas[0]
    may_lead = preferred in image.brokers and preferred in state.in_sync
    if may_lead and image.leader_of(state) != preferred:
        # Who leads at the end of fetch mode is the first to stand for election in raft mode.
        return with_leader(state, image.brokers[preferred])
    return _to_raft(state)


def _to_fetch(
    state: PartitionState, alive: Mapping[BrokerId, Broker], policy: LeaderPolicy
) -> PartitionState | None:
    """Name a leader that has to win the replicas' votes before it leads."""
    leader = alive.get(state.leader)
    fetching = replace(state, mode=Mode.FETCH, changing_mode=len(state.replicas) > 1, eligible=())
    if leader is not None:
        # Whoever leads now most likely has everything: so nobody waits for long.
        others = frozenset(each for each in state.replicas if each != state.leader)
        named = name_leader(fetching, alive, policy, {}, unfit=others)
    else:
        named = name_leader(fetching, alive, policy, {})
    return None if named.leader == NO_BROKER else named


def _to_raft(state: PartitionState) -> PartitionState | None:
    """Only while all replicas are in sync: what each of them once voted for is over then, and what an
    unclean leader lost nobody has any more."""
    if len(state.in_sync) < len(state.replicas):
        return None
    return replace(
        state,
        mode=Mode.RAFT,
        leader=NO_BROKER,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        leader_broker_epoch=0,
        in_sync=state.replicas,
        eligible=(),
        unclean_epoch=-1,
        partition_epoch=state.partition_epoch + 1,
    )

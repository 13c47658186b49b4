"""Mode changes between raft and fetch: each step is safe while some replicas know only the one before.

`consensus.mode_change` states the conditions of each step. A reassignment of a raft partition goes
through fetch mode, whose in-sync set shows when the new replicas are caught up: raft, mode change,
fetch, reassignment, raft again with the new replicas as voters.
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
    """The next step of each partition that is not yet in its target mode or on its target replicas."""
    for index, state in enumerate(topic.partitions):
        changed = _step(image, TopicPartition(topic.name, index), state, policy)
        if changed is not None:
            yield PartitionChanged(name=topic.name, partition=index, state=changed)


def is_settled(state: PartitionState, mode: Mode) -> bool:
    """Whether the partition needs no further step."""
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
            return (
                None  # A target broker is not alive: the reassignment waits, or a user cancels it.
            )
    if state.adding or state.removing:
        return None
    preferred = state.replicas[0]
    may_lead = preferred in image.brokers and preferred in state.in_sync
    if may_lead and image.leader_of(state) != preferred:
        # The last leader of fetch mode is the first candidate of raft mode.
        return with_leader(state, image.brokers[preferred])
    return _to_raft(state)


def _to_fetch(
    state: PartitionState, alive: Mapping[BrokerId, Broker], policy: LeaderPolicy
) -> PartitionState | None:
    """Name a leader. It must win the replicas' votes before it leads."""
    leader = alive.get(state.leader)
    fetching = replace(state, mode=Mode.FETCH, changing_mode=len(state.replicas) > 1, eligible=())
    if leader is not None:
        # The current leader most likely has everything, so clients do not wait for long.
        others = frozenset(each for each in state.replicas if each != state.leader)
        named = name_leader(fetching, alive, policy, {}, unfit=others)
    else:
        named = name_leader(fetching, alive, policy, {})
    return None if named.leader == NO_BROKER else named


def _to_raft(state: PartitionState) -> PartitionState | None:
    """Change to raft mode, only while all replicas are in sync.

    Then no earlier vote counts any more, and no replica holds records that an unclean leader lost.
    """
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

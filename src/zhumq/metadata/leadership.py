"""Who leads which partition: the controller's decisions. Pure: facts in, changes out.

One broker leads in one epoch. Every change of a leader raises the leader's epoch, every change of a
partition raises the partition's, and a proposal counts only on the picture it was decided on. So two
controllers, or one that is late, cannot name two leaders for one epoch.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from zhumq.metadata.changes import BrokerGone, Change, PartitionChanged
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.model.cluster_errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    IneligibleReplica,
    InvalidUpdateVersion,
    NotController,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
)
from zhumq.model.errors import FencedLeaderEpoch, InvalidRequest, UnknownTopicOrPartition
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition

# A proposal of so many changes is well below what ZooKeeper takes in one transaction.
CHANGES_PER_PROPOSAL_MAX: Final = 1_000


class LogEnd(NamedTuple):
    """How far a replica's log goes. The larger one has everything that was ever committed.

    The epoch comes first: a stale replica may have a long tail that was never committed.
    """

    last_epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_LOG_END: Final = LogEnd(LeaderEpoch(-1), Offset(-1))
LogEnds = Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]
_NO_LOG_ENDS: Final[LogEnds] = {}
_NO_ENDS: Final[Mapping[BrokerId, LogEnd]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPolicy:
    """How a topic gets its leaders."""

    # False: the replicas vote among themselves, and the controller only makes it known.
    assigned: bool = True
    # Whether a replica that is not in sync may lead when no other is left. Loses messages.
    unclean: bool = False


PolicyOf = Callable[[Topic], LeaderPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncWish:
    """What a leader asks of the controller (KIP-497): that these replicas count as in sync."""

    broker_id: BrokerId
    broker_epoch: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """The outcome of an election among replicas."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


def plan_membership(
    image: ClusterImage,
    live: Collection[BrokerId],
    policy_of: PolicyOf,
    log_ends: LogEnds = _NO_LOG_ENDS,
) -> Iterator[Change]:
    """What follows from who is alive now: brokers declared gone, and leaders for their partitions.

    It looks at nothing but the picture and the facts, so a new controller goes on where the last one
    stopped, whatever that had done. It decides as it is read: the first of a million changes can be
    on their way before the last ones are known.
    """
    alive = {broker_id: each for broker_id, each in image.brokers.items() if broker_id in live}
    for broker_id in image.brokers:
        if broker_id not in alive:
            yield BrokerGone(broker_id=broker_id)
    for topic in image.topics.values():
        policy = policy_of(topic)
        if not policy.assigned:
            continue
        for index, state in enumerate(topic.partitions):
            if _is_well(state, alive):
                continue
            ends = (
                log_ends.get(TopicPartition(topic.name, index), _NO_ENDS) if log_ends else _NO_ENDS
            )
            repaired = _repaired(state, alive, policy, ends)
            if repaired is not state:
                yield PartitionChanged(name=topic.name, partition=index, state=repaired)


def partitions_without_leader(
    image: ClusterImage, live: Collection[BrokerId], policy_of: PolicyOf
) -> list[TopicPartition]:
    """The partitions whose replicas are to be asked for the ends of their logs."""
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        if policy_of(topic).assigned
        for index, state in enumerate(topic.partitions)
        if state.leader not in live or image.leader_of(state) == NO_BROKER
    ]


def choose_leader(
    state: PartitionState,
    alive: Collection[BrokerId],
    policy: LeaderPolicy,
    log_ends: Mapping[BrokerId, LogEnd],
) -> BrokerId | None:
    """The live replica with the largest log end, in-sync ones first, else the preferred order."""

    def log_end(broker_id: BrokerId) -> LogEnd:
        return log_ends.get(broker_id, UNKNOWN_LOG_END)

    living = [broker_id for broker_id in state.replicas if broker_id in alive]
    in_sync = [broker_id for broker_id in living if broker_id in state.in_sync]
    candidates = in_sync or (living if policy.unclean else [])
    if not candidates:
        return None
    return max(candidates, key=log_end) if log_ends else candidates[0]


def plan_preferred_leaders(image: ClusterImage, policy_of: PolicyOf) -> list[PartitionChanged]:
    """Leadership back to the first replicas, wherever they can take it."""
    changes = []
    for topic in image.topics.values():
        if not policy_of(topic).assigned:
            continue
        for index, state in enumerate(topic.partitions):
            preferred = state.replicas[0]
            if state.leader != preferred and _may_lead(image, state, preferred):
                changed = with_leader(state, image.brokers[preferred])
                changes.append(PartitionChanged(name=topic.name, partition=index, state=changed))
    return changes


def elect_preferred(image: ClusterImage, topic_partition: TopicPartition) -> PartitionChanged:
    """The first replica leads from now on. Raises what the ElectLeaders API answers (KIP-460)."""
    state = existing_partition(image, topic_partition)
    preferred = state.replicas[0]
    if image.leader_of(state) == preferred:
        raise ElectionNotNeeded(f"broker {preferred} already leads {topic_partition}")
    if not _may_lead(image, state, preferred):
        raise PreferredLeaderNotAvailable(
            f"broker {preferred} cannot lead {topic_partition}: it is not alive or not in sync"
        )
    return changed_partition(topic_partition, with_leader(state, image.brokers[preferred]))


def elect_unclean(
    image: ClusterImage, topic_partition: TopicPartition, log_ends: Mapping[BrokerId, LogEnd]
) -> PartitionChanged:
    """Any live replica leads from now on, because an operator asked for it."""
    state = existing_partition(image, topic_partition)
    if image.leader_of(state) != NO_BROKER:
        raise ElectionNotNeeded(f"broker {state.leader} leads {topic_partition}")
    repaired = _repaired(state, image.brokers, LeaderPolicy(unclean=True), log_ends)
    if repaired.leader == NO_BROKER:
        raise EligibleLeadersNotAvailable(f"no replica of {topic_partition} is alive")
    return changed_partition(topic_partition, repaired)


def check_in_sync_wish(
    image: ClusterImage, topic_partition: TopicPartition, wish: InSyncWish
) -> PartitionState:
    """The partition with the in-sync set that its leader asks for, or the reason why not."""
    state = existing_partition(image, topic_partition)
    sender = image.brokers.get(wish.broker_id)
    if sender is None or sender.epoch != wish.broker_epoch:
        raise StaleBrokerEpoch(f"broker {wish.broker_id} has registered again since")
    if wish.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(f"{topic_partition} is in epoch {state.leader_epoch}")
    if wish.leader_epoch > state.leader_epoch or wish.partition_epoch > state.partition_epoch:
        raise NotController(f"the leader of {topic_partition} knows more than this controller")
    if wish.broker_id != state.leader:
        raise InvalidRequest(f"broker {wish.broker_id} does not lead {topic_partition}")
    if wish.partition_epoch < state.partition_epoch:
        raise InvalidUpdateVersion(f"{topic_partition} has changed to {state.partition_epoch}")
    if wish.broker_id not in wish.in_sync or not set(wish.in_sync) <= set(state.replicas):
        raise InvalidRequest(
            f"the in-sync set of {topic_partition} needs its leader, and replicas only"
        )
    missing = [each for each in wish.in_sync if each not in image.brokers]
    if missing:
        raise IneligibleReplica(f"brokers {missing} are not alive")
    in_sync = tuple(each for each in state.replicas if each in wish.in_sync)
    return replace(state, in_sync=in_sync, partition_epoch=state.partition_epoch + 1)


def plan_votes(image: ClusterImage, votes: Mapping[TopicPartition, Vote]) -> list[PartitionChanged]:
    """Make known whom the replicas elected. News of an epoch that is known already is dropped."""
    changes = []
    for topic_partition, vote in votes.items():
        state = image.partition(topic_partition)
        broker = image.brokers.get(vote.leader)
        if state is None or broker is None or vote.leader not in state.replicas:
            continue
        if vote.leader_epoch > state.leader_epoch:
            changed = replace(with_leader(state, broker), leader_epoch=vote.leader_epoch)
            changes.append(changed_partition(topic_partition, changed))
    return changes


def in_batches(changes: Iterable[Change]) -> Iterator[Sequence[Change]]:
    """The changes in proposals of a bounded size, in order: brokers that are gone come first."""
    reading = iter(changes)
    while batch := tuple(islice(reading, CHANGES_PER_PROPOSAL_MAX)):
        yield batch


def existing_partition(image: ClusterImage, topic_partition: TopicPartition) -> PartitionState:
    state = image.partition(topic_partition)
    if state is None:
        raise UnknownTopicOrPartition(f"there is no partition {topic_partition}")
    return state


def changed_partition(topic_partition: TopicPartition, state: PartitionState) -> PartitionChanged:
    return PartitionChanged(
        name=topic_partition.topic, partition=topic_partition.partition, state=state
    )


def with_leader(
    state: PartitionState, broker: Broker | None, in_sync: tuple[BrokerId, ...] | None = None
) -> PartitionState:
    """The partition led by this broker, or by nobody, in a new epoch."""
    leader = NO_BROKER if broker is None else broker.broker_id
    in_sync = state.in_sync if in_sync is None else in_sync
    if broker is not None and leader not in in_sync:
        # What the others have beyond this leader's log is lost, so none of them is in sync.
        in_sync = (leader,)
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        in_sync=in_sync,
        partition_epoch=state.partition_epoch + 1,
        leader_broker_epoch=0 if broker is None else broker.epoch,
    )


def _is_well(state: PartitionState, alive: Mapping[BrokerId, Broker]) -> bool:
    """Whether nothing is to be done: asked of every partition at every death, so it is quick."""
    leader = alive.get(state.leader)
    if leader is None or leader.epoch != state.leader_broker_epoch:
        return False
    for broker_id in state.in_sync:  # noqa: SIM110 (a loop is twice as fast as all())
        if broker_id not in alive:
            return False
    return True


def _repaired(
    state: PartitionState,
    alive: Mapping[BrokerId, Broker],
    policy: LeaderPolicy,
    log_ends: Mapping[BrokerId, LogEnd],
) -> PartitionState:
    """The partition as it should be with only these brokers alive; the same one if it is so."""
    in_sync = tuple([broker_id for broker_id in state.in_sync if broker_id in alive])
    leader = alive.get(state.leader)
    if leader is not None and leader.epoch == state.leader_broker_epoch:
        if in_sync == state.in_sync:
            return state
        return replace(state, in_sync=in_sync, partition_epoch=state.partition_epoch + 1)
    chosen = choose_leader(state, alive, policy, log_ends)
    if chosen is None:
        # The last in-sync set is kept: only its members have all that was acknowledged.
        return state if state.leader == NO_BROKER else with_leader(state, None)
    return with_leader(state, alive[chosen], in_sync)


def _may_lead(image: ClusterImage, state: PartitionState, broker_id: BrokerId) -> bool:
    return broker_id in image.brokers and broker_id in state.in_sync

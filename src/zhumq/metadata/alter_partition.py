"""What replicas ask of the cluster, decided on the newest picture: a change, or nothing. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from zhumq.metadata.changes import PartitionChanged
from zhumq.metadata.image import NO_BROKER, ClusterImage, Topic
from zhumq.metadata.leadership import (
    InSyncRequest,
    LeaderPolicy,
    LogEnd,
    LogEnds,
    PolicyOf,
    changed_partition,
    existing_partition,
    name_leader,
    plan_membership,
)
from zhumq.metadata.reassignment import change_in_sync
from zhumq.model.cluster_errors import IneligibleReplica
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLeaderRequest:
    """A replica that was named leader, or knows of a later epoch, asks for another word."""

    broker_id: BrokerId
    # The latest epoch that it knows of.
    leader_epoch: LeaderEpoch
    partition_epoch: int
    # It has lost flushed data, and must not be named again until it has got it back.
    damaged: bool


def plan_in_sync(
    image: ClusterImage,
    topic_partition: TopicPartition,
    request: InSyncRequest,
    policy: LeaderPolicy,
) -> PartitionChanged | None:
    """The in-sync set that a leader asks for. Raises BrokerError where it may not ask."""
    state = existing_partition(image, topic_partition)
    if state.mode is not Mode.FETCH:
        return None
    try:
        return change_in_sync(image, topic_partition, request, policy.min_in_sync)
    except IneligibleReplica:
        # A refusal is a version of its own, so that the same proposal cannot come true later.
        refused = replace(state, partition_epoch=state.partition_epoch + 1)
        return changed_partition(topic_partition, refused)


def plan_other_leader(
    image: ClusterImage,
    topic_partition: TopicPartition,
    request: OtherLeaderRequest,
    policy: LeaderPolicy,
    log_ends: Mapping[BrokerId, LogEnd],
) -> PartitionChanged | None:
    """A leader in an epoch above all that the replica knows of."""
    state = existing_partition(image, topic_partition)
    if state.mode is not Mode.FETCH or request.partition_epoch != state.partition_epoch:
        return None
    unfit: tuple[BrokerId, ...] = ()
    others = [
        each for each in state.replicas if each != request.broker_id and each in image.brokers
    ]
    lost_the_vote = state.changing_mode and state.leader == request.broker_id
    if request.damaged or (lost_the_vote and others and not log_ends):
        # Without a word on whose log is longest, another one tries.
        unfit = (request.broker_id,)
    named = name_leader(
        state, image.brokers, policy, log_ends, above_epoch=request.leader_epoch, unfit=unfit
    )
    if named is state or (named.leader == NO_BROKER and state.leader == NO_BROKER):
        return None
    return changed_partition(topic_partition, named)


def plan_replacements(
    image: ClusterImage,
    broker_id: BrokerId,
    broker_epoch: int,
    policy_of: PolicyOf,
    log_ends: LogEnds,
) -> Iterator[PartitionChanged]:
    """Other leaders for what a broker leads that cannot be reached, though its session goes on."""

    def clean_policy_of(topic: Topic) -> LeaderPolicy:
        # A guess is no reason to lose messages.
        return replace(policy_of(topic), unclean=False)

    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return
    others = frozenset(image.brokers) - {broker_id}
    for change in plan_membership(image, others, clean_policy_of, log_ends):
        if (
            isinstance(change, PartitionChanged)
            and image.topics[change.name].partitions[change.partition].leader == broker_id
            and change.state.leader != NO_BROKER
        ):
            yield change

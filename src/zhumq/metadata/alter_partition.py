"""Decides AlterPartition requests of replicas on the newest metadata image. Pure."""

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
    """A replica declines its leadership, or reports a later epoch, and asks for another leader."""

    broker_id: BrokerId
    # The latest epoch that the replica knows.
    leader_epoch: LeaderEpoch
    partition_epoch: int
    # The replica lost flushed data and must not be named again before it has recovered.
    damaged: bool


def plan_in_sync(
    image: ClusterImage,
    topic_partition: TopicPartition,
    request: InSyncRequest,
    policy: LeaderPolicy,
) -> PartitionChanged | None:
    """The in-sync set that a leader requests. Raises BrokerError if the request is not valid."""
    state = existing_partition(image, topic_partition)
    if state.mode is not Mode.FETCH:
        return None
    try:
        return change_in_sync(image, topic_partition, request, policy.min_in_sync)
    except IneligibleReplica:
        # A refusal raises the version, so that the same proposal cannot be accepted later.
        refused = replace(state, partition_epoch=state.partition_epoch + 1)
        return changed_partition(topic_partition, refused)


def plan_other_leader(
    image: ClusterImage,
    topic_partition: TopicPartition,
    request: OtherLeaderRequest,
    policy: LeaderPolicy,
    log_ends: Mapping[BrokerId, LogEnd],
) -> PartitionChanged | None:
    """A leader in an epoch above every epoch that the replica knows."""
    state = existing_partition(image, topic_partition)
    if state.mode is not Mode.FETCH or request.partition_epoch != state.partition_epoch:
        return None
    unfit: tuple[BrokerId, ...] = ()
    others = [
        each for each in state.replicas if each != request.broker_id and each in image.brokers
    ]
    lost_election = state.changing_mode and state.leader == request.broker_id
    if request.damaged or (lost_election and others and not log_ends):
        # The ends of the logs are unknown, so another replica tries.
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
    """New leaders for the partitions of an unreachable broker whose session has not ended."""

    def clean_policy_of(topic: Topic) -> LeaderPolicy:
        # The broker may be alive: never lose messages on a suspicion.
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

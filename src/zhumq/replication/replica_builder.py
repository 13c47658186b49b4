"""Builds a replica: its persisted quorum state, what its disk has lost, the core for its partition's mode."""

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import (
    LeaderAssigned,
    Mode,
    QuorumState,
    ReplicaSettings,
)
from zhumq.consensus.mode_change import state_for_fetch, state_for_raft
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.voters import Voters
from zhumq.metadata.image import NO_BROKER, ClusterImage, PartitionState
from zhumq.model.ids import BrokerId
from zhumq.replication.driver import Core, ReplicaDriver
from zhumq.replication.replication import Replication
from zhumq.storage.log import Log
from zhumq.storage.quorum_journal import QuorumJournal, ReplicaKey

logger = logging.getLogger(__name__)

# Each core that a replica builds in one broker epoch numbers its fetches above those of the previous one.
CORES_PER_BROKER_EPOCH_MAX: Final = 2**16
FIRST_PARTITION_EPOCH: Final = 0


def initial_quorum_state(
    journal: QuorumJournal,
    topic_id: uuid.UUID,
    partition: PartitionState,
    log: Log,
    broker_id: BrokerId,
    *,
    had_log: bool,
) -> QuorumState:
    """The quorum state a replica starts with: its persisted vote, and whether its disk has lost data."""
    persisted = journal.find((topic_id, log.topic_partition.partition))
    if persisted is not None:
        # A replica that has voted had a log.
        return persisted if had_log else replace(persisted, recovering=True)
    fresh = QuorumState(mode=partition.mode)
    if partition.replicas == (broker_id,):
        return fresh
    # An empty log without a quorum state is the same as no log.
    if log.log_end_offset or partition.partition_epoch == FIRST_PARTITION_EPOCH:
        return fresh
    logger.warning(
        "%s has an empty log though the partition is not new: fetching all of it",
        log.topic_partition,
    )
    return state_after_loss(fresh, partition, broker_id)


def keeps_quorum_state(partition: PartitionState, broker_id: BrokerId) -> bool:
    """Whether a replica has votes to remember. Not if it is the only one, and the controller names the leader."""
    return partition.mode is Mode.RAFT or partition.replicas != (broker_id,)


def state_after_loss(
    known: QuorumState, partition: PartitionState, broker_id: BrokerId
) -> QuorumState:
    """The quorum state of a replica of an old partition whose disk is empty or damaged."""
    # A replica that a reassignment adds need not know its votes: the reassignment ends in an epoch
    # above every epoch in which it may have voted.
    unknown = broker_id not in partition.adding
    # The current mode, whatever mode the disk had: the lost votes were cast in the current mode.
    return replace(known, mode=partition.mode, recovering=True, votes_unknown=unknown)


def record_losses(journal: QuorumJournal, image: ClusterImage, broker_id: BrokerId) -> None:
    """Persist what a disk without an intact quorum journal has lost: its votes, and perhaps its logs.

    The metadata image is from before this broker registers, so every replica that it assigns to this
    broker existed on an earlier disk. An unchanged partition is not a new one: nothing changes while
    all replicas stay in sync. Raises BrokerError if the write fails.
    """
    if journal.is_intact:
        return
    losses: dict[ReplicaKey, QuorumState] = {}
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            key = (topic.topic_id, index)
            if broker_id not in partition.replicas or partition.replicas == (broker_id,):
                continue
            # A state in a damaged journal may be older than the one that was lost.
            known = journal.find(key) or QuorumState(mode=partition.mode)
            losses[key] = state_after_loss(known, partition, broker_id)
    if losses:
        logger.error(
            "this disk has lost the quorum state of %d replicas: fetching them from their leaders",
            len(losses),
        )
    if losses or not journal.is_missing:
        journal.admit(losses.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreMaker:
    """Makes cores for the replicas of one broker in one broker epoch."""

    broker_id: BrokerId
    broker_epoch: int
    replication: Replication

    def make(
        self,
        partition: PartitionState,
        state: QuorumState,
        settings: ReplicaSettings,
        *,
        high_watermark: int,
        rebuilds: int,
    ) -> Callable[[ReplicaDriver], Core]:
        """A factory of the core for the partition's mode, which continues from `state`."""
        if partition.mode is Mode.RAFT:
            kind: type[RaftReplica | AssignedReplica] = RaftReplica
            begun = state_for_raft(state, partition.leader_epoch)
        else:
            kind = AssignedReplica
            begun = state_for_fetch(state)
        incarnation = self.broker_epoch * CORES_PER_BROKER_EPOCH_MAX + min(
            rebuilds, CORES_PER_BROKER_EPOCH_MAX - 1
        )
        replication = self.replication

        def make(driver: ReplicaDriver) -> Core:
            return kind(
                self.broker_id,
                Voters(partition.replicas),
                driver.log,
                settings,
                begun,
                high_watermark=high_watermark,
                incarnation=incarnation,
                draw=replication.draw,
                now_ms=replication.clock.monotonic_ms(),
                session_contact_ms=driver.session_contact_ms,
            )

        return make


def leader_assigned(
    state: PartitionState, broker_id: BrokerId, *, own_epoch: int | None
) -> LeaderAssigned:
    """The controller's assignment of a leader. A broker named in an earlier broker epoch does not lead."""
    is_fenced = state.leader == broker_id and state.leader_broker_epoch != own_epoch
    leader_id = None if is_fenced or state.leader == NO_BROKER else state.leader
    return LeaderAssigned(
        version=state.partition_epoch,
        epoch=state.leader_epoch,
        leader_id=leader_id,
        in_sync=frozenset(state.in_sync),
        changing_mode=state.changing_mode,
        unclean_epoch=state.unclean_epoch,
        replicas=tuple(state.replicas),
    )

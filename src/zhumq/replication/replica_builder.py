"""Opens a replica: what it remembers, what it has lost, and the core that fits its partition's mode."""

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
from zhumq.storage.partition_log import PartitionLog
from zhumq.storage.quorum_journal import QuorumJournal, ReplicaKey

logger = logging.getLogger(__name__)

# A core that is built anew in one registration of the broker counts its fetches from higher up.
CORES_PER_BROKER_EPOCH_MAX: Final = 2**16
FIRST_PARTITION_EPOCH: Final = 0


def remember(
    journal: QuorumJournal,
    topic_id: uuid.UUID,
    partition: PartitionState,
    log: PartitionLog,
    broker_id: BrokerId,
    *,
    had_log: bool,
) -> QuorumState:
    """What a replica begins with: what it has promised, and whether it has lost something."""
    persisted = journal.find((topic_id, log.topic_partition.partition))
    if persisted is not None:
        # Who has voted had a log.
        return persisted if had_log else replace(persisted, recovering=True)
    fresh = QuorumState(mode=partition.mode)
    if partition.replicas == (broker_id,):
        return fresh
    # A log in which there is nothing, and that has promised nothing, is as good as none.
    if log.log_end_offset or partition.partition_epoch == FIRST_PARTITION_EPOCH:
        return fresh
    logger.warning("%s is empty here though it is not new: fetching all of it", log.topic_partition)
    return wiped(fresh, partition, broker_id)


def wiped(known: QuorumState, partition: PartitionState, broker_id: BrokerId) -> QuorumState:
    """What to go on with where a replica of an old partition finds its disk empty, or not whole."""
    # One that comes with a move, which ends in an epoch above all in which it may ever have voted,
    # need not know its votes.
    unknown = broker_id not in partition.adding
    # In the mode of now, whatever was found of an earlier one: that is where the votes were given.
    return replace(known, mode=partition.mode, recovering=True, votes_unknown=unknown)


def admit_losses(journal: QuorumJournal, image: ClusterImage, broker_id: BrokerId) -> None:
    """Write down what a disk without a whole journal has lost: its promises, and perhaps its logs.

    The picture is from before this broker registers, so what is this broker's there, an earlier disk
    of it knew. That nothing has changed since a partition was created does not make it new: where
    everybody stays in sync nothing changes. Raises BrokerError if it cannot be written down.
    """
    if journal.is_intact:
        return
    losses: dict[ReplicaKey, QuorumState] = {}
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            key = (topic.topic_id, index)
            if broker_id not in partition.replicas or partition.replicas == (broker_id,):
                continue
            # What was found in a damaged one may be older than what was lost.
            known = journal.find(key) or QuorumState(mode=partition.mode)
            losses[key] = wiped(known, partition, broker_id)
    if losses:
        logger.error("this disk has lost what it knew of %d replicas: fetching them", len(losses))
    journal.admit(losses.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreMaker:
    """Makes cores for the replicas of one broker in one of its lives."""

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
        """The core for the mode that the partition is in, going on from what is remembered."""
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
    """The coordinator's word on a partition. Who was named in an earlier life does not lead."""
    was_before = state.leader == broker_id and state.leader_broker_epoch != own_epoch
    leader_id = None if was_before or state.leader == NO_BROKER else state.leader
    return LeaderAssigned(
        version=state.partition_epoch,
        epoch=state.leader_epoch,
        leader_id=leader_id,
        in_sync=frozenset(state.in_sync),
        changing_mode=state.changing_mode,
        unclean_epoch=state.unclean_epoch,
        replicas=tuple(state.replicas),
    )

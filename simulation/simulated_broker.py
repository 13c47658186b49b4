"""A broker of one partition in a simulation: its sessions, its metadata images, its replica."""

from typing import TYPE_CHECKING

from simulation.simulated_replica import SimulatedReplica
from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import (
    BrokerLost,
    Mode,
    QuorumState,
    RoleChange,
)
from zhumq.consensus.mode_change import state_for_fetch, state_for_raft
from zhumq.consensus.raft import RaftReplica
from zhumq.metadata.image import ClusterImage, PartitionState
from zhumq.model.ids import BrokerId
from zhumq.replication.replica_builder import leader_assigned, state_after_loss

if TYPE_CHECKING:
    from simulation.simulator import World


def partition_of(image: ClusterImage) -> PartitionState:
    """The one partition of a simulated cluster."""
    (topic,) = image.topics.values()
    (state,) = topic.partitions
    return state


class SimulatedBroker(SimulatedReplica):
    """Registers, applies metadata images, and opens and drops its replica."""

    def __init__(self, broker_id: int, world: "World", *, clock_rate: float) -> None:
        super().__init__(broker_id, world, clock_rate=clock_rate)
        # Whether the disk holds anything of the partition, even only a quorum state.
        self.holds = broker_id in world.node_ids[: world.options.replicas]
        # The epoch of its last registration.
        self.broker_epoch: int | None = None
        self.seen_version = -1
        self._image: ClusterImage | None = None

    # Start, sessions, loss of the disk

    def start(self) -> None:
        assert self.replica is None
        self.is_up = True
        self.incarnation += 1
        self.seen_version = -1
        self.broker_epoch = None
        self._image = None
        self.world.note("start", self.broker_id, self.incarnation, self.log.log_end_offset)
        self.world.controller.connect(self.broker_id)

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch is not None

    def on_registered(self, broker_epoch: int) -> None:
        """The broker is registered, for the first time or after its session was lost."""
        self.broker_epoch = broker_epoch
        replica = self.replica
        if isinstance(replica, AssignedReplica):
            known = self._known_state
            is_named = (known.leader, known.leader_broker_epoch) == (self.broker_id, broker_epoch)
            leads = replica.leads_or_campaigns and replica.epoch == known.leader_epoch
            if known.mode is Mode.FETCH and is_named and not leads:
                self._rebuild(known)
        self.publish()

    def on_session_lost(self, broker_epoch: int | None) -> None:
        """The broker notices that its session is over. A leader continues: its epoch fences it."""
        if self.is_up and broker_epoch == self.broker_epoch:
            self.world.note("without a session", self.broker_id)

    @property
    def _known_state(self) -> PartitionState:
        assert self._image is not None
        return partition_of(self._image)

    def _open(self, partition: PartitionState) -> None:
        """Open the replica, for the first time or again."""
        state = self.state
        if not self.holds:
            state = state_after_loss(
                QuorumState(mode=partition.mode), partition, BrokerId(self.broker_id)
            )
            self.holds = True
        raft = partition.mode is Mode.RAFT
        state = state_for_raft(state, partition.leader_epoch) if raft else state_for_fetch(state)
        self.world.note("open", self.broker_id, partition.partition_epoch, state)
        self._persist(state)
        self._begin(state, partition.replicas)
        self._assign_leader(partition)

    def _close(self) -> None:
        """The partition moved to other brokers: drop its log and its quorum state."""
        self.world.note("close", self.broker_id)
        self._fail_waiting()
        self.state = QuorumState(mode=self.state.mode)
        self.checkpointed_high_watermark = 0
        self.world.checkers.removed(self.broker_id)
        self.world.maybe_crash(self, often=True)
        if not self.is_up:
            return
        self.replica = None
        self.incarnation += 1
        self._flushing = False
        self._parked.clear()
        self.log.wipe()
        # Not before: a crash leaves the log and the damage in it.
        self.world.checkers.excused.discard(self.broker_id)
        self.holds = False

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.crash()
        self.world.note("wipe", self.broker_id)
        self.world.checkers.wiped(self.broker_id)
        self.log.wipe()
        self.state = QuorumState(mode=self.state.mode, recovering=True, votes_unknown=True)
        self.holds = False
        self.checkpointed_high_watermark = 0

    def on_image(self, image: ClusterImage) -> None:
        """Receive a metadata image, perhaps an old one."""
        if not self.is_up:
            return
        partition = partition_of(image)
        if image.version > self.seen_version:
            known = () if self._image is None else self._image.brokers
            lost = [each for each in known if each not in image.brokers]
            self.seen_version = image.version
            self._image = image
            own = image.brokers.get(BrokerId(self.broker_id))
            if self.replica is None and (
                self.broker_epoch is None or own is None or own.epoch < self.broker_epoch
            ):
                # An older image may show a mode that this broker has left for good.
                return
            for broker_id in lost:
                if self.replica is not None and broker_id in self.replica.voters:
                    self.step(BrokerLost(broker_id=broker_id))
            self._apply(partition)
            self.publish()
        elif partition.mode is Mode.FETCH:
            # A stale image goes to the replica as well, which has to ignore it.
            self._assign_leader(partition)

    def _apply(self, partition: PartitionState) -> None:
        """Apply the partition state of the image to the replica."""
        replica = self.replica
        if self.broker_id not in partition.replicas:
            if replica is not None or self.holds:
                self._close()
            return
        if replica is None:
            self._open(partition)
        elif partition.mode is not replica.quorum_state.mode or (
            partition.mode is Mode.RAFT and set(replica.voters.ids) != set(partition.replicas)
        ):
            self._rebuild(partition)
        else:
            self._assign_leader(partition)

    def _assign_leader(self, partition: PartitionState) -> None:
        if partition.mode is Mode.FETCH and isinstance(self.replica, AssignedReplica):
            self.step(
                leader_assigned(partition, BrokerId(self.broker_id), own_epoch=self.broker_epoch)
            )

    def _rebuild(self, partition: PartitionState) -> None:
        """Build another core on the state of this one. A leader loses its leadership."""
        assert self.replica is not None
        self.world.note("rebuild", self.broker_id, partition.mode)
        # A change from raft to raft with other voters goes through fetch mode as well.
        state = state_for_fetch(self.replica.quorum_state)
        if partition.mode is Mode.RAFT:
            state = state_for_raft(state, partition.leader_epoch)
        self._checkpoint()
        self.incarnation += 1
        self._persist(state)
        self._begin(state, partition.replicas)
        self._assign_leader(partition)

    def publish(self) -> None:
        """Publish a raft leader that the metadata does not show yet."""
        replica = self.replica
        if self._image is None or not isinstance(replica, RaftReplica) or not replica.serving:
            return
        known = self._known_state
        if (known.leader, known.leader_epoch, known.leader_broker_epoch) != (
            self.broker_id,
            replica.epoch,
            self.broker_epoch,
        ):
            self.world.controller.elected(self.broker_id, replica.epoch)

    def resign_for(self, other: int) -> None:
        """Resign in favour of another replica, if that one has everything."""
        replica = self.replica
        if isinstance(replica, RaftReplica) and replica.resign_for(other, self.now_ms):
            self.world.note("resign", self.broker_id, other)
            self.carry_out()

    def _on_role_changed(self, change: RoleChange) -> None:
        super()._on_role_changed(change)
        self.publish()

"""The replicas of this broker, from opening to retirement: assignments, sessions, and elected leaders to publish."""

import asyncio
import logging
import uuid
from dataclasses import replace
from typing import Final

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import (
    BrokerLost,
    Flushed,
    Mode,
    QuorumState,
    ReplicaSettings,
    Role,
)
from zhumq.consensus.mode_change import state_for_fetch
from zhumq.metadata.image import ClusterImage, PartitionState
from zhumq.metadata.leadership import LogEnd
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from zhumq.protocol.messages.replicas import LogEndsRequest, LogEndsResponse
from zhumq.replication.driver_seam import damage_of
from zhumq.replication.inter_broker.peer_service import PeerConnection
from zhumq.replication.inter_broker.peers import TaskKeeper
from zhumq.replication.log_ends import LOG_ENDS, answer_log_ends
from zhumq.replication.partition import Partition
from zhumq.replication.pending import LeadershipCallback
from zhumq.replication.preferred_leaders import ELECT_PREFERRED, PreferredLeaders
from zhumq.replication.replica_builder import (
    CoreMaker,
    initial_quorum_state,
    keeps_quorum_state,
    leader_assigned,
    record_losses,
)
from zhumq.replication.replica_router import ReplicaRouter
from zhumq.replication.replication import PartitionSettings, Replication
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_manager import LogManager
from zhumq.storage.quorum_journal import QUORUM_FILE, QuorumJournal

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
# Time in which all replicas learn that their partition changed its mode.
MODE_NOTICE_MS: Final = 100


class ReplicaLifecycle:
    """Opens replicas, applies assignments to them, and publishes the leaders that they elect."""

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        flusher: Flusher,
        replication: Replication,
        on_leadership: LeadershipCallback,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._replication = replication
        self._on_leadership = on_leadership
        self._partitions: dict[TopicPartition, Partition] = {}
        self._broker_epoch: int | None = None
        self._is_alive = False
        self._has_seen_itself = False
        # Leaders elected on this broker that the metadata image does not show yet.
        self._unpublished: set[TopicPartition] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.image: ClusterImage | None = None
        self._journal = QuorumJournal(logs.disk, f"{logs.data_dir}/{QUORUM_FILE}")
        self.router = ReplicaRouter(replication, flusher, self._journal)
        self.preferred_leaders = PreferredLeaders(
            broker_id, replication.peers, lambda: self.image, self._partitions
        )
        self._tasks = TaskKeeper()
        self._ticks = 0
        replication.service.register(LOG_ENDS, self._on_log_ends)
        replication.service.register(ELECT_PREFERRED, self.preferred_leaders.answer)

    @property
    def is_active(self) -> bool:
        """Whether replicas may take part: the broker is registered, and the metadata image is no older
        than the registration. An older image may show a mode that this broker has left for good."""
        if self._broker_epoch is None or self.image is None:
            return False
        if not self._has_seen_itself:
            own = self.image.brokers.get(self._broker_id)
            self._has_seen_itself = own is not None and own.epoch >= self._broker_epoch
        return self._has_seen_itself

    # The broker's session

    def on_registered(self, broker_epoch: int) -> None:
        is_first = self._broker_epoch is None
        self._broker_epoch = broker_epoch
        self._is_alive = True
        self._replication.peers.broker_epoch = broker_epoch
        if is_first:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
            return
        # New fetch sessions, in the new broker epoch: leaders count what this broker's replicas report from now on.
        self.router.begin_new_sessions()
        for partition in self._partitions.values():
            partition.set_isolated(False)
            state = self._state_of(partition)
            if state is None:
                continue
            if state.mode is Mode.FETCH:
                if _is_named_in(state, self._broker_id, broker_epoch) and not _leads(
                    partition, state
                ):
                    # The image named this broker before its replicas knew the new broker epoch.
                    self._rebuild(partition, state)
            elif partition.leads:
                self._unpublished.add(partition.topic_partition)
        self._publish()

    def on_session_lost(self) -> None:
        """The session is lost, or may be. Leaders continue while in-sync followers fetch from them.

        Leader epochs fence leaders, sessions do not: the controller names another leader from the
        in-sync set, and from then on at least that replica no longer fetches here, so nothing more is
        committed here. An elected leader depends on its followers, not on the session.
        """
        self._is_alive = False

    def _isolate_unfollowed_leaders(self, now_ms: int) -> None:
        """Without a session, a named leader does not learn that the controller named another one: it
        refuses clients while no in-sync follower fetches from it."""
        for partition in self._partitions.values():
            core = partition.driver.core
            if isinstance(core, AssignedReplica):
                contact_ms = core.in_sync_contact_ms()
                is_alone = contact_ms is not None and (
                    now_ms - contact_ms > core.settings.election_timeout_ms
                )
                partition.set_isolated(is_alone)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()
        await self.router.close()

    # Metadata changes

    def on_new_image(self, image: ClusterImage) -> None:
        """Receive a metadata image before it is applied. The first one is from before the broker
        registers. Raises BrokerError if the losses that follow from it cannot be persisted."""
        if self.image is None:
            record_losses(self._journal, image, self._broker_id)
        known = frozenset() if self.image is None else frozenset(self.image.brokers)
        self.image = image
        # Before the assignments of this image: a leader must not propose a follower for the in-sync set by
        # what it knows of a lost broker, which may come back with an empty disk.
        for broker_id in sorted(known.difference(image.brokers)):
            logger.info("broker %d is no longer registered", broker_id)
            for partition in tuple(self._partitions.values()):
                if broker_id in partition.driver.core.voters:
                    partition.driver.step(BrokerLost(broker_id=broker_id))

    def on_image_applied(self) -> None:
        self._publish()

    def open(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        state: PartitionState,
        settings: PartitionSettings,
    ) -> Partition:
        """Open a replica of this broker with its persisted quorum state. Raises BrokerError."""
        logs = self._logs
        had_log = logs.has_log(topic_partition)
        keeps_state = keeps_quorum_state(state, self._broker_id)
        if keeps_state:
            self._journal.create()
        # Creating folders takes most of the time if a topic has thousands of partitions.
        log = logs.create_log(
            topic_partition, topic_id, settings.log_config, lazily=not keeps_state
        )
        high_watermark = logs.high_watermarks.pop(topic_partition, 0) if had_log else 0
        quorum_state = initial_quorum_state(
            self._journal, topic_id, state, log, self._broker_id, had_log=had_log
        )
        partition = Partition(
            topic_partition,
            topic_id,
            log,
            self.router,
            self._maker().make(
                state,
                quorum_state,
                self._settings(settings.min_in_sync_replicas),
                high_watermark=high_watermark,
                rebuilds=0,
            ),
            self._leadership_changed,
            min_in_sync_replicas=settings.min_in_sync_replicas,
            damaged_from=(
                # No other replica has the records: the broker serves those that can be read.
                None if state.replicas == (self._broker_id,) else damage_of(log, high_watermark)
            ),
        )
        self._partitions[topic_partition] = partition
        self.router.add((topic_id, topic_partition.partition), partition.driver)
        is_new = not had_log and not quorum_state.recovering
        if is_new and state.replicas[0] == self._broker_id:
            # A new partition has no leader: its first replica does not wait for an election timeout.
            partition.driver.core.campaign_soon(self._replication.clock.monotonic_ms())
        return partition

    def start(self, partition: Partition, state: PartitionState) -> None:
        """Start a replica that was just opened."""
        partition.driver.start(
            damaged_from=partition.damaged_from, persisted=self._persisted_state(partition)
        )
        self.update(partition, state)
        self.router.deliver_early(partition.driver, state.replicas)

    def _persisted_state(self, partition: Partition) -> QuorumState | None:
        return self._journal.find((partition.topic_id, partition.topic_partition.partition))

    def update(self, partition: Partition, state: PartitionState) -> None:
        """Apply the partition state of the metadata image to a replica."""
        self._apply(partition, state)
        partition.replicas_changed()

    def _apply(self, partition: Partition, state: PartitionState) -> None:
        driver = partition.driver
        core = driver.core
        if partition.min_in_sync_replicas != core.settings.min_in_sync_replicas:
            core.settings = self._settings(partition.min_in_sync_replicas)
            # What is flushed may be enough to commit now, without any other event.
            driver.step(Flushed(end_offset=driver.log.flushed_offset))
        if core.quorum_state.mode is not state.mode:
            logger.info("%s changes to %s mode", partition.topic_partition, state.mode)
            led = core.role is Role.LEADER
            self._rebuild(partition, state)
            if led:
                # The leader so far has everything, and waits only until the others know the mode.
                now_ms = self._replication.clock.monotonic_ms()
                driver.core.campaign_soon(now_ms + MODE_NOTICE_MS)
            return
        if state.mode is Mode.FETCH:
            driver.step(leader_assigned(state, self._broker_id, own_epoch=self._broker_epoch))
        elif set(core.voters.ids) != set(state.replicas):
            logger.info(
                "%s: the replicas changed without the steps of a reassignment: rebuilding the core",
                partition.topic_partition,
            )
            self._rebuild(partition, state)
        elif partition.leads:
            self._unpublished.add(partition.topic_partition)

    def forget(self, partition: Partition) -> None:
        """This broker no longer has a replica of the partition."""
        self._partitions.pop(partition.topic_partition, None)
        self._unpublished.discard(partition.topic_partition)
        self.router.remove(partition.driver)

    def _rebuild(self, partition: Partition, state: PartitionState) -> None:
        core = partition.driver.core
        partition.rebuilds += 1
        partition.driver.replace_core(
            self._maker().make(
                state,
                # From raft to raft with other voters goes through fetch mode, as on other replicas.
                state_for_fetch(core.quorum_state),
                core.settings,
                high_watermark=core.high_watermark,
                rebuilds=partition.rebuilds,
            )
        )
        if state.mode is Mode.FETCH:
            assigned = leader_assigned(state, self._broker_id, own_epoch=self._broker_epoch)
            partition.driver.step(assigned)

    def _maker(self) -> CoreMaker:
        assert self._broker_epoch is not None
        return CoreMaker(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            replication=self._replication,
        )

    def _settings(self, min_in_sync_replicas: int) -> ReplicaSettings:
        return replace(
            self._replication.settings, min_in_sync_replicas=max(min_in_sync_replicas, 1)
        )

    def _state_of(self, partition: Partition) -> PartitionState | None:
        image = self.image
        if image is None:
            return None
        topic = image.topics.get(partition.topic_partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return None
        return image.partition(partition.topic_partition)

    # Publishing leaders

    def _leadership_changed(
        self, topic_partition: TopicPartition, leads: bool, leader_epoch: int
    ) -> None:
        partition = self._partitions.get(topic_partition)
        if partition is None or not partition.is_sole:
            logger.info(
                "%s: this broker %s, epoch %d",
                topic_partition,
                "leads" if leads else "does not lead",
                leader_epoch,
            )
        if partition is None:
            self._unpublished.discard(topic_partition)
        else:
            self._unpublished.add(topic_partition)
            if leads:
                self._publish_one(partition)
            # The next leader is most likely elected, and published, before the next tick.
        self._on_leadership(topic_partition, leads, leader_epoch)

    def _publish(self) -> None:
        for topic_partition in tuple(self._unpublished):
            partition = self._partitions.get(topic_partition)
            if partition is None:
                self._unpublished.discard(topic_partition)
            else:
                self._publish_one(partition)

    def _publish_one(self, partition: Partition) -> None:
        """Publish the leader of a raft partition, or that it has none: the replicas elect it, and the metadata follows."""
        topic_partition = partition.topic_partition
        state = self._state_of(partition)
        core = partition.driver.core
        requests = self._replication.controller_requests
        if state is None or core.quorum_state.mode is Mode.FETCH:
            self._unpublished.discard(topic_partition)
            return
        is_named = _is_named_in(state, self._broker_id, self._broker_epoch)
        if partition.leads and not (is_named and state.leader_epoch == core.epoch):
            requests.elected(topic_partition, core.epoch)
        elif partition.leads or not is_named:
            self._unpublished.discard(topic_partition)
        elif core.leader_id is None:
            requests.resigned(topic_partition, state.leader_epoch)

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        self._publish()
        self.router.forget_early()
        self._ticks += 1
        balance_seconds = self._replication.balance_seconds
        if balance_seconds is not None and self._ticks % max(int(balance_seconds), 1) == 0:
            balancing = asyncio.get_running_loop().create_task(
                self.preferred_leaders.balance(), name="balance of leaders"
            )
            self._tasks.start(balancing)
        now_ms = self._replication.clock.monotonic_ms()
        if not self._is_alive:
            self._isolate_unfollowed_leaders(now_ms)
        for partition in self._partitions.values():
            if partition.waiters_count:
                partition.fail_overdue(now_ms)

    # Ends of logs

    def _on_log_ends(self, _: PeerConnection, request: LogEndsRequest) -> LogEndsResponse:
        return answer_log_ends(request, self._own_log_end)

    def _own_log_end(self, topic_partition: TopicPartition) -> LogEnd | None:
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.driver.is_stopped:
            return None
        core = partition.driver.core
        if core.quorum_state.recovering:
            return None
        last_epoch, end_offset = core.vote_position
        return LogEnd(LeaderEpoch(last_epoch), Offset(end_offset))


def _is_named_in(state: PartitionState, broker_id: BrokerId, broker_epoch: int | None) -> bool:
    return state.leader == broker_id and state.leader_broker_epoch == broker_epoch


def _leads(partition: Partition, state: PartitionState) -> bool:
    """Whether the replica leads, or is a candidate, in the epoch it was named for."""
    core = partition.driver.core
    is_leader = isinstance(core, AssignedReplica) and core.leads_or_campaigns
    return is_leader and core.epoch == state.leader_epoch

"""The metadata store and the controller in a simulation: sessions, versioned writes, late watches.

`zhumq.metadata` makes every decision, as in a real cluster; the simulation chooses when, and on which
metadata image.
"""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from simulation.simulated_broker import partition_of
from zhumq.cluster.alter_partition_writer import in_sync_request, other_leader_request
from zhumq.consensus.contract import InSyncProposal, Mode, Proposal
from zhumq.metadata.alter_partition import plan_in_sync, plan_other_leader, plan_replacements
from zhumq.metadata.changes import BrokerRegistered, Change, TopicCreated, apply_changes
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import (
    ElectionResult,
    LeaderPolicy,
    LogEnd,
    LogEnds,
    partitions_without_leader,
    plan_election_results,
    plan_membership,
    plan_preferred_leaders,
)
from zhumq.metadata.modes import is_settled, plan_steps
from zhumq.metadata.reassignment import begin_move, cancel_move
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from simulation.simulator import World

SESSION_TIMEOUT_MS: Final = 1_500
HEARTBEAT_MS: Final = 250
T0: Final = TopicPartition("t", 0)
_TOPIC_ID: Final = uuid.UUID(int=1)


def _new_cluster(replicas: Sequence[int], mode: Mode) -> ClusterImage:
    """One partition without a leader, and no broker."""
    brokers = tuple(map(BrokerId, replicas))
    state = PartitionState(
        replicas=brokers,
        leader=NO_BROKER,
        leader_epoch=LeaderEpoch(0),
        in_sync=brokers,
        mode=mode,
    )
    topic = Topic(name=T0.topic, topic_id=_TOPIC_ID, partitions=(state,))
    empty = ClusterImage(
        version=0,
        cluster_id="simulated",
        controller_id=NO_BROKER,
        brokers={},
        topics={},
        topics_by_id={},
    )
    return apply_changes(empty, [TopicCreated(topic=topic)])


class SimulatedController:
    """Registers brokers, names leaders, moves replicas, and publishes leaders that voters elect."""

    def __init__(self, world: "World", mode: Mode) -> None:
        self._world = world
        self.image = _new_cluster(world.node_ids[: world.options.replicas], mode)
        # The topic's setting; the partition may still be in another mode.
        self._topic_mode = mode
        # The last contact with each broker that has a session.
        self._sessions: dict[int, int] = {}
        self._registrations = 0
        # Brokers that cannot reach the store, though they may reach other brokers.
        self.cut: set[int] = set()
        # Until then there is no controller: no session ends, nothing is decided.
        self.away_until_ms = 0
        self._is_awake = False

    @property
    def record(self) -> PartitionState:
        """The partition as the store has it."""
        return partition_of(self.image)

    @property
    def registered(self) -> frozenset[BrokerId]:
        return frozenset(map(BrokerId, self._sessions))

    @property
    def is_settled(self) -> bool:
        """Whether the partition has its target replicas and its target mode."""
        record = self.record
        moving = record.adding or record.removing
        return is_settled(record, self._topic_mode) and not moving

    @property
    def _policy(self) -> LeaderPolicy:
        return LeaderPolicy(mode=self._topic_mode, min_in_sync=self._world.options.min_in_sync)

    def _policy_of(self, _: Topic) -> LeaderPolicy:
        return self._policy

    # Sessions

    def connect(self, broker_id: int) -> None:
        """A broker has started, or has lost its session."""
        self._world.later(self._world.draw(1, 100), "connect", self._connected, broker_id)

    def _connected(self, broker_id: int) -> None:
        broker = self._world.brokers[broker_id]
        if not self._reaches(broker_id) or (broker_id in self._sessions and broker.is_registered):
            return
        self._sessions[broker_id] = self._world.now_ms
        self._registrations += 1
        broker_epoch = self._registrations
        self._world.note("registered", broker_id, broker_epoch)
        member = Broker(broker_id=BrokerId(broker_id), host="", port=0, epoch=broker_epoch)
        self._write_now([BrokerRegistered(broker=member)])
        broker.on_registered(broker_epoch)

    def _reaches(self, broker_id: int) -> bool:
        broker = self._world.brokers[broker_id]
        paused = broker.paused_until_ms > self._world.now_ms
        return broker.is_up and not paused and broker_id not in self.cut

    def tick(self) -> None:
        """Heartbeats: renew, expire and open sessions; send images to brokers that missed a watch."""
        self._world.later(HEARTBEAT_MS, "heartbeat", self.tick)
        now_ms = self._world.now_ms
        if now_ms < self.away_until_ms:
            # The next controller gives every session its full timeout.
            self._sessions = dict.fromkeys(self._sessions, now_ms)
            return
        for broker_id in self._world.node_ids:
            broker = self._world.brokers[broker_id]
            if not self._reaches(broker_id):
                seen_ms = self._sessions.get(broker_id)
                if seen_ms is not None and now_ms - seen_ms > SESSION_TIMEOUT_MS:
                    self._expire(broker_id)
                continue
            if broker_id not in self._sessions or not broker.is_registered:
                self.connect(broker_id)
                continue
            self._sessions[broker_id] = now_ms
            broker.publish()
            if broker.seen_version < self.image.version:
                self._notify(broker_id)
        self._wake()

    def _expire(self, broker_id: int) -> None:
        del self._sessions[broker_id]
        self._world.note("session lost", broker_id)
        # The broker notices some time later.
        broker = self._world.brokers[broker_id]
        self._world.later(
            self._world.draw(1, 4_000), "lost", broker.on_session_lost, broker.broker_epoch
        )

    # Decisions of the controller

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._world.later(self._world.draw(1, 40), "decide", self._act)

    def _act(self) -> None:
        """Decide what follows from the metadata image and the live brokers."""
        self._is_awake = False
        if self._world.now_ms < self.away_until_ms:
            return
        image = self.image
        live = self.registered
        log_ends = self._log_ends() if partitions_without_leader(image, live) else {}
        changes: list[Change] = list(plan_membership(image, live, self._policy_of, log_ends))
        if not changes:
            changes = list(plan_steps(image, image.topics[T0.topic], self._policy))
        if changes:
            self._write(changes)

    def _log_ends(self) -> LogEnds:
        """The log ends of the replicas that answer in time."""
        ends: dict[BrokerId, LogEnd] = {}
        for broker_id in self.record.replicas:
            replica = self._world.brokers[broker_id].replica
            if (
                replica is not None
                and self._reaches(broker_id)
                and not self._world.is_lost()
                and not replica.quorum_state.recovering
            ):
                last_epoch, end_offset = replica.vote_position
                ends[broker_id] = LogEnd(LeaderEpoch(last_epoch), Offset(end_offset))
        return {T0: ends} if ends else {}

    def switch_mode(self) -> None:
        """Change the topic's mode setting."""
        self._topic_mode = Mode.FETCH if self._topic_mode is Mode.RAFT else Mode.RAFT
        self._wake()

    def move(self, target: tuple[int, ...] | None) -> None:
        """Reassign the replicas to these brokers; None: cancel the reassignment."""
        if self._world.now_ms < self.away_until_ms:
            return
        try:
            if target is None:
                change = cancel_move(self.image, T0)
            else:
                change = begin_move(self.image, T0, tuple(map(BrokerId, target)))
        except BrokerError:
            return
        self._write([change])

    def balance(self) -> None:
        """Elect the preferred leader: fetch mode names it, a raft leader resigns in its favour."""
        record = self.record
        if record.mode is Mode.FETCH:
            if changes := list(plan_preferred_leaders(self.image)):
                self._write(changes)
            return
        for broker_id in record.replicas[1:]:
            self._world.brokers[broker_id].resign_for(record.replicas[0])

    # Requests of replicas

    def propose(self, broker_id: int, proposal: Proposal) -> None:
        """A broker sends a proposal, which arrives later or never."""
        if not self._reaches(broker_id) or self._world.is_lost():
            return
        delay_ms = self._world.draw(1, 2_000 if self._world.is_write_late() else 60)
        self._world.later(delay_ms, "propose", self._decide, broker_id, proposal)

    def _decide(self, broker_id: int, proposal: Proposal) -> None:
        policy = self._policy
        broker_epoch = self._world.brokers[broker_id].broker_epoch
        if broker_epoch is None:
            return
        try:
            if isinstance(proposal, InSyncProposal):
                change = plan_in_sync(
                    self.image, T0, in_sync_request(proposal, broker_epoch), policy
                )
            else:
                ends = self._log_ends().get(T0, {})
                change = plan_other_leader(
                    self.image, T0, other_leader_request(proposal), policy, ends
                )
        except BrokerError as reason:
            self._world.note("refused", broker_id, type(reason).__name__)
            return
        if change is not None:
            self._write_now([change])

    def elected(self, broker_id: int, epoch: int) -> None:
        """A broker publishes that the voters elected it."""
        if self._reaches(broker_id) and not self._world.is_lost():
            result = ElectionResult(leader=BrokerId(broker_id), leader_epoch=LeaderEpoch(epoch))
            self._world.later(self._world.draw(1, 60), "elected", self._publish, result)

    def _publish(self, result: ElectionResult) -> None:
        if changes := plan_election_results(self.image, {T0: result}):
            self._write_now(changes)

    def report_unreachable(self, broker_id: int, broker_epoch: int) -> None:
        """Another broker reports this one unreachable before its session ends."""
        replacements = plan_replacements(
            self.image, BrokerId(broker_id), broker_epoch, self._policy_of, self._log_ends()
        )
        if changes := list(replacements):
            self._write_now(changes)

    # The store

    def _write(self, changes: Sequence[Change]) -> None:
        """Write a decision on the current image, sometimes much later: then the write may come from a
        controller that has been replaced."""
        version = self.image.version
        delay_ms = self._world.draw(1, 1_000) if self._world.is_write_late() else 1
        self._world.later(delay_ms, "write", self._write_over, version, changes)

    def _write_over(self, expected_version: int, changes: Sequence[Change]) -> None:
        if self.image.version == expected_version:
            self._write_now(changes)

    def _write_now(self, changes: Sequence[Change]) -> None:
        before = self.record
        self.image = apply_changes(self.image, changes)
        record = self.record
        if record is not before:
            self._world.note("record", self.image.version, _summary(record))
            if record.mode is Mode.FETCH and not record.changing_mode:
                self._world.checkers.in_sync_changed(frozenset(record.in_sync))
        for broker_id in self.registered:
            self._notify(broker_id)
        self._wake()

    def _notify(self, broker_id: int) -> None:
        delay_ms = self._world.draw(1, 40) if self._world.draw(0, 9) else self._world.draw(1, 2_000)
        self._world.later(delay_ms, "watch", self._watch_fires, broker_id, self.image)

    def _watch_fires(self, broker_id: int, image: ClusterImage) -> None:
        if self._reaches(broker_id):
            self._world.brokers[broker_id].on_image(image)


def _summary(state: PartitionState) -> str:
    moving = f" +{state.adding} -{state.removing}" if state.adding or state.removing else ""
    target = f" to {state.planned_replicas}" if state.planned_replicas else ""
    changing_mode = " changing mode" if state.changing_mode else ""
    return (
        f"{state.partition_epoch} {state.mode} {state.leader}/{state.leader_broker_epoch}"
        f" epoch {state.leader_epoch} in sync {state.in_sync}{changing_mode}"
        f" eligible {state.eligible} of {state.replicas}{moving}{target}"
    )

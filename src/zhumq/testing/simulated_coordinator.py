"""The coordinator and its store in a simulation: sessions, versioned writes, late watches."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zhumq.consensus.assigned import LeaderCandidate, choose_leader
from zhumq.consensus.contract import (
    BrokerLost,
    InSyncProposal,
    LeaderAssigned,
    LogPosition,
    Mode,
    Proposal,
)
from zhumq.consensus.handover import may_switch_to_raft
from zhumq.consensus.voters import Voters
from zhumq.testing import simulated_moves as moves

if TYPE_CHECKING:
    from zhumq.testing.simulator import World

SESSION_TIMEOUT_MS = 1_500
HEARTBEAT_MS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The partition as the store has it; every write makes a new version."""

    version: int
    epoch: int
    leader_id: int | None
    in_sync: frozenset[int]
    mode: Mode
    handover: bool = False
    # KIP-966: left the in-sync set when it fell below min.insync.replicas. Nothing has been
    # committed since, so they are as good as those who are in it.
    eligible: frozenset[int] = frozenset()
    # Who has a replica. While it moves: those it moves to, then those it leaves.
    replicas: tuple[int, ...] = ()
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()
    # Noted in raft mode and in the handover, where a majority of voters must not be exchanged.
    wanted: tuple[int, ...] | None = None

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing or self.wanted)

    def word(self) -> LeaderAssigned:
        return LeaderAssigned(
            version=self.version,
            epoch=self.epoch,
            leader_id=self.leader_id,
            in_sync=self.in_sync,
            handover=self.handover,
            replicas=self.replicas,
        )


class SimulatedCoordinator:
    """Names leaders in fetch mode; in raft mode it only tells who is gone."""

    def __init__(self, world: "World", mode: Mode) -> None:
        self._world = world
        replicas = world.node_ids[: world.options.replicas]
        self.record = PartitionRecord(
            version=0,
            epoch=0,
            leader_id=None,
            in_sync=frozenset(replicas),
            mode=mode,
            replicas=replicas,
        )
        # What the topic's setting says; a partition on the move may be in the other one.
        self._topic_mode = mode
        # When each broker that has a session was last heard of.
        self._sessions: dict[int, int] = {}
        # Brokers cut off from the store, whatever they can reach else.
        self.cut: set[int] = set()
        # Until then nobody is the coordinator: no session ends, nothing is decided.
        self.away_until_ms = 0

    @property
    def registered(self) -> frozenset[int]:
        return frozenset(self._sessions)

    def connect(self, broker_id: int) -> None:
        """A broker has started; its old session, if any, goes on as a new one."""
        self._world.later(self._world.draw(1, 100), "connect", self._connected, broker_id)

    def _connected(self, broker_id: int) -> None:
        if not self._reaches(broker_id):
            return
        self._sessions[broker_id] = self._world.now_ms
        self._world.brokers[broker_id].registered_at(self.record.version)
        self._name_if_nobody()
        self._notify(broker_id)

    def _reaches(self, broker_id: int) -> bool:
        broker = self._world.brokers[broker_id]
        paused = broker.paused_until_ms > self._world.now_ms
        return broker.is_up and not paused and broker_id not in self.cut

    def tick(self) -> None:
        """Heartbeats: sessions go on, end, or begin anew; missed watches are read again."""
        self._world.later(HEARTBEAT_MS, "heartbeat", self.tick)
        now_ms = self._world.now_ms
        if now_ms < self.away_until_ms:
            # Whoever takes over gives every session its full time.
            self._sessions = dict.fromkeys(self._sessions, now_ms)
            return
        for broker_id in self._world.node_ids:
            if not self._reaches(broker_id):
                seen_ms = self._sessions.get(broker_id)
                if seen_ms is not None and now_ms - seen_ms > SESSION_TIMEOUT_MS:
                    self._expire(broker_id)
                continue
            if broker_id not in self._sessions:
                self.connect(broker_id)
                continue
            if self._world.options.moves and not self._world.brokers[broker_id].is_registered:
                self.connect(broker_id)
            self._sessions[broker_id] = now_ms
            if self._world.brokers[broker_id].seen_version < self.record.version:
                self._notify(broker_id)
        self._name_if_nobody()
        if self._world.options.moves:
            self._step()

    def _expire(self, broker_id: int) -> None:
        del self._sessions[broker_id]
        self._world.note("session lost", broker_id)
        for other in self.registered:
            self._tell(other, BrokerLost(broker_id=broker_id))
        record = self.record
        if record.mode is Mode.RAFT:
            return
        if record.leader_id == broker_id:
            self._name(record, record.epoch)
        elif broker_id in record.in_sync and len(record.in_sync) > 1:
            self._write(self._with_in_sync(record, record.in_sync - {broker_id}))

    def _with_in_sync(self, record: PartitionRecord, in_sync: frozenset[int]) -> PartitionRecord:
        eligible: frozenset[int] = frozenset()
        if len(in_sync) < self._world.options.min_in_sync:
            eligible = (record.eligible | record.in_sync) - in_sync
        return replace(record, in_sync=in_sync, eligible=eligible)

    # Decisions

    def hear(self, broker_id: int, proposal: Proposal) -> None:
        """A broker proposes something; it arrives later, or never."""
        if not self._reaches(broker_id) or self._world.is_lost():
            return
        self._world.later(self._world.draw(1, 60), "propose", self._decide, proposal)

    def _decide(self, proposal: Proposal) -> None:
        record = self.record
        away = self._world.now_ms < self.away_until_ms
        if away or proposal.version != record.version or record.mode is Mode.RAFT:
            return
        if not isinstance(proposal, InSyncProposal):
            if proposal.damaged and len(record.in_sync) > 1:
                in_sync = record.in_sync - {proposal.replica_id}
                record = self._with_in_sync(record, in_sync)
            self._name(record, max(record.epoch, proposal.epoch))
            return
        if (record.leader_id, record.epoch) != (proposal.leader_id, proposal.epoch):
            return
        if not proposal.in_sync - record.in_sync <= self.registered:
            # A refusal is a version of its own, so that the same proposal cannot come true later.
            self._write(record)
            return
        voters = Voters(record.replicas)
        handover = record.handover and not may_switch_to_raft(proposal.in_sync, voters)
        changed = replace(self._with_in_sync(record, proposal.in_sync), handover=handover)
        self._write(moves.accept(changed, record, self._is_registered))

    def _name_if_nobody(self) -> None:
        record = self.record
        if record.mode is Mode.FETCH and record.leader_id not in self.registered:
            self._name(record, record.epoch)

    def _name(self, record: PartitionRecord, above_epoch: int) -> None:
        """Name a leader in a new epoch; nobody, if none of the in-sync set is there."""
        candidates = [self._candidate(each, record) for each in record.replicas]
        allowed = self.registered if record.handover else record.in_sync
        choice = choose_leader(candidates, allowed, eligible=record.eligible, unclean_allowed=False)
        if choice is None:
            if record.leader_id is not None:
                self._write(replace(record, epoch=above_epoch + 1, leader_id=None))
            return
        alive = {each.replica_id for each in candidates if each.alive and not each.damaged}
        if record.handover:
            record = replace(record, in_sync=frozenset({choice.replica_id}))
        else:
            in_sync = record.in_sync & alive or frozenset({choice.replica_id})
            record = self._with_in_sync(record, in_sync)
        self._write(replace(record, epoch=above_epoch + 1, leader_id=choice.replica_id))

    def _candidate(self, broker_id: int, record: PartitionRecord) -> LeaderCandidate:
        broker = self._world.brokers[broker_id]
        replica = broker.replica
        return LeaderCandidate(
            replica_id=broker_id,
            position=LogPosition(-1, 0) if replica is None else replica.position,
            alive=broker_id in self.registered,
            damaged=broker.state.healing or (record.handover and broker.state.votes_unknown),
        )

    def switch_mode(self) -> None:
        """The topic's setting is changed; refused where it would not be safe now."""
        if self._world.options.moves:
            self._topic_mode = Mode.FETCH if self._topic_mode is Mode.RAFT else Mode.RAFT
        elif self.record.mode is Mode.FETCH:
            self._to_raft()
        else:
            self._to_fetch()

    def _to_raft(self) -> None:
        record = self.record
        if not record.handover and may_switch_to_raft(record.in_sync, Voters(record.replicas)):
            epoch = record.epoch + 1
            self._write(replace(record, mode=Mode.RAFT, epoch=epoch, leader_id=None))

    def _to_fetch(self) -> None:
        epochs = [each.state.epoch for each in self._world.brokers.values()]
        record = replace(
            self.record, mode=Mode.FETCH, leader_id=None, handover=True, eligible=frozenset()
        )
        self._name(record, max(record.epoch, *epochs) if self._world.draw(0, 1) else record.epoch)

    def move(self, target: tuple[int, ...] | None) -> None:
        """Somebody wants the replicas there; None: where they were before the last such wish."""
        record = self.record
        if self._world.now_ms < self.away_until_ms or (target is None and not record.is_moving):
            return
        if record.mode is Mode.RAFT or record.handover:
            if target is None or set(target) != set(record.replicas):
                self._write(replace(record, wanted=target))
            return
        if target is None:
            moved = moves.cancel(record, self._is_registered)
        else:
            moved = moves.begin(record, target, self._is_registered)
        if moved is not None:
            self._write(moved)

    def _step(self) -> None:
        """The next step towards the mode and the place that the partition ought to have."""
        record = self.record
        if record.handover:
            return
        if record.mode is Mode.RAFT:
            if record.wanted is not None or self._topic_mode is Mode.FETCH:
                self._to_fetch()
        elif record.wanted is not None:
            if self.registered.issuperset(record.wanted):
                self.move(record.wanted)
        elif self._topic_mode is Mode.RAFT and not record.is_moving:
            self._to_raft()

    def _is_registered(self, broker_id: int) -> bool:
        return broker_id in self._sessions

    def _write(self, record: PartitionRecord) -> None:
        """Write what was decided on top of the present version, sometimes much later: then it may
        be that of a coordinator which has long been replaced."""
        version = self.record.version
        if self._world.is_write_late():
            delay_ms = self._world.draw(1, 1_000)
            self._world.later(delay_ms, "late write", self._write_over, version, record)
        else:
            self._write_over(version, record)

    def _write_over(self, expected_version: int, record: PartitionRecord) -> None:
        if self.record.version != expected_version:
            return
        self.record = replace(record, version=expected_version + 1)
        self._world.note(
            "record",
            self.record.version,
            self.record.mode,
            self.record.epoch,
            self.record.leader_id,
            sorted(self.record.in_sync),
            self.record.handover,
            *((self.record.replicas, self.record.wanted) if self._world.options.moves else ()),
        )
        if record.mode is Mode.FETCH and not record.handover:
            self._world.checkers.in_sync_changed(record.in_sync)
        for broker_id in self.registered:
            self._notify(broker_id)

    def _notify(self, broker_id: int) -> None:
        delay_ms = self._world.draw(1, 40) if self._world.draw(0, 9) else self._world.draw(1, 2_000)
        self._world.later(delay_ms, "watch", self._watch_fires, broker_id, self.record)

    def _watch_fires(self, broker_id: int, record: PartitionRecord) -> None:
        if self._reaches(broker_id):
            self._world.brokers[broker_id].hear_record(record)

    def _tell(self, broker_id: int, news: BrokerLost) -> None:
        self._world.later(self._world.draw(1, 80), "news", self._news_arrives, broker_id, news)

    def _news_arrives(self, broker_id: int, news: BrokerLost) -> None:
        replica = self._world.brokers[broker_id].replica
        if self._reaches(broker_id) and replica is not None and news.broker_id in replica.voters:
            self._world.brokers[broker_id].step(news)

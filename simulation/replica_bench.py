"""Replicas under full control of a test, which delivers each message and advances the clock."""

from dataclasses import replace

from simulation.checkers import NO_CONTRADICTION, Checkers, InvariantViolated, Quorum
from simulation.simulated_log import Entry, SimulatedLog
from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import (
    NOTHING,
    Appended,
    ConsensusBroken,
    DeadlinePassed,
    FetchAnswered,
    FetchArrived,
    Flushed,
    Input,
    LeaderAssigned,
    LogDamaged,
    Message,
    Mode,
    Outgoing,
    Proposal,
    QuorumState,
    Ready,
    ReplicaSettings,
    Role,
    asks_to_accept,
)
from zhumq.consensus.mode_change import state_for_fetch, state_for_raft
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.voters import Voters
from zhumq.model.errors import ErrorCode

DELIVERIES_MAX = 10_000
ELECTION_ROUNDS = 8


class ReplicaBench:
    """Some replicas of one partition, their disks, and the messages between them."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        mode: Mode = Mode.RAFT,
        settings: ReplicaSettings | None = None,
        fetch_entries_max: int = 20,
    ) -> None:
        self.settings = settings or ReplicaSettings()
        self.voters = Voters(range(nodes))
        self.now_ms = 0
        self.fetch_entries_max = fetch_entries_max
        self.replicas: dict[int, RaftReplica | AssignedReplica] = {}
        self.logs = {each: SimulatedLog() for each in range(nodes)}
        self.states = {each: QuorumState(mode=mode) for each in range(nodes)}
        self.high_watermarks = dict.fromkeys(range(nodes), 0)
        self.messages: list[tuple[int, Outgoing]] = []
        self.proposals: list[Proposal] = []
        self.cuts: set[tuple[int, int]] = set()
        # Replicas whose disks flush only when the test says so.
        self.slow_disks: set[int] = set()
        self.assignment = LeaderAssigned(
            version=0, epoch=0, leader_id=None, in_sync=frozenset(range(nodes))
        )
        self.checkers = Checkers(self.logs, self._quorum)
        self._incarnations = dict.fromkeys(range(nodes), 0)
        self._parked: dict[tuple[int, int], FetchArrived] = {}
        # The last plain answer to each follower, so that none is sent twice.
        self._sent: dict[tuple[int, int], tuple[int, int, int, bool, bool]] = {}
        self._sequence = 0
        for each in range(nodes):
            self.start(each)

    def _quorum(self, mode: Mode) -> Quorum:
        if mode is Mode.RAFT:
            majority = self.voters.majority
            return Quorum(
                counted=frozenset(self.voters.ids), needed=majority, needed_in_all=majority
            )
        in_sync = self.assignment.in_sync
        least = self.settings.min_in_sync_replicas
        return Quorum(counted=in_sync, needed=len(in_sync), needed_in_all=least)

    # Processes

    def start(self, node: int) -> None:
        self._incarnations[node] += 1
        self._sent = {key: each for key, each in self._sent.items() if node not in key}
        kind = RaftReplica if self.states[node].mode is Mode.RAFT else AssignedReplica
        self.replicas[node] = kind(
            node,
            self.voters,
            self.logs[node],
            self.settings,
            self.states[node],
            high_watermark=self.high_watermarks[node],
            incarnation=self._incarnations[node],
            # The replica with the smallest id has the shortest timeout.
            draw=lambda low, high: min(low + node, high),
            now_ms=self.now_ms,
        )
        self.high_watermarks[node] = self.replicas[node].high_watermark
        self._carry_out(node)

    def crash(self, node: int, *, undo_cut: bool = False) -> None:
        """The process crashes and loses what was not flushed, with `undo_cut` also the last truncation."""
        log = self.logs[node]
        offset = min(self.high_watermarks[node], log.flushed_offset)
        self.high_watermarks[node] = offset
        del self.replicas[node]
        log.crash(log.flushed_offset, undo_cut=undo_cut)
        self._parked = {key: each for key, each in self._parked.items() if key[0] != node}

    def wipe(self, node: int) -> None:
        """The process crashes, and its disk is replaced by an empty one."""
        self.crash(node)
        self.checkers.wiped(node)
        self.logs[node].wipe()
        self.high_watermarks[node] = 0
        mode = self.states[node].mode
        self.states[node] = QuorumState(mode=mode, recovering=True, votes_unknown=True)

    def switch(self, node: int, mode: Mode, epoch: int = 0) -> None:
        """The replica learns that its topic has changed its mode."""
        state = self.replicas[node].quorum_state
        raft = mode is Mode.RAFT
        self.states[node] = state_for_raft(state, epoch) if raft else state_for_fetch(state)
        self.checkers.persisted(node, self.states[node])
        self.start(node)

    # Events

    def step(self, node: int, event: Input) -> None:
        self._step_core(node, event)
        self._carry_out(node)

    def _step_core(self, node: int, event: Input) -> None:
        try:
            self.replicas[node].step(event, self.now_ms)
        except ConsensusBroken as error:
            raise InvariantViolated(NO_CONTRADICTION, str(error)) from error

    def let_deadline_pass(self, node: int) -> None:
        """Advance the clock to the replica's next deadline."""
        due_ms = self.replicas[node].next_deadline_ms
        assert due_ms is not None
        self.now_ms = max(self.now_ms, due_ms)
        self.step(node, DeadlinePassed())

    def campaign(self, node: int) -> None:
        """Advance the clock until the replica asks for votes."""
        for _ in range(ELECTION_ROUNDS):
            if self.replicas[node].role is Role.PROSPECTIVE:
                return
            self.let_deadline_pass(node)
        raise AssertionError(f"replica {node} does not campaign")

    def elect(self, node: int) -> None:
        """Let a replica's deadlines pass, and deliver all messages, until it leads or the rounds are up."""
        for _ in range(ELECTION_ROUNDS):
            self.let_deadline_pass(node)
            self.settle()
            if self.replicas[node].role is Role.LEADER:
                return

    def assign(
        self,
        leader: int | None,
        in_sync: set[int],
        *,
        changing_mode: bool = False,
        replicas: tuple[int, ...] = (),
    ) -> None:
        """The controller names a leader in a new epoch, and all running replicas learn of it."""
        epochs = [each.epoch for each in self.states.values()]
        epoch = max(self.assignment.epoch, *epochs) + 1
        self.publish(epoch, leader, in_sync, changing_mode=changing_mode, replicas=replicas)
        self.tell_all()

    def publish(
        self,
        epoch: int,
        leader: int | None,
        in_sync: set[int],
        *,
        changing_mode: bool = False,
        replicas: tuple[int, ...] = (),
    ) -> None:
        """Change the controller's record; no replica learns of it yet."""
        self.assignment = LeaderAssigned(
            version=self.assignment.version + 1,
            epoch=epoch,
            leader_id=leader,
            in_sync=frozenset(in_sync),
            changing_mode=changing_mode,
            replicas=replicas,
        )

    def tell_all(self) -> None:
        for node in sorted(self.replicas):
            self.step(node, self.assignment)

    def write(self, node: int, count: int = 1) -> None:
        """The leader appends messages of its clients."""
        assert self.replicas[node].role is Role.LEADER, f"replica {node} does not lead"
        for _ in range(count):
            self._sequence += 1
            self._append(node, Entry(self.replicas[node].epoch, -1, self._sequence))
        self._moved(node)
        self._carry_out(node)

    def flush(self, node: int) -> None:
        log = self.logs[node]
        log.flush(log.begin_flush())
        self.step(node, Flushed(end_offset=log.flushed_offset))

    def damage(self, node: int, offset: int) -> None:
        self.checkers.excused.add(node)
        self.logs[node].damaged_from = offset
        self.high_watermarks[node] = min(self.high_watermarks[node], offset)
        self.step(node, LogDamaged(offset=offset))

    def isolate(self, *nodes: int) -> None:
        """Drop all messages between these replicas and the others."""
        for one in nodes:
            for other in self.voters.ids:
                if other not in nodes:
                    self.cuts |= {(one, other), (other, one)}

    def settle(self) -> None:
        """Deliver all messages, and those that they cause, until there are none."""
        for _ in range(DELIVERIES_MAX):
            if not self.messages:
                return
            self.deliver_next()
        raise AssertionError(f"the replicas still send messages after {DELIVERIES_MAX} deliveries")

    def deliver_next(self) -> None:
        sender, outgoing = self.messages.pop(0)
        self.deliver(sender, outgoing.to, outgoing.message)

    def deliver(self, sender: int, to: int, message: Message) -> None:
        if (sender, to) in self.cuts or to not in self.replicas:
            return
        if isinstance(message, FetchArrived):
            self._parked[(to, sender)] = message
        self.step(to, message)

    # Decisions

    def _carry_out(self, node: int) -> None:
        while node in self.replicas:
            ready = self.replicas[node].take_ready()
            if ready is NOTHING:
                return
            self._handle_ready(node, ready)

    def _handle_ready(self, node: int, ready: Ready) -> None:
        log = self.logs[node]
        if ready.persist_quorum_state is not None:
            self.states[node] = ready.persist_quorum_state
            self.checkers.persisted(node, ready.persist_quorum_state)
            if not ready.persist_quorum_state.recovering:
                self.checkers.excused.discard(node)
        if ready.truncate_to is not None:
            self.checkers.truncated(node, ready.truncate_to, log.log_end_offset)
            log.truncate_to(ready.truncate_to)
        if ready.start_over_at is not None:
            log.start_over_at(ready.start_over_at)
            self.high_watermarks[node] = ready.start_over_at
        for request in ready.append:
            assert isinstance(request.records, tuple)
            for entry in request.records:
                self._append(node, entry)
        for outgoing in ready.send:
            self._send(node, outgoing)
        if ready.propose is not None:
            self.proposals.append(ready.propose)
        if ready.high_watermark is not None:
            self._raise(node, ready.high_watermark)
        if ready.role is not None:
            self.checkers.on_role_changed(node, self._incarnations[node], ready.role)
            if ready.role.serving:
                self.checkers.serves(node, self.high_watermarks[node], ready.role.epoch)
        if ready.append or ready.truncate_to is not None or ready.start_over_at is not None:
            self._moved(node)
        elif ready.high_watermark is not None or ready.role is not None:
            self._wake(node)

    def _append(self, node: int, entry: Entry) -> None:
        log = self.logs[node]
        self.checkers.appended(node, log.log_end_offset, entry)
        log.append(entry)

    def _moved(self, node: int) -> None:
        log = self.logs[node]
        self._step_core(node, Appended(end_offset=log.log_end_offset))
        if node not in self.slow_disks:
            log.flush(log.begin_flush())
            self._step_core(node, Flushed(end_offset=log.flushed_offset))
        self._wake(node)

    def _raise(self, node: int, high_watermark: int) -> None:
        replica = self.replicas[node]
        before = self.high_watermarks[node]
        mode = replica.quorum_state.mode
        leads = replica.role is Role.LEADER
        self.checkers.raised(node, before, high_watermark, mode, leads=leads)
        self.high_watermarks[node] = high_watermark

    def _send(self, node: int, outgoing: Outgoing) -> None:
        message = outgoing.message
        self.checkers.sent(node, outgoing.to, message)
        if isinstance(message, FetchAnswered):
            fetch = self._parked.get((node, outgoing.to))
            if fetch is not None and fetch.sequence == message.sequence:
                self._answer(node, fetch, message)
                return
        self.messages.append((node, outgoing))

    def _answer(self, node: int, fetch: FetchArrived, answer: FetchAnswered) -> None:
        """Send an answer that has an update; otherwise leave the fetch parked."""
        follower = fetch.replica_id
        plain = answer.error is ErrorCode.NONE and answer.diverging is None
        if plain and answer.start_over_at is None:
            end = min(self.logs[node].log_end_offset, fetch.fetch_offset + self.fetch_entries_max)
            records = self.logs[node].read(fetch.fetch_offset, end)
            asked = asks_to_accept(fetch, answer)
            known = (fetch.fetch_offset, fetch.flushed_offset, answer.high_watermark)
            sent = (*known, fetch.recovering and answer.serving, asked)
            if not records and self._sent.get((node, follower)) == sent:
                return
            self._sent[(node, follower)] = sent
            answer = replace(answer, records=records or None)
        self._parked.pop((node, follower), None)
        self.messages.append((node, Outgoing(to=follower, message=answer)))

    def _wake(self, node: int) -> None:
        for (leader, _), fetch in list(self._parked.items()):
            if leader == node and node in self.replicas:
                self._answer(node, fetch, self.replicas[node].fetch_answer(fetch))

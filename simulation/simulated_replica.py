"""A replica of a simulated partition: carries out its core's decisions on a simulated disk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulation.checkers import NO_CONTRADICTION, InvariantViolated
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
    LogDamaged,
    Mode,
    Outgoing,
    QuorumState,
    Ready,
    Role,
    RoleChange,
    asks_to_accept,
)
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.voters import Voters
from zhumq.replication.driver_seam import is_plain

if TYPE_CHECKING:
    from simulation.simulator import World

PARKED_FETCH_MS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """A message on its way to a leader."""

    producer: int
    sequence: int
    acks: int
    # Called with the offset (None if this broker does not lead) and a hint at the leader.
    answer: Callable[[int | None, int | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    next_offset: int
    produce: Produce


class SimulatedReplica:
    """A disk, and the process that works on it. A crash ends the process and keeps the disk."""

    def __init__(self, broker_id: int, world: "World", *, clock_rate: float) -> None:
        self.broker_id = broker_id
        self.world = world
        # The disk.
        self.log = SimulatedLog()
        self.state = QuorumState(mode=world.options.mode)
        self.checkpointed_high_watermark = 0
        # The process.
        self.is_up = False
        self.replica: RaftReplica | AssignedReplica | None = None
        self.incarnation = 0
        self.paused_until_ms = 0
        self._clock_rate = clock_rate
        self._high_watermark = 0
        self._asked: dict[int, FetchArrived] = {}
        self._parked: dict[int, FetchArrived] = {}
        self._sent: dict[int, tuple[int, bool]] = {}
        # By follower: the epoch start that was sent, with the fetch that it answered.
        self._sent_start: dict[int, tuple[int, int, int]] = {}
        self._waiting: list[_Waiting] = []
        self._flushing = False
        self._timer_ms: int | None = None

    @property
    def now_ms(self) -> int:
        """This broker's own clock, which runs a little fast or slow."""
        return int(self.world.now_ms * self._clock_rate)

    # Start and crash

    def _begin(self, state: QuorumState, replicas: Iterable[int]) -> None:
        self._build(state, replicas)
        if self.log.damaged_from is not None:
            self.step(LogDamaged(offset=self.log.damaged_from))
        self.carry_out()

    def _build(self, state: QuorumState, replicas: Iterable[int]) -> None:
        kind = RaftReplica if state.mode is Mode.RAFT else AssignedReplica
        self.replica = self.world.new_replica(kind, self, state, Voters(replicas))
        self._high_watermark = self.replica.high_watermark
        self.world.checkers.started(self.broker_id, self._high_watermark)
        self._asked.clear()
        self._parked.clear()
        self._sent.clear()
        self._sent_start.clear()
        self._fail_waiting()
        self._timer_ms = None
        self._flushing = False
        self._begin_flush()

    def crash(self) -> None:
        """The process crashes, and loses a tail of what was not flushed."""
        if not self.is_up:
            return
        self.is_up = False
        if self.replica is None:
            self.world.note("crash", self.broker_id)
            return
        log = self.log
        keep = self.world.draw(log.flushed_offset, log.log_end_offset)
        undo_cut = self.world.draw(0, 1) == 1
        self.replica = None
        self.incarnation += 1
        log.crash(keep, undo_cut=undo_cut)
        self.world.note("crash", self.broker_id, log.log_end_offset)
        self._flushing = False
        self._parked.clear()
        self._waiting.clear()

    def damage(self, offset: int) -> None:
        """A bit flips in the flushed log, and the replica detects it."""
        self.world.note("damage", self.broker_id, offset)
        self.world.checkers.excused.add(self.broker_id)
        self.log.damaged_from = offset
        if self.replica is not None:
            self._high_watermark = min(self._high_watermark, offset)
            self.step(LogDamaged(offset=offset))

    # Events

    def step(self, event: Input) -> None:
        self._step_core(event)
        self.carry_out()

    def _step_core(self, event: Input) -> None:
        if self.replica is None:
            return
        try:
            self.replica.step(event, self.now_ms)
        except ConsensusBroken as error:
            raise InvariantViolated(NO_CONTRADICTION, str(error)) from error

    def carry_out(self) -> None:
        """Carry out the core's decisions in order until it has none."""
        while self.replica is not None:
            ready = self.replica.take_ready()
            if ready is NOTHING:
                break
            moved = self._handle_ready(ready)
            if moved:
                self._step_core(Appended(end_offset=self.log.log_end_offset))
        self._set_timer()

    def _handle_ready(self, ready: Ready) -> bool:
        """Carry out one Ready; a crash may happen between any two steps."""
        incarnation = self.incarnation
        moved = False
        if ready.persist_quorum_state is not None:
            self._persist(ready.persist_quorum_state)
            self.world.maybe_crash(self)
        if self.incarnation != incarnation:
            return False
        moved = self._truncate(ready)
        for request in ready.append:
            moved = True
            assert isinstance(request.records, tuple)
            for entry in request.records:
                self._append(entry)
        if moved:
            self._begin_flush()
            self.world.maybe_crash(self)
        if self.incarnation != incarnation:
            return False
        for outgoing in ready.send:
            self._send(outgoing)
        if ready.propose is not None:
            self.world.controller.propose(self.broker_id, ready.propose)
        if ready.high_watermark is not None:
            self._on_high_watermark_raised(ready.high_watermark)
        if ready.role is not None:
            self._on_role_changed(ready.role)
        if moved or ready.high_watermark is not None or ready.role is not None:
            self._wake_fetches()
        return moved

    def _persist(self, state: QuorumState) -> None:
        self.state = state
        self.world.checkers.persisted(self.broker_id, state)
        if not state.recovering and self.log.damaged_from is None:
            self.world.checkers.excused.discard(self.broker_id)

    def _truncate(self, ready: Ready) -> bool:
        log = self.log
        if ready.truncate_to is not None:
            self.world.note("truncate", self.broker_id, ready.truncate_to, log.log_end_offset)
            self.world.checkers.truncated(self.broker_id, ready.truncate_to, log.log_end_offset)
            log.truncate_to(ready.truncate_to)
        if ready.start_over_at is not None:
            self.world.note("start over", self.broker_id, ready.start_over_at)
            log.start_over_at(ready.start_over_at)
            self._high_watermark = ready.start_over_at
        return ready.truncate_to is not None or ready.start_over_at is not None

    def _append(self, entry: Entry) -> None:
        self.world.checkers.appended(self.broker_id, self.log.log_end_offset, entry)
        self.log.append(entry)

    def _on_high_watermark_raised(self, high_watermark: int) -> None:
        replica = self.replica
        assert replica is not None
        self.world.checkers.raised(
            self.broker_id,
            self._high_watermark,
            high_watermark,
            replica.quorum_state.mode,
            leads=replica.role is Role.LEADER,
        )
        self._high_watermark = high_watermark
        done = [each for each in self._waiting if each.next_offset <= high_watermark]
        if done and replica.role is Role.LEADER:
            self._waiting = [each for each in self._waiting if each.next_offset > high_watermark]
            for each in done:
                self._acknowledge(each.produce, each.next_offset - 1)

    def _on_role_changed(self, change: RoleChange) -> None:
        self.world.note("role", self.broker_id, change.role, change.epoch, change.serving)
        self.world.checkers.on_role_changed(self.broker_id, self.incarnation, change)
        if change.role is not Role.LEADER:
            self._fail_waiting()
            self._wake_fetches()
        elif change.serving:
            self.world.checkers.serves(self.broker_id, self._high_watermark, change.epoch)

    # The disk's flush

    def _begin_flush(self) -> None:
        if self._flushing or self.log.flushed_offset == self.log.log_end_offset:
            return
        self._flushing = True
        end_offset = self.log.begin_flush()
        delay_ms = self.world.flush_delay_ms()
        self.world.later(delay_ms, "flushed", self._flush_done, self.incarnation, end_offset)

    def _flush_done(self, incarnation: int, end_offset: int) -> None:
        if incarnation != self.incarnation or self.replica is None:
            return
        self._flushing = False
        self.log.flush(end_offset)
        if self.world.draw(0, 3) == 0:
            self._checkpoint()
        self.step(Flushed(end_offset=self.log.flushed_offset))
        self._begin_flush()

    def _checkpoint(self) -> None:
        # At most the flushed offset: a crash may bring back what was truncated above it.
        if self.replica is not None:
            offset = min(self.replica.high_watermark, self.log.flushed_offset)
            self.checkpointed_high_watermark = offset

    # Messages

    def _send(self, outgoing: Outgoing) -> None:
        message = outgoing.message
        self.world.checkers.sent(self.broker_id, outgoing.to, message)
        if isinstance(message, FetchAnswered) and is_plain(message):
            fetch = self._asked.get(outgoing.to)
            if fetch is not None and fetch.sequence == message.sequence:
                self._answer_fetch(fetch, message)
                return
        self.world.send(self.broker_id, outgoing.to, message)

    def receive(self, message: Input) -> None:
        """A message from another broker."""
        if isinstance(message, FetchArrived):
            self._asked[message.replica_id] = message
            self._parked.pop(message.replica_id, None)
        self.step(message)

    def _answer_fetch(self, fetch: FetchArrived, answer: FetchAnswered) -> None:
        """Send an answer that has an update, or park the fetch until there is one."""
        limit = fetch.fetch_offset + self.world.fetch_entries_max
        end = min(self.log.log_end_offset, limit)
        records = self.log.read(fetch.fetch_offset, end)
        key = (fetch.replica_id, fetch.sequence)
        known, serving = self._sent.get(fetch.replica_id, (-1, False))
        has_update = answer.high_watermark > known or (
            fetch.recovering and answer.serving and not serving
        )
        start = (answer.epoch, fetch.fetch_offset, fetch.flushed_offset)
        if asks_to_accept(fetch, answer) and self._sent_start.get(fetch.replica_id) != start:
            # Once: duplicates of a fetch would get duplicates of the answer until the follower flushes.
            self._sent_start[fetch.replica_id] = start
            has_update = True
        if records or has_update:
            self._sent[fetch.replica_id] = (answer.high_watermark, answer.serving)
            self.world.send(
                self.broker_id, fetch.replica_id, replace(answer, records=records or None)
            )
            return
        self._parked[fetch.replica_id] = fetch
        self.world.later(PARKED_FETCH_MS, "parked", self._parked_long_enough, self.incarnation, key)

    def _parked_long_enough(self, incarnation: int, key: tuple[int, int]) -> None:
        fetch = self._parked.get(key[0])
        if incarnation != self.incarnation or fetch is None or fetch.sequence != key[1]:
            return
        del self._parked[key[0]]
        if self.replica is not None:
            self.world.send(self.broker_id, fetch.replica_id, self.replica.fetch_answer(fetch))

    def _wake_fetches(self) -> None:
        if self.replica is None:
            return
        for replica_id, fetch in list(self._parked.items()):
            del self._parked[replica_id]
            answer = self.replica.fetch_answer(fetch)
            if is_plain(answer):
                self._answer_fetch(fetch, answer)
            else:
                self.world.send(self.broker_id, replica_id, answer)

    # Clients

    def produce(self, produce: Produce) -> None:
        """A producer's message arrives."""
        replica = self.replica
        if replica is None:
            return
        if replica.role is not Role.LEADER or not self._accepts(produce):
            produce.answer(None, replica.leader_id)
            return
        written = None
        if produce.producer >= 0:
            written = self.log.written_at(produce.producer, produce.sequence)
            if written is None and produce.sequence != self.log.next_sequence(produce.producer):
                produce.answer(None, None)
                return
        if written is None:
            written = self.log.log_end_offset
            self._append(Entry(replica.epoch, produce.producer, produce.sequence))
            self._begin_flush()
        if produce.acks == -1:
            self._wait(produce, written)
        else:
            produce.answer(written, None)
        self.step(Appended(end_offset=self.log.log_end_offset))
        self._wake_fetches()

    def _accepts(self, produce: Produce) -> bool:
        replica = self.replica
        assert replica is not None
        # An elected leader is not ready: duplicates are known only once the old log is committed.
        return replica.admits_clients and (produce.acks != -1 or replica.accepts_all_acks)

    def _wait(self, produce: Produce, offset: int) -> None:
        if offset < self._high_watermark:
            self._acknowledge(produce, offset)
        else:
            self._waiting.append(_Waiting(next_offset=offset + 1, produce=produce))

    def _acknowledge(self, produce: Produce, offset: int) -> None:
        assert self.replica is not None
        mode = self.replica.quorum_state.mode
        self.world.checkers.acknowledged(offset, self.log.entry(offset), mode)
        produce.answer(offset, None)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.produce.answer(None, None)

    def read(self, offset: int) -> tuple[Entry, ...] | None:
        """The entries from this offset up to the high watermark; None if this broker does not serve."""
        if self.replica is None or not self.replica.admits_clients:
            return None
        return self.log.read(offset, self._high_watermark)

    # Time

    def _set_timer(self) -> None:
        due_ms = None if self.replica is None else self.replica.next_deadline_ms
        if due_ms is None or self._timer_ms == due_ms:
            return
        self._timer_ms = due_ms
        delay_ms = max(int((due_ms - self.now_ms) / self._clock_rate), 0) + 1
        self.world.later(delay_ms, "deadline", self._deadline, self.incarnation, due_ms)

    def _deadline(self, incarnation: int, due_ms: int) -> None:
        if incarnation != self.incarnation or due_ms != self._timer_ms or self.replica is None:
            return
        self._timer_ms = None
        if self.now_ms >= due_ms:
            self.step(DeadlinePassed())
        else:
            self._set_timer()

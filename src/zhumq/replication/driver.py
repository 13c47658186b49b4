"""Runs a replica's core: carries out its decisions in order, on a real log."""

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import (
    NOTHING,
    Appended,
    AppendFetched,
    ConsensusBroken,
    DeadlinePassed,
    FetchAnswered,
    FetchArrived,
    Flushed,
    Input,
    InSyncProposal,
    LeaderAnnounced,
    LogDamaged,
    Outgoing,
    QuorumState,
    Ready,
    Role,
    RoleChange,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.progress import NEVER_MS
from zhumq.consensus.raft import RaftReplica
from zhumq.model.errors import BrokerError, CorruptMessage, DiskFull, StorageFailed
from zhumq.model.ids import TopicPartition
from zhumq.replication.driver_seam import (
    ConsensusStopped,
    DriverHost,
    DriverWork,
    FetchedRecords,
    FollowerFetchState,
    ReplicaCallbacks,
    damage_of,
    is_plain,
    refusal_of,
)
from zhumq.storage.log import Log

if TYPE_CHECKING:
    from zhumq.replication.inter_broker.follower_session import FollowerSession

logger = logging.getLogger(__name__)

# Events that wait while a quorum state is persisted. Messages beyond it are dropped, as on a bad
# network: their senders send them again.
WAITING_EVENTS_MAX: Final = 256
# How much the leader reads again when a follower reports a corrupt batch.
DAMAGE_SCAN_BYTES: Final = 2 * 1024 * 1024

_MESSAGES: Final = (FetchArrived, FetchAnswered, VoteAsked, VoteAnswered, LeaderAnnounced)

Core = RaftReplica | AssignedReplica


class ReplicaDriver:
    """One replica of one partition: its core, its log, its followers' fetch states."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        host: DriverHost,
        callbacks: ReplicaCallbacks,
        make_core: Callable[["ReplicaDriver"], Core],
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self._host = host
        self._callbacks = callbacks
        self._work = DriverWork()
        self._flush_requested = False
        # By broker: at most one session each.
        self.fetch_states: dict[int, FollowerFetchState] = {}
        self.check_at_ms: int | None = None
        self.failure: BrokerError | None = None
        self.is_closed = False
        # Whether this replica takes no part until the broker restarts.
        self.is_stopped = False
        # The leader's last answer was corrupt; the next fetch reports it.
        self.saw_corrupt = False
        self.core: Core = make_core(self)
        # Whether the journal has the core's quorum state, or need not have it; and whether it has any.
        self._is_state_kept = True
        self.is_in_journal = False

    # Events

    @property
    def is_busy(self) -> bool:
        """Whether a decision is not carried out yet: no message may reveal it."""
        return self._work.is_busy

    @property
    def is_sole(self) -> bool:
        """Whether the partition has no other replica."""
        return len(self.core.voters.ids) == 1

    def start(self, *, damaged_from: int | None, persisted: QuorumState | None) -> None:
        """Carry out the core's first decisions."""
        if damaged_from is not None:
            self._step_core(LogDamaged(offset=damaged_from))
        if self._keeps_state:
            self.request_flush()
        state = self.core.quorum_state
        self.is_in_journal = persisted is not None
        self._is_state_kept = state in (persisted, QuorumState(mode=state.mode))
        self._carry_out()

    @property
    def _keeps_state(self) -> bool:
        """Whether the quorum state has to be persisted. A sole replica whose leader the controller names has
        no vote that another replica could miss: the metadata image has all it needs."""
        return isinstance(self.core, RaftReplica) or not self.is_sole

    def replace_core(self, make_core: Callable[["ReplicaDriver"], Core]) -> None:
        """Change the partition's replication mode. A leader loses its leadership."""
        if self.is_stopped:
            return
        self.core = core = make_core(self)
        work = self._work
        work.waiting.clear()
        self._change_role(
            RoleChange(role=Role.UNATTACHED, epoch=core.epoch, leader_id=None, serving=False)
        )
        damaged_from = damage_of(self.log)
        if damaged_from is not None and not self.is_sole:
            self._step_core(LogDamaged(offset=damaged_from))
        # The mode is part of the quorum state.
        self._is_state_kept = False
        if not work.is_busy:
            self._carry_out()
        self.notify_followers()

    def step(self, event: Input) -> None:
        """Process one event, now or after the work that is under way."""
        work = self._work
        if self.is_stopped:
            return
        if work.is_busy:
            # A message beyond the limit is lost, as on a bad network: its sender asks again.
            if len(work.waiting) < WAITING_EVENTS_MAX or not isinstance(event, _MESSAGES):
                work.waiting.append(event)
            return
        self._step_core(event)
        self._carry_out()

    def fetch_arrived(self, fetch_state: FollowerFetchState, fetch: FetchArrived) -> None:
        """A follower's fetch reports its position."""
        fetch_state.fetch = fetch
        self.fetch_states[fetch.replica_id] = fetch_state
        if self.is_stopped:
            fetch_state.session.mark(self)
        else:
            self.step(fetch)

    def forget_follower(self, session: "FollowerSession") -> None:
        fetch_state = self.fetch_states.get(session.broker_id)
        if fetch_state is not None and fetch_state.session is session:
            # While a partition is idle, only its session has recorded the follower's last contact.
            self.core.note_last_contact(
                session.broker_id, self.session_contact_ms(session.broker_id)
            )
            del self.fetch_states[session.broker_id]

    def deadline_passed(self, now_ms: int) -> int | None:
        due_ms = self._due_ms()
        if due_ms is not None and due_ms <= now_ms:
            # The caller sets the next deadline.
            self.check_at_ms = now_ms
            self.step(DeadlinePassed())
            self.check_at_ms = None
            due_ms = self._due_ms()
        return due_ms

    def session_contact_ms(self, replica_id: int) -> int:
        """See consensus.contract.SessionContact."""
        if self.core.role is not Role.LEADER:
            return self._host.leader_contact_ms(self, replica_id)
        fetch_state = self.fetch_states.get(replica_id)
        if fetch_state is None or fetch_state.fetch is None:
            return NEVER_MS
        return fetch_state.session.session_contact_ms

    def appended(self) -> None:
        """The leader appended a client's batches: flush them, and send them to the followers."""
        # The core needs no event: of its own log it counts only what is flushed.
        self.request_flush()
        self.notify_followers()

    def notify_followers(self) -> None:
        """Let the followers' sessions check whether their waiting fetches can be answered."""
        for fetch_state in self.fetch_states.values():
            if fetch_state.fetch is not None:
                fetch_state.session.mark(self)

    def answer(self, fetch_state: FollowerFetchState) -> FetchAnswered | None:
        """The answer to a follower's fetch; None while a decision is being carried out."""
        fetch = fetch_state.fetch
        if fetch is None or (self._work.is_busy and not self.is_stopped):
            return None
        answer = self.core.fetch_answer(fetch)
        # A stopped replica does not lead, whatever its core's last role was.
        return refusal_of(answer) if self.is_stopped else answer

    def on_leader_log_start(self, log_start_offset: int) -> None:
        """Delete the records below the leader's log start offset."""
        log = self.log
        if (
            log_start_offset <= log.log_start_offset
            or log_start_offset > min(self.core.high_watermark, log.log_end_offset)
            or self.core.role is not Role.FOLLOWER
            or self.is_stopped
            or log.corrupt_ranges
        ):
            return
        try:
            log.delete_records_before(log_start_offset)
        except BrokerError as reason:
            self.fail(reason)
            return
        self.step(Appended(end_offset=log.log_end_offset))

    def resign_for(self, replica_id: int) -> bool:
        """Resign in favour of another replica, if that one has everything."""
        core = self.core
        if self.is_stopped or self.is_busy or not isinstance(core, RaftReplica):
            return False
        if not core.resign_for(replica_id, self._host.clock.monotonic_ms()):
            return False
        self._carry_out()
        return True

    def scan_for_damage(self, offset: int) -> None:
        """A follower received a corrupt batch: check whether this log or the network damaged it."""
        try:
            damaged_from = self.log.find_damage(offset, DAMAGE_SCAN_BYTES)
        except BrokerError as reason:
            self.fail(reason)
            return
        if damaged_from is not None:
            self.on_damaged(damaged_from)

    def on_damaged(self, offset: int) -> None:
        """The flushed log is damaged from this offset on: step down, and fetch it from another replica."""
        offset = min([offset, *(bad.first_offset for bad in self.log.corrupt_ranges)])
        logger.error("%s is damaged at offset %d", self.topic_partition, offset)
        if self.is_sole or self.is_stopped:
            return
        try:
            self.log.mark_suspect(offset)
        except BrokerError as reason:
            self.fail(reason)
            return
        self.step(LogDamaged(offset=offset))

    def stop(self) -> None:
        """Take no part any more: the broker stops."""
        self.is_closed = self.is_stopped = True

    def close(self) -> None:
        """This broker no longer has a replica of the partition."""
        self.stop()
        self._host.follow(self, None)
        self.notify_followers()

    def fail(self, reason: BrokerError) -> None:
        """Stop the replica until the broker restarts, because its disk failed."""
        if self.is_stopped:
            return
        logger.error(
            "%s: this replica stops until the broker restarts: %s", self.topic_partition, reason
        )
        core = self.core
        proposal = None
        # A failed sync is final. The core steps down as from any damage; the driver neither
        # persists nor truncates what it decides.
        if not isinstance(reason, ConsensusStopped):
            if not self.is_sole:
                # The kernel marks the pages that it failed to write as clean: a later start would
                # read them, sync them, and still lose them.
                with contextlib.suppress(BrokerError):
                    self.log.mark_suspect(self.log.flushed_offset)
            core.step(LogDamaged(offset=self.log.flushed_offset), self._host.clock.monotonic_ms())
            proposal = core.take_ready().propose
        self.failure = reason
        self.is_stopped = True
        if proposal is not None and not isinstance(proposal, InSyncProposal):
            self._host.controller_requests.decline_leadership(self.topic_partition, proposal)
        self._host.follow(self, None)
        self._callbacks.on_offline(reason)
        self.notify_followers()

    # Carrying out

    def _step_core(self, event: Input) -> None:
        try:
            self.core.step(event, self._host.clock.monotonic_ms())
        except ConsensusBroken as error:
            self.fail(ConsensusStopped(str(error)))

    def _carry_out(self) -> None:
        """Carry out decisions until the core has none, or one waits for the disk."""
        work = self._work
        work.is_busy = True
        while not self.is_stopped:
            ready = self.core.take_ready()
            if ready.persist_quorum_state is not None:
                self._is_state_kept = False
            if not self._is_state_kept and self._keeps_state:
                self._persist(ready)
                return
            if ready is not NOTHING:
                self._handle_ready(ready)
            elif work.waiting:
                self._step_core(work.waiting.popleft())
            else:
                break
        work.is_busy = False
        self._host.timers.set(self, self._due_ms())

    def _persist(self, ready: Ready) -> None:
        """Persist the quorum state, then carry out the decision that it belongs to."""
        core = self.core
        self._is_state_kept = self.is_in_journal = True
        self._host.persist(self, core.quorum_state, partial(self._persisted, ready, core))

    def _persisted(self, ready: Ready, core: Core, failure: BrokerError | None) -> None:
        if self.is_stopped:
            return
        if failure is not None:
            self.fail(failure)
            return
        # Of a core that was replaced meanwhile only the persisted state counts.
        if core is self.core:
            self._handle_ready(ready)
        self._carry_out()
        self.notify_followers()

    def _handle_ready(self, ready: Ready) -> None:
        """Carry out a decision whose quorum state is persisted, field by field in the order of Ready."""
        try:
            moved = self._truncate(ready)
            for request in ready.append:
                moved = self._append(request) or moved
        except (StorageFailed, DiskFull) as reason:
            self.fail(reason)
            return
        if moved:
            self.request_flush()
        for outgoing in ready.send:
            self._send(outgoing)
        if ready.propose is not None:
            if isinstance(ready.propose, InSyncProposal):
                self._host.controller_requests.propose_in_sync(self.topic_partition, ready.propose)
            else:
                self._host.controller_requests.decline_leadership(
                    self.topic_partition, ready.propose
                )
        if ready.high_watermark is not None:
            self._callbacks.on_high_watermark_raised(ready.high_watermark)
        if ready.role is not None:
            self._change_role(ready.role)
        if moved or ready.high_watermark is not None or ready.role is not None:
            self.notify_followers()
        if moved:
            self._step_core(Appended(end_offset=self.log.log_end_offset))

    def _truncate(self, ready: Ready) -> bool:
        log = self.log
        if ready.truncate_to is not None:
            logger.info(
                "%s: truncated to %d from %d, leader epoch %d",
                self.topic_partition,
                ready.truncate_to,
                log.log_end_offset,
                self.core.epoch,
            )
            log.truncate_to(ready.truncate_to)
        if ready.start_over_at is not None:
            logger.info("%s: starts over at %d", self.topic_partition, ready.start_over_at)
            log.truncate_fully_and_start_at(ready.start_over_at)
        is_cut = ready.truncate_to is not None or ready.start_over_at is not None
        suspect_offset = log.suspect_offset if is_cut else None
        if suspect_offset is not None and log.log_end_offset <= suspect_offset:
            log.clear_suspect()
        return is_cut

    def _append(self, request: AppendFetched) -> bool:
        """Append fetched records. Returns whether the log grew; if not, the core fetches them again."""
        try:
            assert isinstance(request.records, FetchedRecords)
            self.log.append_fetched(
                request.records.data,
                epoch_max=self.core.epoch,
                gaps_allowed=request.records.gaps_allowed,
            )
        except DiskFull as reason:
            logger.warning("%s: %s", self.topic_partition, reason)
            return False
        except CorruptMessage as reason:
            self.saw_corrupt = True
            logger.warning("%s: %s; fetching it again", self.topic_partition, reason)
            return False
        self.saw_corrupt = False
        return True

    def _send(self, outgoing: Outgoing) -> None:
        message = outgoing.message
        if not isinstance(message, FetchAnswered):
            self._host.send(self, outgoing)
            return
        # The session builds the answer when it sends it, from the state at that time.
        fetch_state = self.fetch_states.get(outgoing.to)
        if fetch_state is None or fetch_state.fetch is None:
            return
        if fetch_state.fetch.sequence == message.sequence and (
            not is_plain(message)
            or fetch_state.fetch.fetch_offset < self.log.log_end_offset
            or fetch_state.has_update(fetch_state.fetch, message)
        ):
            fetch_state.session.mark(self)

    def _change_role(self, change: RoleChange) -> None:
        if change.role is not Role.LEADER:
            self._host.follow(self, change.leader_id)
        else:
            self._host.follow(self, None)
        self._callbacks.on_role_changed(change)

    # The disk and the clock

    def request_flush(self) -> None:
        """Flush what the log holds now."""
        if self._flush_requested or self.is_stopped:
            return
        self._flush_requested = True
        self._host.flusher.request(self.log, self._flushed)

    def _flushed(self, failure: BrokerError | None) -> None:
        self._flush_requested = False
        if self.is_stopped:
            return
        if failure is not None:
            self.fail(failure)
            return
        flushed_offset = self.log.flushed_offset
        is_sole = self.is_sole
        if not is_sole and flushed_offset < self.log.log_end_offset:
            self.request_flush()
        # What a sole replica has on its disk is committed: its serving core has nothing to decide.
        if not is_sole or not self.core.serving:
            self.step(Flushed(end_offset=flushed_offset))
        self._callbacks.on_flushed(flushed_offset)

    def _due_ms(self) -> int | None:
        if self.is_stopped:
            return None
        return self.core.next_deadline_ms

"""Carries out what a replica's core decides, in the order of duty, with a real log."""

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
    DriverCounters,
    DriverHost,
    DriverWork,
    FetchedRecords,
    FollowerFetchState,
    PartitionFace,
    damage_of,
    is_plain,
    refusal_of,
)
from zhumq.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from zhumq.replication.inter_broker.follower_session import FollowerSession

logger = logging.getLogger(__name__)

# Events that wait while a promise is being written down. Messages beyond it are lost, as on a bad
# network: whoever sent one sends it again.
WAITING_EVENTS_MAX: Final = 256
# What is read again when a follower says that it was sent something damaged.
DAMAGE_LOOK_BYTES: Final = 2 * 1024 * 1024

_MESSAGES: Final = (FetchArrived, FetchAnswered, VoteAsked, VoteAnswered, LeaderAnnounced)

Core = RaftReplica | AssignedReplica


class ReplicaDriver:
    """One replica of one partition: its core, its log, its followers' standings."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: PartitionLog,
        host: DriverHost,
        face: PartitionFace,
        make_core: Callable[["ReplicaDriver"], Core],
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self._host = host
        self._face = face
        self._work = DriverWork()
        self._flush_requested = False
        # By broker: at most one session each.
        self.fetch_states: dict[int, FollowerFetchState] = {}
        self.counters = DriverCounters()
        self.look_at_ms: int | None = None
        self.failure: BrokerError | None = None
        self.is_closed = False
        # The leader's last answer could not be used; it is told so with the next fetch.
        self.saw_corrupt = False
        self.core: Core = make_core(self)

    # Events

    @property
    def is_busy(self) -> bool:
        """Whether a decision is not carried out yet: nobody may be told of it."""
        return self._work.is_busy

    @property
    def is_out(self) -> bool:
        """Whether this replica takes no part any more, until the broker starts again."""
        return self.is_closed or self.failure is not None

    def start(self, *, damaged_from: int | None, persisted: QuorumState | None) -> None:
        """Carry out what the core wants at its beginning."""
        if damaged_from is not None:
            self._feed(LogDamaged(offset=damaged_from))
        self._request_flush()
        state = self.core.quorum_state
        if state != persisted and state != QuorumState(mode=state.mode):
            self._persist_state()
        else:
            self._carry_out()

    def _persist_state(self) -> None:
        """Write down what the core begins with, before it does anything."""
        self._work.is_busy = True
        core = self.core
        self._host.persist(self, core.quorum_state, partial(self._persisted, Ready(), core))

    def replace_core(self, make_core: Callable[["ReplicaDriver"], Core]) -> None:
        """The partition is replicated in another way from now on. Nobody's leadership survives it."""
        if self.is_out:
            return
        self.core = core = make_core(self)
        work = self._work
        work.waiting.clear()
        self._take_role(
            RoleChange(role=Role.UNATTACHED, epoch=core.epoch, leader_id=None, serving=False)
        )
        damaged_from = damage_of(self.log)
        if damaged_from is not None and len(core.voters.ids) > 1:
            self._feed(LogDamaged(offset=damaged_from))
        if not work.is_busy:
            # The new way is a promise as well.
            self._persist_state()
        else:
            work.must_persist = True
        self.notify_followers()

    def step(self, event: Input) -> None:
        """Take in one event, now or when what is under way is done."""
        work = self._work
        if self.is_out:
            return
        if work.is_busy:
            if len(work.waiting) >= WAITING_EVENTS_MAX and isinstance(event, _MESSAGES):
                self.counters.events_lost += 1
            else:
                work.waiting.append(event)
            return
        self._feed(event)
        self._carry_out()

    def fetch_arrived(self, fetch_state: FollowerFetchState, fetch: FetchArrived) -> None:
        """A follower says where it is."""
        fetch_state.fetch = fetch
        self.fetch_states[fetch.replica_id] = fetch_state
        if self.is_out:
            fetch_state.session.mark(self)
        else:
            self.step(fetch)

    def forget_follower(self, session: "FollowerSession") -> None:
        fetch_state = self.fetch_states.get(session.broker_id)
        if fetch_state is not None and fetch_state.session is session:
            # An idle partition was heard of with the session alone, until now.
            self.core.last_contact_was(
                session.broker_id, self.session_contact_ms(session.broker_id)
            )
            del self.fetch_states[session.broker_id]

    def deadline_passed(self, now_ms: int) -> int | None:
        due_ms = self._due_ms()
        if due_ms is not None and due_ms <= now_ms:
            # It is the one who called that notes the next deadline.
            self.look_at_ms = now_ms
            self.step(DeadlinePassed())
            self.look_at_ms = None
            due_ms = self._due_ms()
        return due_ms

    def session_contact_ms(self, replica_id: int) -> int:
        """See consensus.contract.Heard."""
        if self.core.role is not Role.LEADER:
            return self._host.leader_contact_ms(self, replica_id)
        fetch_state = self.fetch_states.get(replica_id)
        if fetch_state is None or fetch_state.fetch is None:
            return NEVER_MS
        return fetch_state.session.session_contact_ms

    def appended(self) -> None:
        """The leader has written a client's batches: flush them, and let followers have them."""
        # The core need not hear of it: of the own log it counts only what is flushed.
        self._request_flush()
        self.notify_followers()

    def notify_followers(self) -> None:
        """There may be something to tell those who wait for it."""
        for fetch_state in self.fetch_states.values():
            if fetch_state.fetch is not None:
                fetch_state.session.mark(self)

    def answer(self, fetch_state: FollowerFetchState) -> FetchAnswered | None:
        """What a follower's fetch is to be answered with now; None while that is not certain."""
        fetch = fetch_state.fetch
        if fetch is None or (self._work.is_busy and not self.is_out):
            return None
        answer = self.core.fetch_answer(fetch)
        # Whatever the core last was, nobody leads from a replica that is out.
        return refusal_of(answer) if self.is_out else answer

    def leader_starts_at(self, log_start_offset: int) -> None:
        """The leader has dropped what is older: nobody needs it here any more either."""
        log = self.log
        if (
            log_start_offset <= log.log_start_offset
            or log_start_offset > min(self.core.high_watermark, log.log_end_offset)
            or self.core.role is not Role.FOLLOWER
            or self.is_out
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
        """Let another replica lead, if it could at once."""
        core = self.core
        if self.is_out or self.is_busy or not isinstance(core, RaftReplica):
            return False
        if not core.resign_for(replica_id, self._host.clock.monotonic_ms()):
            return False
        self._carry_out()
        return True

    def look_for_damage(self, offset: int) -> None:
        """A follower could not use what it was sent: is it the log, or was it the line?"""
        try:
            damaged_from = self.log.find_damage(offset, DAMAGE_LOOK_BYTES)
        except BrokerError as reason:
            self.fail(reason)
            return
        if damaged_from is not None:
            self.damaged(damaged_from)

    def damaged(self, offset: int) -> None:
        """What was flushed is damaged from here on: step down and fetch it anew, if others have it."""
        offset = min([offset, *(bad.first_offset for bad in self.log.corrupt_ranges)])
        logger.error("%s is damaged at offset %d", self.topic_partition, offset)
        if len(self.core.voters.ids) == 1 or self.is_out:
            return
        try:
            self.log.mark_suspect(offset)
        except BrokerError as reason:
            self.fail(reason)
            return
        self.step(LogDamaged(offset=offset))

    def close(self) -> None:
        """The partition is no longer this broker's."""
        self.is_closed = True
        self._host.follow(self, None)
        self.notify_followers()

    def fail(self, reason: BrokerError) -> None:
        """A disk that failed stays out until the broker starts again."""
        if self.is_out:
            return
        logger.error("%s takes no part any more: %s", self.topic_partition, reason)
        core = self.core
        proposal = None
        # Hazard 6: a failed sync is final. The core steps down as from any damage; what it wants
        # to be written down or cut is not done any more.
        if not isinstance(reason, ConsensusStopped):
            if len(core.voters.ids) > 1:
                # The pages that were not written are marked clean, so a later start would read
                # them, sync them, and lose them all the same.
                with contextlib.suppress(BrokerError):
                    self.log.mark_suspect(self.log.flushed_offset)
            core.step(LogDamaged(offset=self.log.flushed_offset), self._host.clock.monotonic_ms())
            proposal = core.take_ready().propose
        self.failure = reason
        if proposal is not None and not isinstance(proposal, InSyncProposal):
            self._host.controller_requests.decline_leadership(self.topic_partition, proposal)
        self._host.follow(self, None)
        self._face.went_offline(reason)
        self.notify_followers()

    # Carrying out

    def _feed(self, event: Input) -> None:
        try:
            self.core.step(event, self._host.clock.monotonic_ms())
        except ConsensusBroken as error:
            self.fail(ConsensusStopped(str(error)))

    def _carry_out(self) -> None:
        """Do what the core wants until it wants nothing more, or has to wait for the disk."""
        work = self._work
        work.is_busy = True
        while not self.is_out:
            ready = self.core.take_ready()
            if ready is NOTHING:
                if not work.waiting:
                    break
                self._feed(work.waiting.popleft())
                continue
            if ready.persist_quorum_state is not None:
                self._host.persist(
                    self,
                    ready.persist_quorum_state,
                    partial(self._persisted, ready, self.core),
                )
                return
            self._do(ready)
        work.is_busy = False
        self._host.timers.set(self, self._due_ms())

    def _persisted(self, ready: Ready, core: Core, failure: BrokerError | None) -> None:
        if self.is_out:
            return
        if failure is not None:
            self.fail(failure)
            return
        if self._work.must_persist:
            # Of a core that was replaced meanwhile only what it promised counts.
            self._work.must_persist = False
            self._persist_state()
            return
        if core is self.core:
            self._do(ready)
        self._carry_out()
        self.notify_followers()

    def _do(self, ready: Ready) -> None:
        """The duties below the first, top to bottom."""
        try:
            moved = self._cut(ready)
            for request in ready.append:
                moved = self._append(request) or moved
        except (StorageFailed, DiskFull) as reason:
            self.fail(reason)
            return
        if moved:
            self._request_flush()
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
            self._face.high_watermark_raised(ready.high_watermark)
        if ready.role is not None:
            self._take_role(ready.role)
        if moved or ready.high_watermark is not None or ready.role is not None:
            self.notify_followers()
        if moved:
            self._feed(Appended(end_offset=self.log.log_end_offset))

    def _cut(self, ready: Ready) -> bool:
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
        """Whether the log has grown. Where it has not, the follower's fetch is sent again later."""
        try:
            assert isinstance(request.records, FetchedRecords)
            self.log.append_fetched(
                request.records.data,
                epoch_max=self.core.epoch,
                gaps_allowed=request.records.gaps_allowed,
            )
        except DiskFull as reason:
            self.counters.disk_full += 1
            logger.warning("%s: %s", self.topic_partition, reason)
            return False
        except CorruptMessage as reason:
            self.counters.fetched_corrupt += 1
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
        # The answer is made when the session sends it, with what is known by then.
        fetch_state = self.fetch_states.get(outgoing.to)
        if fetch_state is None or fetch_state.fetch is None:
            return
        if fetch_state.fetch.sequence == message.sequence and (
            not is_plain(message)
            or fetch_state.fetch.fetch_offset < self.log.log_end_offset
            or fetch_state.has_update(fetch_state.fetch, message)
        ):
            fetch_state.session.mark(self)

    def _take_role(self, change: RoleChange) -> None:
        if change.role is not Role.LEADER:
            self._host.follow(self, change.leader_id)
        else:
            self._host.follow(self, None)
        # What a follower keeps is what its leader keeps.
        self.log.is_follower = change.role is not Role.LEADER
        self._face.role_taken(change)

    # The disk and the clock

    def _request_flush(self) -> None:
        if self._flush_requested or self.is_out:
            return
        self._flush_requested = True
        self._host.flusher.request(self.log, self._flushed)

    def _flushed(self, failure: BrokerError | None) -> None:
        self._flush_requested = False
        if self.is_out:
            return
        if failure is not None:
            self.fail(failure)
            return
        flushed_offset = self.log.flushed_offset
        if flushed_offset < self.log.log_end_offset:
            self._request_flush()
        self.step(Flushed(end_offset=flushed_offset))

    def _due_ms(self) -> int | None:
        if self.is_out:
            return None
        return self.core.next_deadline_ms

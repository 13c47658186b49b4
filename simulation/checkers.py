"""Named invariants of replication, checked at every event of a simulation."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from simulation.simulated_log import Entry, SimulatedLog
from zhumq.consensus.contract import (
    NO_EPOCH,
    FetchArrived,
    Message,
    Mode,
    QuorumState,
    Role,
    RoleChange,
    VoteAnswered,
)

MONOTONIC_EPOCH: Final = "an epoch never goes back, also across restarts"
ONE_LEADER: Final = "one leader per epoch"
ONE_VOTE: Final = "one vote per epoch, also across restarts"
ACCEPTED_DURABLE: Final = (
    "an epoch is accepted on disk before the leader learns of it, and for good"
)
ACK_DURABLE: Final = "an acknowledgement implies durable on enough disks at that moment"
MONOTONIC_HIGH_WATERMARK: Final = "the high watermark never goes back"
VISIBLE_IS_DURABLE: Final = "nothing is visible before enough disks have it"
COMMITTED_FOREVER: Final = "committed data never changes"
LOG_MATCHING: Final = "equal epochs at one offset mean equal logs up to it"
LEADER_COMPLETENESS: Final = "a leader has everything that was committed"
SEQUENCES: Final = "a producer's sequences are gap-free and without repetition"
IN_SYNC_COMPLETE: Final = "every replica in sync has everything that was committed"
NOTHING_LOST: Final = "everything acknowledged can be read in the end"
CONVERGENCE: Final = "all logs are equal in the end"
LEADER_EXISTS: Final = "a leader serves once the faults are over"
NO_CONTRADICTION: Final = "no replica is asked for what the protocol rules out"


class InvariantViolated(AssertionError):
    """A simulation violated an invariant."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """Whose disks count at this moment, from a view of the whole cluster."""

    # Raft: the voters. Fetch: the in-sync set in the controller's record.
    counted: frozenset[int]
    needed: int
    # How many disks have to hold an entry, whether in sync or not.
    needed_in_all: int


class Checkers:
    """Checks every event and raises InvariantViolated at the first violation."""

    def __init__(self, logs: Mapping[int, SimulatedLog], quorum: Callable[[Mode], Quorum]) -> None:
        self._logs = logs
        self._quorum = quorum
        # Everything that was ever below a high watermark; the index is the offset.
        self.committed: list[Entry] = []
        # The epoch in which each entry was committed; it does not decrease with the offset.
        self._committed_in: list[int] = []
        self._epochs: dict[int, int] = {}
        self._accepted: dict[int, int] = {}
        self._leaders: dict[int, tuple[int, int]] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._persisted_votes: dict[tuple[int, int], int] = {}
        self._written: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._sequences: dict[int, int] = {}
        self._acknowledged: dict[tuple[int, int], int] = {}
        # Replicas that lost flushed data by a fault, and are excused until they have recovered.
        self.excused: set[int] = set()

    def wiped(self, node: int) -> None:
        """A fault wiped a replica's disk; the votes that it cast still count."""
        self.excused.add(node)
        self._epochs[node] = 0
        self._accepted[node] = NO_EPOCH

    def removed(self, node: int) -> None:
        """A replica was dropped because it moved; the votes that it cast still count."""
        self._epochs[node] = 0
        self._accepted[node] = NO_EPOCH

    def persisted(self, node: int, state: QuorumState) -> None:
        before = self._epochs.get(node, 0)
        self._expect(
            state.epoch >= before, MONOTONIC_EPOCH, f"{node} goes from {before} to {state.epoch}"
        )
        self._epochs[node] = state.epoch
        accepted = self._accepted.get(node, NO_EPOCH)
        self._expect(
            state.accepted_epoch >= accepted,
            ACCEPTED_DURABLE,
            f"{node} goes from {accepted} to {state.accepted_epoch}",
        )
        self._accepted[node] = state.accepted_epoch
        if state.voted_for is not None:
            self._persisted_votes[(node, state.epoch)] = state.voted_for
            self._vote(node, state.epoch, state.voted_for)

    def sent(self, node: int, to: int, message: Message) -> None:
        self._expect(
            message.epoch <= self._epochs.get(node, 0),
            MONOTONIC_EPOCH,
            f"{node} sends epoch {message.epoch} and has not persisted it",
        )
        if isinstance(message, FetchArrived):
            self._expect(
                message.accepted_epoch <= self._accepted.get(node, NO_EPOCH),
                ACCEPTED_DURABLE,
                f"{node} sends accepted epoch {message.accepted_epoch} and has not persisted it",
            )
        if isinstance(message, VoteAnswered) and message.granted and not message.pre_vote:
            self._vote(node, message.asked_epoch, to)
            self._expect(
                self._persisted_votes.get((node, message.asked_epoch)) == to,
                ONE_VOTE,
                f"{node} votes for {to} in {message.asked_epoch} and has not persisted it",
            )

    def _vote(self, node: int, epoch: int, candidate: int) -> None:
        known = self._votes.setdefault((node, epoch), candidate)
        self._expect(
            known == candidate, ONE_VOTE, f"{node} votes for {known} and {candidate} in {epoch}"
        )

    def started(self, node: int, high_watermark: int) -> None:
        """A replica starts with its disk: everything below its high watermark is committed."""
        log = self._logs[node]
        if node in self.excused or high_watermark <= log.log_start_offset:
            return
        last = high_watermark - 1
        self._expect(
            last < len(self.committed) and log.entry(last) == self.committed[last],
            COMMITTED_FOREVER,
            f"{node} starts with a high watermark of {high_watermark} above uncommitted entries",
        )

    def appended(self, node: int, offset: int, entry: Entry) -> None:
        log = self._logs[node]
        before = log.epoch_of(offset - 1) if offset > log.log_start_offset else None
        if before is not None:
            self._expect(
                before <= entry.epoch,
                LOG_MATCHING,
                f"{node} has epoch {entry.epoch} after {before}",
            )
        key = (entry.epoch, offset)
        known = self._written.get(key)
        if known is None:
            self._written[key] = (entry, -1 if before is None else before)
            return
        self._expect(
            known[0] == entry and (before is None or known[1] in (before, -1)),
            LOG_MATCHING,
            f"{node} has {entry} at {offset} after epoch {before}, elsewhere it is {known}",
        )

    def truncated(self, node: int, offset: int, end_offset: int) -> None:
        if node in self.excused:
            return
        log = self._logs[node]
        last = min(end_offset, len(self.committed))
        if offset < last:
            self._expect(
                log.entry(offset) != self.committed[offset],
                COMMITTED_FOREVER,
                f"{node} truncates {self.committed[offset]} at {offset}, which is committed",
            )

    def raised(self, node: int, before: int, after: int, mode: Mode, *, leads: bool) -> None:
        """A replica raises its high watermark. The leader has to be the first to raise it."""
        if after < before and node not in self.excused:
            self._expect(False, MONOTONIC_HIGH_WATERMARK, f"{node} goes from {before} to {after}")
        log = self._logs[node]
        self._expect(
            after <= log.log_end_offset, VISIBLE_IS_DURABLE, f"{node} shows {after}, past its end"
        )
        for offset in range(max(before, log.log_start_offset), after):
            entry = log.entry(offset)
            if offset < len(self.committed):
                self._expect(
                    entry == self.committed[offset],
                    COMMITTED_FOREVER,
                    f"{node} shows {entry} at {offset}, it was {self.committed[offset]}",
                )
                continue
            self._expect(leads, VISIBLE_IS_DURABLE, f"{node} shows {offset} before any leader")
            self._commit(offset, entry, self._epochs.get(node, 0))
        if after > before and leads and after == len(self.committed):
            self._check_durable(after - 1, mode, VISIBLE_IS_DURABLE)

    def _commit(self, offset: int, entry: Entry, epoch: int) -> None:
        self._expect(
            offset == len(self.committed), COMMITTED_FOREVER, f"{offset} is shown before its turn"
        )
        self.committed.append(entry)
        self._committed_in.append(epoch)
        if entry.producer >= 0:
            expected = self._sequences.get(entry.producer, 0)
            self._expect(
                entry.sequence == expected,
                SEQUENCES,
                f"producer {entry.producer} has {entry.sequence} in place of {expected}",
            )
            self._sequences[entry.producer] = expected + 1

    def _check_durable(self, offset: int, mode: Mode, invariant: str) -> None:
        quorum = self._quorum(mode)
        entry = self.committed[offset]
        holders = self._holders(offset, entry, quorum.counted)
        self._expect(
            holders >= quorum.needed,
            invariant,
            f"{entry} at {offset} is on {holders} of {sorted(quorum.counted)},"
            f" needed are {quorum.needed}",
        )
        in_all = self._holders(offset, entry, self._logs)
        self._expect(
            in_all >= quorum.needed_in_all,
            invariant,
            f"{entry} at {offset} is on {in_all} disks, needed are {quorum.needed_in_all}",
        )

    def _holders(self, offset: int, entry: Entry, counted: Iterable[int]) -> int:
        return sum(
            1 for each in counted if each in self.excused or self._logs[each].holds(offset, entry)
        )

    def on_role_changed(self, node: int, incarnation: int, change: RoleChange) -> None:
        if change.role is not Role.LEADER:
            return
        known = self._leaders.setdefault(change.epoch, (node, incarnation))
        self._expect(
            known == (node, incarnation),
            ONE_LEADER,
            f"{known} and {(node, incarnation)} (replica, start) lead epoch {change.epoch}",
        )
        # A leader that wins after a later epoch has a leader does not have the later epoch's entries.
        count = bisect_left(self._committed_in, change.epoch)
        self._check_complete(node, count, LEADER_COMPLETENESS)

    def serves(self, node: int, high_watermark: int, epoch: int) -> None:
        """A leader starts to serve: its high watermark covers everything that was visible before."""
        if max(self._leaders) == epoch:
            self._expect(
                high_watermark >= len(self.committed),
                MONOTONIC_HIGH_WATERMARK,
                f"{node} serves up to {high_watermark}, {len(self.committed)} was visible before",
            )

    def in_sync_changed(self, in_sync: frozenset[int]) -> None:
        for each in in_sync:
            if each not in self.excused:
                count = len(self.committed)
                self._check_complete(each, count, IN_SYNC_COMPLETE, flushed=True)

    def _check_complete(
        self, node: int, count: int, invariant: str, *, flushed: bool = False
    ) -> None:
        """Check that a replica has the first `count` committed entries, except those deleted by retention."""
        if not count:
            return
        log = self._logs[node]
        last = count - 1
        end = log.flushed_offset if flushed else log.log_end_offset
        if last < log.log_start_offset:
            return
        self._expect(
            last < end and log.entry(last) == self.committed[last],
            invariant,
            f"{node} ends at {end} and lacks {self.committed[last]} at {last}",
        )

    def acknowledged(self, offset: int, entry: Entry, mode: Mode) -> None:
        """A producer got its acknowledgement for acks=-1."""
        self._expect(
            offset < len(self.committed) and self.committed[offset] == entry,
            ACK_DURABLE,
            f"{entry} at {offset} is acknowledged but not committed",
        )
        self._check_durable(offset, mode, ACK_DURABLE)
        self._acknowledged[(entry.producer, entry.sequence)] = offset

    def consumed(self, offset: int, entry: Entry) -> None:
        self._expect(
            offset < len(self.committed) and self.committed[offset] == entry,
            COMMITTED_FOREVER,
            f"a consumer reads {entry} at {offset}, which is not committed",
        )

    @property
    def acknowledgements(self) -> int:
        return len(self._acknowledged)

    @property
    def epochs_led(self) -> int:
        return len(self._leaders)

    def final(self, leader: int, high_watermark: int, replicas: Iterable[int]) -> None:
        """After all faults: everything acknowledged can be read, and all replicas are equal."""
        log = self._logs[leader]
        for (producer, sequence), offset in self._acknowledged.items():
            if offset < log.log_start_offset:
                continue
            entry = log.entry(offset) if offset < high_watermark else None
            self._expect(
                entry is not None and (entry.producer, entry.sequence) == (producer, sequence),
                NOTHING_LOST,
                f"message {sequence} of producer {producer} at {offset} is {entry}",
            )
        logs = {each: self._logs[each] for each in replicas}
        start = max(each.log_start_offset for each in logs.values())
        expected = log.read_all(start, log.log_end_offset)
        for node, other in logs.items():
            self._expect(
                other.read_all(start, other.log_end_offset) == expected,
                CONVERGENCE,
                f"{node} and {leader} differ from offset {start} on",
            )

    @staticmethod
    def _expect(holds: bool, invariant: str, detail: str) -> None:
        if not holds:
            raise InvariantViolated(invariant, detail)

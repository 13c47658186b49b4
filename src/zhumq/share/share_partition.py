"""A share partition: the delivery state of the offsets of one partition in one share group. Pure."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.isolation import Isolation
from zhumq.share.acknowledgement import AckKind, Acknowledgement, AcquiredRange, joined_ranges
from zhumq.share.partition_state import (
    ARCHIVING_STATES,
    DONE_STATES,
    RecordState,
    SharePartitionState,
    SharePartitionUpdate,
    StateRun,
    joined_runs,
)
from zhumq.share.redelivery import DeadLetter, RedeliveryPolicy, exhausted_reason
from zhumq.share.runs import Run, Runs

LOCK_EXPIRED_REASON = "the lock expired"


class InvalidRecordState(BrokerError):
    """The member has not acquired these offsets: never delivered, the lock expired, or already done."""

    code = ErrorCode.INVALID_RECORD_STATE


class Span(NamedTuple):
    """The offsets of one batch in the log, or of a part that a filter lets pass or excludes. A control batch holds
    nothing for consumers, nor at read_committed one of an aborted transaction."""

    first_offset: int
    last_offset: int
    has_records: bool = True
    is_filtered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionLimits:
    """Limits of a share partition: offsets in flight, acquisition lock, redelivery, transactions."""

    # Offsets between the start and the end offset, done or not, except archived ones: adjacent ones of these, as a
    # filter makes them, are one run however many they are.
    in_flight_max: int = 2_000
    lock_ms: int = 30_000
    redelivery: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    # One owner gets the records in order: releasing a record also releases the later ones.
    is_ordered: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED

    def widened_by(self, others: "SharePartitionLimits") -> "SharePartitionLimits":
        """The higher ones of both, with the order and the isolation level of the others."""
        redelivery = replace(
            self.redelivery,
            max_deliveries=max(self.redelivery.max_deliveries, others.redelivery.max_deliveries),
        )
        return replace(
            self,
            in_flight_max=max(self.in_flight_max, others.in_flight_max),
            redelivery=redelivery,
            is_ordered=others.is_ordered,
            isolation=others.isolation,
        )


class SharePartition:
    """Every offset from the start offset on has exactly one state; everything below it is done.

    Changes that must survive a crash are returned as a SharePartitionUpdate. The caller makes it durable before it
    answers a client. The change takes effect in memory at once. If the write fails, the caller discards the share
    partition and restores it from the persisted state, as after a crash.
    """

    def __init__(self, state: SharePartitionState, limits: SharePartitionLimits) -> None:
        self.limits = limits
        self.dead_letter_producer_id = state.dead_letter_producer_id
        self.dead_letters_written = state.dead_letters_written
        self.redeliveries = 0  # of records; only the share partition sees the delivery counts
        self.filtered = 0  # offsets that a filter excluded
        self._runs = Runs(state.start_offset)
        self._owner: str | None = None
        # Times at which locks expire and backoffs end; some may be obsolete.
        self._alarms: list[int] = []
        self._alarm_set: set[int] = set()
        for run in state.runs:
            self._restore(run)
        self._runs.drop_done()

    def _restore(self, run: StateRun) -> None:
        end_offset = self.end_offset
        first = max(run.first_offset, end_offset)
        if first > run.last_offset:
            return
        if first > end_offset:
            # Offsets that were acquired or never written when the state was persisted.
            self._runs.append(end_offset, first - 1, RecordState.AVAILABLE, 0)
        restored = self._runs.append(first, run.last_offset, run.state, run.delivery_count)
        restored.reason = run.reason

    # Facts

    @property
    def start_offset(self) -> int:
        """Everything below this offset is done."""
        return self._runs.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset that was never delivered."""
        return self._runs.end_offset

    @property
    def acquired_count(self) -> int:
        """Number of acquired offsets."""
        return self._runs.size_of(RecordState.ACQUIRED)

    @property
    def done_count(self) -> int:
        """Number of done offsets above the start offset."""
        return sum(self._runs.size_of(state) for state in DONE_STATES)

    @property
    def next_deadline_ms(self) -> int | None:
        """The next time at which `expire` may have work."""
        return self._alarms[0] if self._alarms else None

    def held_by(self, member: str) -> int:
        return sum(run.size for run in self._held_runs(member))

    def runs(self) -> Iterator[StateRun]:
        """All runs of the share partition, acquired ones included."""
        for run in self._runs:
            yield StateRun(run.first, run.last, run.state, run.count, run.reason)

    @property
    def archiving_count(self) -> int:
        """Number of offsets whose dead letters are not written yet."""
        return sum(self._runs.size_of(state) for state in ARCHIVING_STATES)

    def dead_lettering(self) -> DeadLetter | None:
        """The dead letters that are being written: the next dead-letter write must be exactly these."""
        return self._first_dead_letter(RecordState.DEAD_LETTERING)

    def next_dead_letter(self) -> DeadLetter | None:
        """The dead letters to write after those."""
        return self._first_dead_letter(RecordState.ARCHIVING)

    def _first_dead_letter(self, state: RecordState) -> DeadLetter | None:
        if not self._runs.size_of(state):
            return None
        run = next(each for each in self._runs if each.state is state)
        return DeadLetter(run.first, run.last, run.count, run.reason)

    # Acquiring

    def next_fetch_offset(self, now_ms: int, from_offset: int = 0) -> int | None:
        """The offset of the next record to deliver, at or after `from_offset`; possibly the end offset.

        None: nothing can be delivered now, whatever the log contains.
        """
        if self._runs.size_of(RecordState.AVAILABLE):
            for run in self._runs:
                if run.state is not RecordState.AVAILABLE:
                    continue
                if run.due_ms <= now_ms and run.last >= from_offset:
                    return max(run.first, from_offset)
                if self.limits.is_ordered:
                    # Nothing overtakes a message that waits for its backoff or lies below `from_offset`.
                    return None
        if self._room <= 0 or from_offset > self.end_offset:
            return None
        return self.end_offset

    @property
    def _room(self) -> int:
        """How many more new offsets may be acquired."""
        in_flight = self.end_offset - self.start_offset - self._runs.size_of(RecordState.ARCHIVED)
        return self.limits.in_flight_max - in_flight

    def take_over(self, owner: str, now_ms: int) -> SharePartitionUpdate:
        """Make `owner` the only member that may acquire. Release what other members have acquired."""
        others: list[Run] = []
        if self._owner not in (None, owner):
            others = [run for run in self._held_runs() if run.member != owner]
        self._owner = owner
        reason = "the partition was assigned to another member"
        return self._update(self._release(others, reason, now_ms, delay_ms=0, counts=False))

    def acquire(
        self,
        member: str,
        spans: Sequence[Span],
        *,
        from_offset: int,
        records_max: int,
        now_ms: int,
        lock_ms: int | None = None,
        whole_batches: bool = False,
    ) -> list[AcquiredRange]:
        """Acquire the available offsets of these adjacent batches for a member.

        These are the first ones in the log from `from_offset` on; offsets between them are no longer in the log.
        With `whole_batches` the last span of new records is acquired whole, even above records_max.
        """
        if not spans or records_max <= 0 or self._owner not in (None, member):
            return []
        taken: list[Run] = []
        left = records_max
        last_offset = spans[-1].last_offset
        if from_offset < self.end_offset:
            self._archive_gaps(spans, from_offset)
            left = self._take_available(from_offset, last_offset, left, now_ms, taken)
        # In order: no new records while older ones wait for redelivery.
        waits = self.limits.is_ordered and self._runs.size_of(RecordState.AVAILABLE)
        if left > 0 and last_offset >= self.end_offset and not waits:
            self._take_new(spans, left, taken, whole_batches=whole_batches)
        due_ms = now_ms + (self.limits.lock_ms if lock_ms is None else lock_ms)
        acquired: list[AcquiredRange] = []
        for run in taken:
            run.member, run.due_ms = member, due_ms
            acquired.append(AcquiredRange(run.first, run.last, run.count))
            if run.count > 1:
                self.redeliveries += run.size
        if taken:
            self._set_alarm(due_ms)
            self._runs.join(taken[0].first, taken[-1].last)
        self._runs.drop_done()
        return joined_ranges(acquired)

    def _take_available(
        self, first: int, last: int, left: int, now_ms: int, taken: list[Run]
    ) -> int:
        index = self._runs.cut_at(first)
        while left > 0 and index < len(self._runs):
            run = self._runs[index]
            if run.first > last:
                break
            if run.state is RecordState.AVAILABLE:
                if run.due_ms > now_ms and self.limits.is_ordered:
                    return 0
                if run.due_ms <= now_ms:
                    self._runs.cut_at(min(run.last, last, run.first + left - 1) + 1)
                    self._runs.set_state(run, RecordState.ACQUIRED)
                    run.count += 1
                    taken.append(run)
                    left -= run.size
            index += 1
        return left

    def _take_new(
        self, spans: Sequence[Span], left: int, taken: list[Run], *, whole_batches: bool
    ) -> None:
        for span in spans:
            if span.last_offset < self.end_offset:
                continue
            if left <= 0:
                return
            if span.first_offset > self.end_offset:
                # Compaction removed these offsets: there is nothing to deliver.
                self._skip(self.end_offset, span.first_offset - 1)
            first = self.end_offset
            if not span.has_records:
                self._skip(first, span.last_offset)
                if span.is_filtered:
                    self.filtered += span.last_offset - first + 1
                continue
            self._runs.drop_done()
            span_size = span.last_offset - first + 1
            size = min(span_size, self._room if whole_batches else min(self._room, left))
            if size > 0:
                taken.append(self._runs.append(first, first + size - 1, RecordState.ACQUIRED, 1))
            if size < span_size:
                return
            left -= size

    def _skip(self, first: int, last: int) -> None:
        """Archive new offsets. They join those before: a filter may exclude everything for a long time."""
        self._runs.append(first, last, RecordState.ARCHIVED, 0)
        self._runs.join(first, last)

    def _archive_gaps(self, spans: Sequence[Span], from_offset: int) -> None:
        """Archive available offsets that are no longer in the log."""
        next_offset = from_offset
        for span in spans:
            if span.first_offset > next_offset:
                self._archive_available(next_offset, span.first_offset - 1)
            if not span.has_records:
                archived = self._archive_available(span.first_offset, span.last_offset)
                if span.is_filtered:
                    self.filtered += sum(run.size for run in archived)
            next_offset = span.last_offset + 1

    def skip_to(self, offset: int) -> SharePartitionUpdate:
        """Archive what is below: retention deleted it, or it was done elsewhere. Acquired offsets stay acquired."""
        if offset <= self.start_offset:
            return self._update([])
        changed = self._archive_available(self.start_offset, offset - 1)
        if offset > self.end_offset:
            unseen = self._runs.append(self.end_offset, offset - 1, RecordState.ARCHIVED, 0)
            changed.append(unseen)
        return self._update(changed)

    def skipped(self) -> SharePartitionUpdate:
        """The update that persists what `acquire` has skipped. Until then a restart skips it again."""
        update = self._update([run for run in self._runs if run.state is RecordState.ARCHIVED])
        if update or not self.start_offset:
            return update
        # The start offset moved over everything. An update without a run would not be written.
        below = self.start_offset - 1
        return replace(update, runs=(StateRun(below, below, RecordState.ARCHIVED, 0, ""),))

    def _archive_available(self, first: int, last: int) -> list[Run]:
        gone = self._in_state(first, last, RecordState.AVAILABLE)
        for run in gone:
            self._runs.set_state(run, RecordState.ARCHIVED)
        return gone

    # Acknowledging

    def acknowledge(
        self, member: str, acknowledgement: Acknowledgement, now_ms: int
    ) -> SharePartitionUpdate:
        """Apply an acknowledgement to offsets that the member has acquired: all or none. Raises InvalidRecordState."""
        runs = self._check_held(member, acknowledgement.first_offset, acknowledgement.last_offset)
        reason = acknowledgement.reason
        match acknowledgement.kind:
            case AckKind.ACCEPT:
                for run in runs:
                    self._runs.set_state(run, RecordState.ACKNOWLEDGED)
            case AckKind.GAP:
                for run in runs:
                    self._runs.set_state(run, RecordState.ARCHIVED)
            case AckKind.RELEASE:
                self._release(
                    runs,
                    reason,
                    now_ms,
                    counts=acknowledgement.counts,
                    delay_ms=acknowledgement.delay_ms,
                )
                runs += self._release_later(acknowledgement.last_offset, now_ms)
            case AckKind.REJECT:
                for run in runs:
                    self._archive(run, reason or "rejected")
            case AckKind.RENEW:
                lock_ms = acknowledgement.lock_ms
                due_ms = now_ms + (self.limits.lock_ms if lock_ms is None else lock_ms)
                for run in runs:
                    run.due_ms = due_ms
                self._set_alarm(due_ms)
                return self._update([])
            case _:
                assert_never(acknowledgement.kind)
        return self._update(runs)

    def release_member(
        self, member: str, reason: str, now_ms: int, *, counts: bool = True
    ) -> SharePartitionUpdate:
        """Make what the member had acquired available at once, because the member is gone.

        `counts`: whether this delivery counts; not for a member that left properly.
        """
        held = list(self._held_runs(member))
        return self._update(self._release(held, reason, now_ms, delay_ms=0, counts=counts))

    def expire(self, now_ms: int) -> SharePartitionUpdate:
        """Release offsets whose lock has expired. A backoff that ends also sets an alarm, but needs no change."""
        is_due = False
        while self._alarms and self._alarms[0] <= now_ms:
            self._alarm_set.discard(heapq.heappop(self._alarms))
            is_due = True
        if not is_due:
            return self._update([])
        expired = [run for run in self._held_runs() if run.due_ms <= now_ms]
        if not expired:
            return self._update([])
        if self.limits.is_ordered:
            # The owner works on one record at a time: only the first delivery counts as failed.
            first = expired[0].first
            expired = self._runs.between(first, first)
            self._release(expired, LOCK_EXPIRED_REASON, now_ms)
            expired += self._release_later(first, now_ms)
        else:
            self._release(expired, LOCK_EXPIRED_REASON, now_ms)
        return self._update(expired)

    def begin_dead_lettering(self, first: int, last: int) -> SharePartitionUpdate:
        """Mark archiving offsets whose dead letters are written next, in one batch, once this is durable."""
        assert self.dead_lettering() is None, "one batch of dead letters at a time"
        archiving = self._in_state(first, last, RecordState.ARCHIVING)
        for run in archiving:
            self._runs.set_state(run, RecordState.DEAD_LETTERING)
        return self._update(archiving)

    def end_dead_lettering(self, dead_letters: int) -> SharePartitionUpdate:
        """Archive the offsets whose dead letters, `dead_letters` in number, are durable now."""
        self.dead_letters_written += dead_letters
        archived = self._in_state(self.start_offset, self.end_offset, RecordState.DEAD_LETTERING)
        for run in archived:
            self._runs.set_state(run, RecordState.ARCHIVED)
        return self._update(archived)

    def _in_state(self, first: int, last: int, state: RecordState) -> list[Run]:
        return [run for run in self._runs.between(first, last) if run.state is state]

    def _check_held(self, member: str, first: int, last: int) -> list[Run]:
        if first > last or first < self.start_offset or last >= self.end_offset:
            raise InvalidRecordState(
                f"offsets {first} to {last} are not acquired by {member!r}: the share partition has"
                f" {self.start_offset} to {self.end_offset - 1}"
            )
        index = self._runs.index_of(first)
        while index < len(self._runs) and self._runs[index].first <= last:
            run = self._runs[index]
            if run.state is not RecordState.ACQUIRED or run.member != member:
                raise InvalidRecordState(
                    f"offsets {max(first, run.first)} to {min(last, run.last)} are not acquired by"
                    f" {member!r}: {run.state.name.lower()}"
                )
            index += 1
        return self._runs.between(first, last)

    def _held_runs(self, member: str | None = None) -> Iterator[Run]:
        if not self.acquired_count:
            return
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and member in (None, run.member):
                yield run

    def _release(
        self,
        runs: list[Run],
        reason: str,
        now_ms: int,
        *,
        delay_ms: int | None = None,
        counts: bool = True,
    ) -> list[Run]:
        """Make runs available after `delay_ms` or, without it, the policy's backoff."""
        policy = self.limits.redelivery
        for run in runs:
            if counts and policy.is_exhausted(run.count):
                self._archive(run, exhausted_reason(run.count, reason))
                continue
            self._runs.set_state(run, RecordState.AVAILABLE)
            run.reason = reason
            run.count -= not counts
            backoff_ms = policy.delay_ms(run.count) if counts else 0
            wait_ms = backoff_ms if delay_ms is None else delay_ms
            run.due_ms = now_ms + wait_ms if wait_ms else 0
            if wait_ms:
                self._set_alarm(run.due_ms)
        return runs

    def _release_later(self, offset: int, now_ms: int) -> list[Run]:
        """In order: release what comes after a failed record; these deliveries do not count."""
        if not self.limits.is_ordered:
            return []
        later = [run for run in self._held_runs() if run.first > offset]
        return self._release(later, "a record before it failed", now_ms, delay_ms=0, counts=False)

    def _archive(self, run: Run, reason: str) -> None:
        if self.limits.redelivery.dead_letters:
            self._runs.set_state(run, RecordState.ARCHIVING)
            run.reason = reason
        else:
            self._runs.set_state(run, RecordState.ARCHIVED)

    def _set_alarm(self, due_ms: int) -> None:
        if due_ms not in self._alarm_set:
            self._alarm_set.add(due_ms)
            heapq.heappush(self._alarms, due_ms)

    def _update(self, changed: list[Run]) -> SharePartitionUpdate:
        """The update to persist for these runs. Runs are joined: the caller must not use them afterwards."""
        written = joined_runs(
            sorted(
                StateRun(
                    run.first,
                    run.last,
                    run.state,
                    0 if run.state in DONE_STATES else run.count,
                    run.reason if run.state in ARCHIVING_STATES else "",
                )
                for run in changed
            )
        )
        for run in written:
            self._runs.join(run.first_offset, run.last_offset)
        self._runs.drop_done()
        return SharePartitionUpdate(
            start_offset=self.start_offset,
            runs=tuple(written),
            dead_letters_written=self.dead_letters_written,
        )

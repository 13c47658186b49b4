"""The window of one group on one partition: which offsets are available, held, done, or dying. Pure."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.share.acknowledgement import AckKind, Acknowledgement, AcquiredRange
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
    """The member does not hold these offsets: never delivered, the lock expired, or done already."""

    code = ErrorCode.INVALID_RECORD_STATE


class Span(NamedTuple):
    """The offsets of one batch in the log. A control batch holds nothing for consumers."""

    first_offset: int
    last_offset: int
    has_records: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionLimits:
    """How much a window holds and for how long a member may hold it."""

    # Offsets between the start and the end of the window, done or not.
    in_flight_max: int = 2_000
    lock_ms: int = 30_000
    redelivery: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    # In order, to one owner: what comes after a released record is released with it.
    is_ordered: bool = False


class SharePartition:
    """Every offset from the start on is in exactly one state; everything below the start is done.

    Changes that must outlive a crash are returned as a WindowUpdate, to be made durable before anybody is
    told. They are in force here at once: where the write fails, the window is thrown away and restored
    from what was written, which is what a crash does.
    """

    def __init__(self, state: SharePartitionState, limits: SharePartitionLimits) -> None:
        self.limits = limits
        self.dead_letter_producer_id = state.dead_letter_producer_id
        self.dead_letters_written = state.dead_letters_written
        self.redeliveries = 0  # of records, counted here because nobody else can tell
        self._runs = Runs(state.start_offset)
        self._owner: str | None = None
        # When locks end and backoffs are over; some may be about what is long past.
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
            # Offsets that were held, or skipped over, when the state was written.
            self._runs.append(end_offset, first - 1, RecordState.AVAILABLE, 0)
        restored = self._runs.append(first, run.last_offset, run.state, run.delivery_count)
        restored.reason = run.reason

    # Facts

    @property
    def start_offset(self) -> int:
        """Everything below is done with."""
        return self._runs.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset that was never delivered to anybody."""
        return self._runs.end_offset

    @property
    def acquired_count(self) -> int:
        """Offsets that members hold."""
        return self._runs.size_of(RecordState.ACQUIRED)

    @property
    def done_count(self) -> int:
        """Offsets behind the start that are done with already."""
        return sum(self._runs.size_of(state) for state in DONE_STATES)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` may have something to do."""
        return self._alarms[0] if self._alarms else None

    def held_by(self, member: str) -> int:
        return sum(run.size for run in self._held_runs(member))

    def runs(self) -> Iterator[StateRun]:
        """Every run of the window, held ones included."""
        for run in self._runs:
            yield StateRun(run.first, run.last, run.state, run.count, run.reason)

    @property
    def archiving_count(self) -> int:
        """Offsets that wait for their dead letters."""
        return sum(self._runs.size_of(state) for state in ARCHIVING_STATES)

    def dead_lettering(self) -> DeadLetter | None:
        """The dead letters that are being written: these, and no others, have to be next."""
        return self._first_dead_letter(RecordState.DEAD_LETTERING)

    def next_dead_letter(self) -> DeadLetter | None:
        """What has to be written to the dead letters after that."""
        return self._first_dead_letter(RecordState.ARCHIVING)

    def _first_dead_letter(self, state: RecordState) -> DeadLetter | None:
        if not self._runs.size_of(state):
            return None
        run = next(each for each in self._runs if each.state is state)
        return DeadLetter(run.first, run.last, run.count, run.reason)

    # Acquiring

    def wants_from(self, now_ms: int, from_offset: int = 0) -> int | None:
        """Where the next record to deliver is, at or after an offset: in the window, or at its end.

        None: nothing can be delivered now, whatever the log holds.
        """
        if self._runs.size_of(RecordState.AVAILABLE):
            for run in self._runs:
                if run.state is not RecordState.AVAILABLE:
                    continue
                if run.due_ms <= now_ms and run.last >= from_offset:
                    return max(run.first, from_offset)
                if self.limits.is_ordered:
                    # Nothing overtakes a message that waits, or that was passed over just now.
                    return None
        end_offset = self.end_offset
        if end_offset - self.start_offset >= self.limits.in_flight_max or from_offset > end_offset:
            return None
        return end_offset

    def take_over(self, owner: str, now_ms: int) -> SharePartitionUpdate:
        """From now on only this member is given anything; what another holds is released."""
        others: list[Run] = []
        if self._owner not in (None, owner):
            others = [run for run in self._held_runs() if run.member != owner]
        self._owner = owner
        reason = "the partition went to another member"
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
        """Give a member what is available of these neighbouring batches, the first ones in the log
        from `from_offset` on. What they do not cover is not in the log any more.

        With `whole_batches` the last batch of new records is given whole, even above records_max.
        """
        if not spans or records_max <= 0 or self._owner not in (None, member):
            return []
        taken: list[Run] = []
        left = records_max
        last_offset = spans[-1].last_offset
        if from_offset < self.end_offset:
            self._archive_gaps(spans, from_offset)
            left = self._take_available(from_offset, last_offset, left, now_ms, taken)
        # In order: nothing new while something older waits for its turn.
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
        return _joined_ranges(acquired)

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
                    self._runs.become(run, RecordState.ACQUIRED)
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
                # Compaction took what was there: nothing is to be delivered, so it is done.
                self._runs.append(self.end_offset, span.first_offset - 1, RecordState.ARCHIVED, 0)
            first = self.end_offset
            if not span.has_records:
                self._runs.append(first, span.last_offset, RecordState.ARCHIVED, 0)
                continue
            self._runs.drop_done()
            room = self.limits.in_flight_max - (first - self.start_offset)
            wanted = span.last_offset - first + 1
            size = min(wanted, room) if whole_batches else min(wanted, room, left)
            if size > 0:
                taken.append(self._runs.append(first, first + size - 1, RecordState.ACQUIRED, 1))
            if size < wanted:
                return
            left -= size

    def _archive_gaps(self, spans: Sequence[Span], from_offset: int) -> None:
        """What is available but not in the log any more is done with."""
        next_offset = from_offset
        for span in spans:
            if span.first_offset > next_offset:
                self._archive_available(next_offset, span.first_offset - 1)
            if not span.has_records:
                self._archive_available(span.first_offset, span.last_offset)
            next_offset = span.last_offset + 1

    def skip_to(self, offset: int) -> SharePartitionUpdate:
        """What is below was deleted by retention, or done elsewhere: it is not delivered any more.
        What is held stays with its holders."""
        if offset <= self.start_offset:
            return self._update([])
        changed = self._archive_available(self.start_offset, offset - 1)
        if offset > self.end_offset:
            unseen = self._runs.append(self.end_offset, offset - 1, RecordState.ARCHIVED, 0)
            changed.append(unseen)
        return self._update(changed)

    def _archive_available(self, first: int, last: int) -> list[Run]:
        gone = self._in_state(first, last, RecordState.AVAILABLE)
        for run in gone:
            self._runs.become(run, RecordState.ARCHIVED)
        return gone

    # Acknowledging

    def acknowledge(
        self, member: str, acknowledgement: Acknowledgement, now_ms: int
    ) -> SharePartitionUpdate:
        """Do what a member says about offsets it holds, all of them or none. Raises InvalidRecordState."""
        runs = self._check_held(member, acknowledgement.first_offset, acknowledgement.last_offset)
        reason = acknowledgement.reason
        match acknowledgement.kind:
            case AckKind.ACCEPT:
                for run in runs:
                    self._runs.become(run, RecordState.ACKNOWLEDGED)
            case AckKind.GAP:
                for run in runs:
                    self._runs.become(run, RecordState.ARCHIVED)
            case AckKind.RELEASE:
                self._release(
                    runs,
                    reason,
                    now_ms,
                    counts=acknowledgement.counts,
                    delay_ms=acknowledgement.delay_ms,
                )
                runs += self._release_followers(acknowledgement.last_offset, now_ms)
            case AckKind.REJECT:
                for run in runs:
                    self._give_up(run, reason or "rejected")
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
        """The member is gone: what it held is available to others at once. One that said goodbye has
        not failed at it, so that this delivery need not count."""
        held = list(self._held_runs(member))
        return self._update(self._release(held, reason, now_ms, delay_ms=0, counts=counts))

    def expire(self, now_ms: int) -> SharePartitionUpdate:
        """Locks whose time is up end. Also called when a backoff is over, which needs nothing done."""
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
            # Its holder works on one record after the other: only the first one can be to blame.
            first = expired[0].first
            expired = self._runs.between(first, first)
            self._release(expired, LOCK_EXPIRED_REASON, now_ms)
            expired += self._release_followers(first, now_ms)
        else:
            self._release(expired, LOCK_EXPIRED_REASON, now_ms)
        return self._update(expired)

    def begin_dead_lettering(self, first: int, last: int) -> SharePartitionUpdate:
        """These dying offsets get their letters now, in one batch, once this is durable."""
        assert self.dead_lettering() is None, "one batch of dead letters at a time"
        archiving = self._in_state(first, last, RecordState.ARCHIVING)
        for run in archiving:
            self._runs.become(run, RecordState.DEAD_LETTERING)
        return self._update(archiving)

    def end_dead_lettering(self, dead_letters: int) -> SharePartitionUpdate:
        """The letters are durable, so many of them."""
        self.dead_letters_written += dead_letters
        archived = self._in_state(self.start_offset, self.end_offset, RecordState.DEAD_LETTERING)
        for run in archived:
            self._runs.become(run, RecordState.ARCHIVED)
        return self._update(archived)

    def _in_state(self, first: int, last: int, state: RecordState) -> list[Run]:
        return [run for run in self._runs.between(first, last) if run.state is state]

    def _check_held(self, member: str, first: int, last: int) -> list[Run]:
        if first > last or first < self.start_offset or last >= self.end_offset:
            raise InvalidRecordState(
                f"offsets {first} to {last} are not held by {member!r}: the window is"
                f" {self.start_offset} to {self.end_offset - 1}"
            )
        index = self._runs.index_of(first)
        while index < len(self._runs) and self._runs[index].first <= last:
            run = self._runs[index]
            if run.state is not RecordState.ACQUIRED or run.member != member:
                raise InvalidRecordState(
                    f"offsets {max(first, run.first)} to {min(last, run.last)} are not held by"
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
        """Back to available, after the given delay or, without one, the policy's backoff."""
        policy = self.limits.redelivery
        for run in runs:
            if counts and policy.is_exhausted(run.count):
                self._give_up(run, exhausted_reason(run.count, reason))
                continue
            self._runs.become(run, RecordState.AVAILABLE)
            run.reason = reason
            run.count -= not counts
            backoff_ms = policy.delay_ms(run.count) if counts else 0
            wait_ms = backoff_ms if delay_ms is None else delay_ms
            run.due_ms = now_ms + wait_ms if wait_ms else 0
            if wait_ms:
                self._set_alarm(run.due_ms)
        return runs

    def _release_followers(self, offset: int, now_ms: int) -> list[Run]:
        """In order: what comes after a failed record comes again after it, and is not to blame."""
        if not self.limits.is_ordered:
            return []
        followers = [run for run in self._held_runs() if run.first > offset]
        return self._release(
            followers, "a record before it failed", now_ms, delay_ms=0, counts=False
        )

    def _give_up(self, run: Run, reason: str) -> None:
        if self.limits.redelivery.dead_letters:
            self._runs.become(run, RecordState.ARCHIVING)
            run.reason = reason
        else:
            self._runs.become(run, RecordState.ARCHIVED)

    def _set_alarm(self, due_ms: int) -> None:
        if due_ms not in self._alarm_set:
            self._alarm_set.add(due_ms)
            heapq.heappush(self._alarms, due_ms)

    def _update(self, changed: list[Run]) -> SharePartitionUpdate:
        """What to write down about these runs, after which nobody may use them any more."""
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


def _joined_ranges(ranges: Sequence[AcquiredRange]) -> list[AcquiredRange]:
    joined: list[AcquiredRange] = []
    for each in ranges:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.last_offset + 1 == each.first_offset
            and last.delivery_count == each.delivery_count
        ):
            joined[-1] = last._replace(last_offset=each.last_offset)
        else:
            joined.append(each)
    return joined

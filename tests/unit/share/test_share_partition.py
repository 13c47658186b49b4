"""Selected cases of a share partition; the property test compares all others with a model."""

import pytest

from zhumq.share.acknowledgement import AckKind, Acknowledgement, AcquiredRange
from zhumq.share.partition_state import (
    RecordState,
    SharePartitionState,
    SharePartitionUpdate,
    StateRun,
)
from zhumq.share.redelivery import RedeliveryPolicy
from zhumq.share.share_partition import (
    InvalidRecordState,
    SharePartition,
    SharePartitionLimits,
    Span,
)

BATCHES = [Span(0, 9), Span(10, 19), Span(20, 29)]


def share_partition(**limits: object) -> SharePartition:
    return SharePartition(SharePartitionState(start_offset=0), SharePartitionLimits(**limits))


def take(
    each: SharePartition, count: int, *, member: str = "ann", now_ms: int = 0, whole: bool = False
) -> list[AcquiredRange]:
    offset = each.next_fetch_offset(now_ms)
    if offset is None:
        return []
    return each.acquire(
        member,
        [span for span in BATCHES if span.last_offset >= offset],
        from_offset=offset,
        records_max=count,
        now_ms=now_ms,
        whole_batches=whole,
    )


def say(kind: AckKind, first: int, last: int) -> Acknowledgement:
    return Acknowledgement(first_offset=first, last_offset=last, kind=kind)


def test_a_batch_is_cut_where_the_credit_ends() -> None:
    each = share_partition()
    assert take(each, 4) == [(0, 3, 1)]
    assert take(each, 4) == [(4, 7, 1)], "the rest of the batch is still there"
    assert take(each, 100) == [(8, 29, 1)]


def test_whole_batches_may_exceed_records_max_but_not_the_in_flight_limit() -> None:
    each = share_partition()
    assert take(each, 4, whole=True) == [(0, 9, 1)]
    assert take(each, 11, whole=True) == [(10, 29, 1)]
    small = share_partition(in_flight_max=7)
    assert take(small, 4, whole=True) == [(0, 6, 1)]


def test_offsets_removed_by_compaction_are_done_and_not_in_flight() -> None:
    each = share_partition(in_flight_max=5)
    spans = [Span(100, 101), Span(102, 102, has_records=False), Span(200, 205)]
    ranges = each.acquire("ann", spans, from_offset=0, records_max=100, now_ms=0)
    assert ranges == [(100, 101, 1), (200, 202, 1)], "the limit counts offsets with records"
    each.acknowledge("ann", say(AckKind.ACCEPT, 100, 101), 0)
    assert each.start_offset == 200
    assert each.acquire("ann", spans, from_offset=203, records_max=9, now_ms=0) == [(203, 204, 1)]


def test_offsets_that_a_filter_excludes_are_counted_and_done_however_many_they_are() -> None:
    each = share_partition(in_flight_max=3)
    excluded = Span(1, 999, has_records=False, is_filtered=True)
    ranges = each.acquire(
        "ann", [Span(0, 0), excluded, Span(1_000, 1_004)], from_offset=0, records_max=9, now_ms=0
    )
    assert ranges == [(0, 0, 1), (1_000, 1_001, 1)]
    assert each.filtered == 999
    each.acknowledge("ann", say(AckKind.ACCEPT, 0, 0), 0)
    assert each.start_offset == 1_000


def test_a_released_message_that_a_new_filter_excludes_is_done() -> None:
    each = share_partition()
    take(each, 2)
    each.release_member("ann", "gone", 0)
    now_excluded = Span(0, 0, has_records=False, is_filtered=True)
    ranges = each.acquire("ann", [now_excluded, Span(1, 9)], from_offset=0, records_max=1, now_ms=0)
    assert ranges == [(1, 1, 2)]
    assert (each.filtered, each.start_offset) == (1, 1)


def test_excluded_offsets_are_one_run_however_often_a_filter_excludes_more() -> None:
    each = share_partition()
    take(each, 1)
    for first in range(1, 1_000, 10):
        spans = [Span(first, first + 9, has_records=False, is_filtered=True)]
        assert each.acquire("ann", spans, from_offset=first, records_max=1, now_ms=0) == []
    assert [(run.first_offset, run.last_offset) for run in each.runs()] == [(0, 0), (1, 1_000)]


def test_the_update_about_excluded_offsets_moves_the_persisted_start_offset() -> None:
    each = share_partition()
    state = SharePartitionState(start_offset=0)
    assert not each.skipped(), "nothing was excluded"
    spans = [Span(0, 9, has_records=False, is_filtered=True)]
    each.acquire("ann", spans, from_offset=0, records_max=1, now_ms=0)
    assert state.updated(each.skipped()).start_offset == 10
    take(each, 1)  # offset 10
    spans = [Span(11, 20, has_records=False, is_filtered=True)]
    each.acquire("ann", spans, from_offset=11, records_max=1, now_ms=0)
    restored = state.updated(each.skipped())
    assert (restored.start_offset, restored.done_count) == (10, 10)


def test_retention_archives_available_records_and_keeps_acquired_ones() -> None:
    each = share_partition()
    take(each, 5)
    take(each, 5, member="bob")
    each.release_member("ann", "gone", 0)
    update = each.skip_to(20)
    assert each.start_offset == 5, "bob has acquired the others"
    assert update.runs[0].state is RecordState.ARCHIVED
    each.acknowledge("bob", say(AckKind.ACCEPT, 5, 9), 0)
    assert each.start_offset == 20


def test_a_message_waits_longer_each_time() -> None:
    each = share_partition(
        redelivery=RedeliveryPolicy(max_deliveries=9, backoff_ms=100, backoff_ms_max=250)
    )
    now_ms, waits = 0, []
    for _ in range(4):
        take(each, 1, now_ms=now_ms)
        each.acknowledge("ann", say(AckKind.RELEASE, 0, 0), now_ms)
        due_ms = next(at for at in range(now_ms, now_ms + 999) if each.next_fetch_offset(at) == 0)
        waits.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits == [100, 200, 250, 250]


def test_a_delay_that_was_asked_for_replaces_the_backoff() -> None:
    each = share_partition(redelivery=RedeliveryPolicy(max_deliveries=9, backoff_ms=100))
    take(each, 2)
    for offset, delay_ms in ((0, 5_000), (1, 0)):
        nack = Acknowledgement(
            first_offset=offset, last_offset=offset, kind=AckKind.RELEASE, delay_ms=delay_ms
        )
        each.acknowledge("ann", nack, 0)
    assert take(each, 1) == [(1, 1, 2)], "no delay: at once"
    assert each.next_fetch_offset(4_999) == 2
    assert each.next_fetch_offset(5_000) == 0
    assert take(each, 1, now_ms=5_000) == [(0, 0, 2)], "and the delivery counts"


def test_without_dead_letters_an_exhausted_message_is_archived() -> None:
    each = share_partition(redelivery=RedeliveryPolicy(max_deliveries=1, dead_letters=False))
    take(each, 2)
    each.acknowledge("ann", say(AckKind.RELEASE, 0, 0), 0)
    each.acknowledge("ann", say(AckKind.REJECT, 1, 1), 0)
    assert each.start_offset == 2
    assert each.archiving_count == 0


def test_only_the_first_delivery_counts_when_an_ordered_lock_expires() -> None:
    each = share_partition(
        is_ordered=True, lock_ms=50, redelivery=RedeliveryPolicy(max_deliveries=2)
    )
    each.take_over("ann", 0)
    for now_ms in (0, 100):
        take(each, 3, now_ms=now_ms)
        each.expire(now_ms + 60)
    dead_letter = each.next_dead_letter()
    assert dead_letter is not None
    assert (dead_letter.first_offset, dead_letter.last_offset) == (0, 0)
    assert take(each, 3, now_ms=300) == [(1, 3, 1)]
    assert each.held_by("ann") == 3


def test_adjacent_offsets_with_equal_state_are_one_run() -> None:
    each = share_partition()
    take(each, 30)
    for offset in (20, 10, 12, 11, 21, 9, 13, 22):
        each.acknowledge("ann", say(AckKind.ACCEPT, offset, offset), 0)
    done = [run for run in each.runs() if run.state is RecordState.ACKNOWLEDGED]
    assert [(run.first_offset, run.last_offset) for run in done] == [(9, 13), (20, 22)]
    assert len(list(each.runs())) == 5


def test_in_order_nothing_overtakes_a_message_that_waits() -> None:
    each = share_partition(is_ordered=True, redelivery=RedeliveryPolicy(backoff_ms=100))
    each.take_over("ann", 0)
    assert take(each, 20) == [(0, 19, 1)]
    each.acknowledge("ann", say(AckKind.RELEASE, 12, 12), 50)
    each.acknowledge("ann", say(AckKind.RELEASE, 2, 2), 0)
    # 2 is due at 100 and 12 at 150. All batches are read at once, then what comes after them.
    assert take(each, 100, now_ms=120) == [(2, 2, 2), (3, 11, 1)]
    assert each.next_fetch_offset(120, 20) is None
    assert each.acquire("ann", [Span(20, 29)], from_offset=20, records_max=5, now_ms=120) == []
    assert take(each, 100, now_ms=150) == [(12, 12, 2), (13, 29, 1)]


def test_one_batch_of_dead_letters_at_a_time_in_the_order_of_the_log() -> None:
    each = share_partition()
    take(each, 30)
    each.acknowledge("ann", say(AckKind.REJECT, 12, 14), 0)
    each.acknowledge("ann", say(AckKind.REJECT, 3, 4), 0)
    dead_letter = each.next_dead_letter()
    assert dead_letter is not None
    assert dead_letter[:2] == (3, 4)
    each.begin_dead_lettering(3, 3)
    assert each.dead_lettering() is not None
    with pytest.raises(AssertionError):
        each.begin_dead_lettering(4, 4)
    update = each.end_dead_lettering(1)
    assert update.dead_letters_written == 1
    assert each.next_dead_letter()[:2] == (4, 4)


def test_a_restored_share_partition_continues_the_dead_letters_in_progress() -> None:
    each = SharePartition(
        SharePartitionState(
            start_offset=0,
            runs=(
                StateRun(2, 3, RecordState.DEAD_LETTERING, 5, "bad"),
                StateRun(6, 6, RecordState.ARCHIVING, 5, "worse"),
                StateRun(8, 8, RecordState.ACKNOWLEDGED, 0),
            ),
            dead_letters_written=4,
        ),
        SharePartitionLimits(),
    )
    assert each.dead_lettering() == (2, 3, 5, "bad")
    assert each.next_dead_letter() == (6, 6, 5, "worse")
    assert take(each, 100) == [(0, 1, 1), (4, 5, 1), (7, 7, 1), (9, 29, 1)]
    assert each.end_dead_lettering(2).dead_letters_written == 6


def test_runs_that_contradict_each_other_do_not_break_a_share_partition() -> None:
    runs = (
        StateRun(0, 5, RecordState.ACKNOWLEDGED, 0),
        StateRun(3, 9, RecordState.AVAILABLE, 2),
        StateRun(4, 6, RecordState.ARCHIVING, 2, "x"),
    )
    each = SharePartition(SharePartitionState(start_offset=2, runs=runs), SharePartitionLimits())
    assert (each.start_offset, each.end_offset) == (6, 10)


def test_merged_updates_equal_updates_one_after_the_other() -> None:
    state = SharePartitionState(start_offset=0)
    first = SharePartitionUpdate(
        start_offset=0,
        runs=(
            StateRun(0, 9, RecordState.AVAILABLE, 1),
            StateRun(20, 22, RecordState.ARCHIVING, 1, "x"),
        ),
    )
    second = SharePartitionUpdate(
        start_offset=3, runs=(StateRun(2, 5, RecordState.ACKNOWLEDGED, 0),), dead_letters_written=2
    )
    assert state.updated(first).updated(second) == state.updated(first.merged_with(second))


def test_a_state_is_truncated_at_the_log_end_offset() -> None:
    state = SharePartitionState(
        start_offset=4,
        runs=(
            StateRun(6, 9, RecordState.ACKNOWLEDGED, 0),
            StateRun(12, 13, RecordState.ARCHIVING, 1),
        ),
    )
    assert state.truncated_at(14) is state
    assert state.truncated_at(8).runs == (StateRun(6, 7, RecordState.ACKNOWLEDGED, 0),)
    assert state.truncated_at(2) == SharePartitionState(start_offset=2)


def test_an_empty_range_or_one_outside_of_the_share_partition_is_refused() -> None:
    each = share_partition()
    take(each, 5)
    for first, last in ((3, 2), (-1, 0), (4, 5), (5, 5)):
        with pytest.raises(InvalidRecordState):
            each.acknowledge("ann", say(AckKind.ACCEPT, first, last), 0)
    assert each.held_by("ann") == 5

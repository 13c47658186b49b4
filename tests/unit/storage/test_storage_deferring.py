"""Logs of topics with delayed messages: what is hidden, offsets, repeats, and a crash between the two batches."""

import tracemalloc

import pytest
from storage_support import LOG_FILE, NOW_MS, open_log, read_batches

from zhumq.model.errors import InvalidRecord, NotEnoughReplicas, OutOfOrderSequenceNumber
from zhumq.records.batch import Record, RecordHeader
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression
from zhumq.records.deferred import DeferredBatch, deferred_in
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.log_slice import Appended
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.storage.validator import AppendOrigin
from zhumq.testing.disk import MemoryDisk

DAY_MS = 24 * 3_600_000
PRODUCER = 5


def delaying_log(disk: MemoryDisk | None = None, **settings: object) -> SegmentedLog:
    log = open_log(disk or MemoryDisk(), delay_max_ms=DAY_MS, **settings)
    log.accepts_deferred = True
    return log


def batch(*delays: int | None, sequence: int = -1, **header: object) -> bytes:
    """A record for each delay; None is not delayed."""
    records = [
        Record(
            timestamp=NOW_MS,
            key=b"k",
            value=b"%d" % number,
            headers=() if delay is None else (RecordHeader("zhumq-delay-ms", b"%d" % delay),),
        )
        for number, delay in enumerate(delays)
    ]
    if sequence >= 0:
        header |= {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}
    return build_batch(records, **header)  # type: ignore[arg-type]


def append(log: SegmentedLog, data: bytes, *, now_ms: int = NOW_MS) -> Appended:
    return log.append(data, leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.PLAIN_CLIENT)


def visible(log: SegmentedLog) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for each in read_batches(log)
        if not each.header.is_control
        for record in each.records()
    ]


def deferred(log: SegmentedLog) -> list[DeferredBatch]:
    found = [deferred_in(each) for each in read_batches(log)]
    return [each for each in found if each is not None]


def staged(log: SegmentedLog) -> list[tuple[int, int, bytes | None]]:
    """Offset, delay and value of the records that would be staged: those whose companion is there."""
    found: list[tuple[int, int, bytes | None]] = []
    written = read_batches(log)
    for each, following in zip(written, [*written[1:], None], strict=True):
        hidden = deferred_in(each)
        if hidden is None:
            continue
        if hidden.needs_companion and (
            following is None or not hidden.has_companion(following.header)
        ):
            continue
        found += [
            (record.offset, record.due_ms - NOW_MS, record.record.value)
            for record in hidden.records()
        ]
    return found


@pytest.mark.parametrize("compression", list(Compression))
def test_delayed_records_are_hidden_and_the_others_keep_their_offsets(
    compression: Compression,
) -> None:
    log = delaying_log()
    assert append(log, batch(None, None)).base_offset == 0
    mixed = append(log, batch(None, 50, None, 70, compression=compression))
    assert (mixed.base_offset, mixed.last_offset) == (3, 6)
    alone = append(log, batch(10, 20, compression=compression))
    assert (alone.base_offset, alone.last_offset) == (7, 8)
    assert log.log_end_offset == 9
    assert visible(log) == [(0, b"0"), (1, b"1"), (3, b"0"), (5, b"2")]
    assert staged(log) == [(4, 50, b"1"), (6, 70, b"3"), (7, 10, b"0"), (8, 20, b"1")]


def test_a_repeat_of_an_idempotent_producer_is_recognised() -> None:
    disk = MemoryDisk()
    log = delaying_log(disk)
    sent = [batch(5, 6, sequence=0), batch(None, 7, sequence=2), batch(None, sequence=4)]
    first = [append(log, each) for each in sent]
    end = log.log_end_offset

    def check_repeats() -> None:
        for data, before in zip(sent, first, strict=True):
            # Also when it would be due by now.
            again = append(log, data, now_ms=NOW_MS + DAY_MS)
            assert (again.duplicate, again.base_offset) == (True, before.base_offset)
        assert log.log_end_offset == end
        with pytest.raises(OutOfOrderSequenceNumber):
            append(log, batch(9, sequence=77))

    check_repeats()
    log.close()
    log = delaying_log(disk)
    check_repeats()
    assert append(log, batch(8, sequence=5)).base_offset == end


def test_a_crash_between_the_two_batches_counts_as_no_append() -> None:
    disk = MemoryDisk()
    log = delaying_log(disk)
    data = batch(None, 50, sequence=0)
    append(log, data)
    (hidden, _) = read_batches(log)
    log.close(clean=False)
    file = disk.open_file(LOG_FILE)
    file.truncate(hidden.header.size)
    log = delaying_log(disk)
    assert staged(log) == []
    repeated = append(log, data)
    assert not repeated.duplicate
    assert staged(log) == [(repeated.base_offset + 1, 50, b"1")]
    assert visible(log) == [(repeated.base_offset, b"0")]


def test_wrong_headers_refuse_the_batch_and_name_the_records() -> None:
    log = delaying_log()
    with pytest.raises(InvalidRecord, match="at most 86400000 ms") as refused:
        append(log, batch(None, DAY_MS + 1, 5))
    assert refused.value.record_indexes == (1,)
    with pytest.raises(InvalidRecord, match="one batch for each partition"):
        append(log, batch(5) + batch(None))
    with pytest.raises(InvalidRecord, match="one batch for each partition"):
        append(log, batch(None) + batch(5))
    assert log.log_end_offset == 0


def test_delays_are_refused_in_transactions_and_until_the_coordinator_is_ready() -> None:
    log = delaying_log()
    log.producer_state.allow_transaction(PRODUCER, 0, log.producer_state.verification(PRODUCER))
    data = batch(5, sequence=0, is_transactional=True)
    with pytest.raises(InvalidRecord, match="cannot be delayed: send it without one"):
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.CLIENT)
    # The broker's own move of the message is one.
    moved = log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.MOVER)
    assert moved.base_offset == 0
    log.accepts_deferred = False
    with pytest.raises(NotEnoughReplicas, match="not ready"):
        append(log, batch(5))
    assert append(log, batch(None)).base_offset == 1


def test_a_run_of_requests_is_taken_one_by_one() -> None:
    log = delaying_log()
    sent = [memoryview(batch(5)), memoryview(batch(None)), memoryview(batch(DAY_MS + 1))]
    for place, data in enumerate(sent[:2]):
        run = log.append_each([data, *sent], leader_epoch=0, now_ms=NOW_MS)
        assert isinstance(run.last, Appended)
        assert (run.last.base_offset, run.base_offsets) == (place, [])
    run = log.append_each(sent[2:], leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(run.last, InvalidRecord)


def test_without_the_setting_the_headers_mean_nothing() -> None:
    log = open_log(MemoryDisk())
    append(log, batch(5, DAY_MS * 100))
    assert len(visible(log)) == 2
    log.update_config(delaying_log().config)
    log.accepts_deferred = True
    append(log, batch(5))
    assert len(visible(log)) == 2
    log.update_config(open_log(MemoryDisk()).config)
    append(log, batch(5))
    assert len(visible(log)) == 3


def test_a_compacted_topic_keeps_what_is_deferred() -> None:
    policy = frozenset({CleanupPolicy.COMPACT})
    log = delaying_log(cleanup_policy=policy)
    append(log, batch(5, None))
    assert staged(log) == [(1, 5, b"0")]
    assert visible(log) == [(2, b"1")]


def test_a_batch_of_delayed_records_is_not_in_memory_as_a_list_of_them() -> None:
    """The list took several times as much as its bytes, for each partition, and left holes in the heap."""
    log = delaying_log()
    data = batch(*[DAY_MS] * 4_000)
    append(log, data)
    tracemalloc.start()
    try:
        append(log, data)
        appended_bytes = tracemalloc.get_traced_memory()[1]
        written = read_batches(log)[-1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        hidden = deferred_in(written)
        assert hidden is not None
        assert sum(1 for _ in hidden.records()) == 4_000
        staged_bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # Copies of the batch while it is rewritten, and the due times; of its records one at a time.
    assert appended_bytes < 15 * len(data)
    assert staged_bytes < 4 * len(data)

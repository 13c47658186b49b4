"""Idempotent producers: duplicates, sequence gaps, fenced epochs, and snapshots."""

import pytest
from storage_support import NOW_MS, append, make_batch, open_log

from zhumq.model.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber
from zhumq.records.batch import BatchHeader, Record, decode_header
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType
from zhumq.storage.producer_snapshot import SnapshotCorrupt, decode_snapshot, encode_snapshot
from zhumq.storage.producer_state import ProducerState
from zhumq.testing.disk import MemoryDisk

SEQUENCE_MAX = 2**31 - 1


def header(
    sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 1, transactional: bool = False
) -> BatchHeader:
    return decode_header(
        build_batch(
            [Record(timestamp=NOW_MS)] * count,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def state_after(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    offset = 0
    for each in headers:
        state.allow_transaction(
            each.producer_id, each.producer_epoch, state.verification(each.producer_id)
        )
        assert state.check(each) is None
        state.update(each, offset)
        offset += each.records_count
    return state


def test_batches_must_follow_each_other() -> None:
    state = state_after(header(0, count=3))
    assert state.check(header(3)) is None
    for sequence in (1, 2, 4, 100):
        with pytest.raises(OutOfOrderSequenceNumber):
            state.check(header(sequence))


def test_the_last_five_batches_are_recognised_when_they_come_again() -> None:
    headers = [header(2 * place, count=2) for place in range(7)]
    state = state_after(*headers)
    for place, each in enumerate(headers):
        if place < 2:
            with pytest.raises(OutOfOrderSequenceNumber):
                state.check(each)
        else:
            written = state.check(each)
            assert written is not None
            assert (written.base_offset, written.last_offset) == (2 * place, 2 * place + 1)


def test_a_batch_that_only_overlaps_an_old_one_is_no_duplicate() -> None:
    state = state_after(header(0, count=2), header(2, count=2))
    for each in (header(0, count=1), header(0, count=4), header(1, count=1)):
        with pytest.raises(OutOfOrderSequenceNumber):
            state.check(each)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState().check(header(1234)) is None


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    state = state_after(header(0), header(1))
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check(header(2, epoch=1))
    assert state.check(header(0, epoch=1)) is None


def test_an_old_epoch_is_refused() -> None:
    state = state_after(header(0, epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        state.check(header(1, epoch=3))


def test_sequences_wrap_after_two_to_the_31() -> None:
    state = state_after(header(SEQUENCE_MAX - 1, count=3))
    assert state.producers[1].next_sequence == 1
    assert state.check(header(1)) is None
    again = state.check(header(SEQUENCE_MAX - 1, count=3))
    assert again is not None
    assert again.first_sequence == SEQUENCE_MAX - 1


def test_several_batches_of_one_append_are_checked_together() -> None:
    state = state_after(header(0))
    state.check_all([header(1), header(2, count=2), header(4), header(7, producer=9)])
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check_all([header(1), header(3)])
    assert state.producers[1].next_sequence == 1


def test_silent_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    state = state_after(header(0), header(0, producer=2, transactional=True))
    state.date_by_records()
    assert state.expire(NOW_MS + 999, 1000) == 0
    assert state.expire(NOW_MS + 1000, 1000) == 1
    assert list(state.producers) == [2]


def test_a_producer_that_writes_is_kept_however_old_its_records_are() -> None:
    """Otherwise a batch that is sent again after a pass of retention would be written twice."""
    state = state_after(header(0))
    day_later_ms = NOW_MS + 24 * 3_600_000
    assert state.expire(day_later_ms, 1000) == 0
    assert state.expire(day_later_ms + 999, 1000) == 0
    state.update(header(1), 1)
    assert state.expire(day_later_ms + 1000, 1000) == 0
    assert state.expire(day_later_ms + 1999, 1000) == 0
    assert state.expire(day_later_ms + 2000, 1000) == 1


def test_a_marker_counts_as_writing() -> None:
    state = state_after(header(0, transactional=True))
    assert state.expire(NOW_MS + 5000, 1000) == 0
    marker = EndMarker(marker_type=MarkerType.COMMIT, coordinator_epoch=7)
    state.end_transaction(header(-1), marker, 1)
    assert state.expire(NOW_MS + 9000, 1000) == 0
    assert state.expire(NOW_MS + 10_000, 1000) == 1


def test_a_producer_with_records_of_the_future_is_forgotten_all_the_same() -> None:
    state = state_after(header(0))
    state.date_by_records()
    before_ms = NOW_MS - 500_000
    assert state.expire(before_ms, 1000) == 0
    assert state.expire(before_ms + 999, 1000) == 0
    assert state.expire(before_ms + 1000, 1000) == 1


def test_a_transaction_is_open_until_its_marker() -> None:
    log = open_log(MemoryDisk())
    append(log, b"outside")
    ids = {"producer_id": 3, "producer_epoch": 0}
    log.producer_state.allow_transaction(3, 0, log.producer_state.verification(3))
    append(log, b"inside", base_sequence=0, is_transactional=True, **ids)
    append(log, b"inside", base_sequence=1, is_transactional=True, **ids)
    assert log.producer_state.first_undecided_offset == 1
    with pytest.raises(InvalidTxnState):
        append(log, b"outside", base_sequence=2, **ids)
    marker = EndMarker(marker_type=MarkerType.COMMIT, coordinator_epoch=7)
    log.append_marker(marker, transaction_version=0, leader_epoch=0, now_ms=NOW_MS, **ids)
    assert log.producer_state.first_undecided_offset is None
    assert log.producer_state.producers[3].coordinator_epoch == 7
    log.producer_state.allow_transaction(3, 0, log.producer_state.verification(3))
    assert append(log, b"next", base_sequence=2, is_transactional=True, **ids) == 4
    assert log.producer_state.first_undecided_offset == 4


def test_a_snapshot_remembers_everything() -> None:
    state = state_after(
        *[header(place) for place in range(7)],
        header(5, producer=2, epoch=3, transactional=True),
    )
    restored = decode_snapshot(encode_snapshot(state))
    assert restored == state
    assert restored.first_undecided_offset == 7
    assert decode_snapshot(encode_snapshot(ProducerState())) == ProducerState()


def test_a_damaged_snapshot_is_recognised() -> None:
    data = encode_snapshot(state_after(header(0), header(1)))
    for size in range(len(data)):
        with pytest.raises(SnapshotCorrupt):
            decode_snapshot(data[:size])
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x20
        with pytest.raises(SnapshotCorrupt):
            decode_snapshot(bytes(broken))


def test_duplicates_are_recognised_across_a_restart() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for sequence in range(5):
        append(log, b"x", producer_id=1, producer_epoch=0, base_sequence=sequence)
    for clean in (True, False):
        log.close(clean=clean)
        log = open_log(disk, clean_shutdown=clean, recovery_point=5)
        for sequence in range(5):
            batch = make_batch(b"x", producer_id=1, producer_epoch=0, base_sequence=sequence)
            again = log.append(batch, leader_epoch=0, now_ms=NOW_MS)
            assert (again.duplicate, again.base_offset) == (True, sequence)

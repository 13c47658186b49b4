"""Which batches of a fetched buffer a reader sees."""

import pytest

pytest.importorskip("pyarrow")

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType, encode_end_marker
from zhumq.records.sections import AbortedTransactions, whole_batches


def data_batch(offset: int, *, producer: int = -1) -> bytes:
    return build_batch(
        [Record(value=b"x")],
        base_offset=offset,
        producer_id=producer,
        is_transactional=producer >= 0,
    )


def marker(offset: int, producer: int, kind: MarkerType) -> bytes:
    record = encode_end_marker(EndMarker(marker_type=kind, coordinator_epoch=0), timestamp=1)
    return build_batch(
        [record],
        base_offset=offset,
        producer_id=producer,
        is_transactional=True,
        is_control=True,
    )


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    data = data_batch(0) + data_batch(1)
    for cut in range(1, len(data) // 2):
        assert [each.header.base_offset for each in whole_batches(data[:-cut])] == [0]


def test_a_wrong_checksum_is_found() -> None:
    data = bytearray(data_batch(5))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage, match="batch at 5 has a wrong checksum"):
        list(whole_batches(bytes(data)))


def test_another_format_is_refused_by_its_number() -> None:
    data = bytearray(data_batch(5))
    data[16] = 1
    with pytest.raises(CorruptMessage, match="format 1"):
        list(whole_batches(bytes(data)))


def test_an_impossible_length_is_refused() -> None:
    data = bytearray(data_batch(5))
    data[8:12] = (3).to_bytes(4, "big")
    with pytest.raises(CorruptMessage, match="is damaged: length 3, last offset"):
        list(whole_batches(bytes(data)))


def test_aborted_transactions_and_control_batches_are_hidden() -> None:
    log = (
        data_batch(0, producer=7)
        + data_batch(1, producer=8)
        + marker(2, 7, MarkerType.ABORT)
        + data_batch(3, producer=7)
        + marker(4, 8, MarkerType.COMMIT)
        + marker(5, 7, MarkerType.COMMIT)
        + data_batch(6)
    )
    aborted = AbortedTransactions([(7, 0)])
    visible = [each.header.base_offset for each in batches(log) if not aborted.hides(each)]
    assert visible == [1, 3, 6]


def test_without_aborted_transactions_only_control_batches_are_hidden() -> None:
    log = data_batch(0, producer=7) + marker(1, 7, MarkerType.ABORT) + data_batch(2)
    nothing = AbortedTransactions(())
    assert [each.header.base_offset for each in batches(log) if not nothing.hides(each)] == [0, 2]

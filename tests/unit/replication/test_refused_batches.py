"""Batches after a refused batch are held back until the refused one is written."""

from zhumq.records.batch import Record, decode_header
from zhumq.records.builder import build_batch
from zhumq.replication.refused_batches import PRODUCERS_MAX, REMEMBERED_MS, RefusedBatches
from zhumq.storage.producer_state import ProducerState

NOW_MS = 1_000


def numbered(sequence: int, *, producer_id: int = 1, epoch: int = 0) -> bytes:
    return build_batch(
        [Record(timestamp=NOW_MS, key=None, value=b"v")],
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def state(*written: bytes) -> ProducerState:
    result = ProducerState()
    for offset, batch in enumerate(written):
        result.update(decode_header(batch), offset)
    return result


def refused(*batches: bytes) -> RefusedBatches:
    result = RefusedBatches()
    for batch in batches:
        result.add(batch, NOW_MS)
    return result


def test_the_batch_after_a_refused_one_is_held_back() -> None:
    memory = refused(numbered(5))
    producers = state(numbered(4)).producers
    assert memory.holds_back(numbered(6), producers)
    assert not memory.holds_back(numbered(5), producers)


def test_no_batch_is_held_back_once_the_refused_one_is_written() -> None:
    memory = refused(numbered(5), numbered(6))
    assert memory.holds_back(numbered(6), state(numbered(4)).producers)
    assert not memory.holds_back(numbered(6), state(numbered(4), numbered(5)).producers)
    assert memory
    written = state(numbered(4), numbered(5), numbered(6)).producers
    assert not memory.holds_back(numbered(7), written)
    assert not memory


def test_a_producer_whose_first_batch_was_refused_does_not_begin_with_its_second() -> None:
    memory = refused(numbered(0))
    assert memory.holds_back(numbered(1), state().producers)
    assert not memory.holds_back(numbered(0), state().producers)


def test_a_duplicate_of_a_written_batch_is_not_held_back() -> None:
    memory = refused(numbered(5))
    assert not memory.holds_back(numbered(4), state(numbered(4)).producers)


def test_producers_do_not_wait_for_each_other() -> None:
    memory = refused(numbered(5, producer_id=1))
    assert not memory.holds_back(numbered(6, producer_id=2), state().producers)


def test_a_newer_producer_epoch_clears_the_memory() -> None:
    memory = refused(numbered(5))
    assert not memory.holds_back(numbered(6, epoch=1), state().producers)
    assert not memory


def test_batches_without_sequence_numbers_are_not_remembered() -> None:
    assert not refused(numbered(-1, producer_id=-1), b"", b"no batch")


def test_a_batch_that_is_not_sent_again_is_forgotten_after_a_while() -> None:
    memory = refused(numbered(5))
    assert memory.any_left(NOW_MS + REMEMBERED_MS - 1)
    assert not memory.any_left(NOW_MS + REMEMBERED_MS)


def test_the_memory_is_bounded() -> None:
    memory = RefusedBatches()
    for producer_id in range(PRODUCERS_MAX + 10):
        memory.add(numbered(5, producer_id=producer_id), NOW_MS)
    assert not memory.holds_back(numbered(6, producer_id=0), state().producers)
    assert memory.holds_back(numbered(6, producer_id=PRODUCERS_MAX), state().producers)
    for sequence in range(1_000):
        memory.add(numbered(sequence, producer_id=PRODUCERS_MAX), NOW_MS)
    assert memory.holds_back(numbered(1_001, producer_id=PRODUCERS_MAX), state().producers)

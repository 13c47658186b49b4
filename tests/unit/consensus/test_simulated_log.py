"""The simulated log loses what a disk may lose, and nothing else."""

import pytest
from simulation.simulated_log import Entry, SimulatedLog


def log_of(*epochs: int, flushed: int) -> SimulatedLog:
    log = SimulatedLog()
    for number, epoch in enumerate(epochs):
        if number == flushed:
            log.flush(log.begin_flush())
        log.append(Entry(epoch, 7, number))
    if flushed == len(epochs):
        log.flush(log.begin_flush())
    return log


@pytest.mark.parametrize("keep", [0, 2, 3, 4, 99])
def test_a_crash_keeps_everything_flushed_and_a_beginning_of_the_rest(keep: int) -> None:
    log = log_of(1, 1, 1, 1, flushed=2)
    log.crash(keep)
    assert log.log_end_offset == min(max(keep, 2), 4)
    assert log.flushed_offset == log.log_end_offset


def test_a_truncation_that_was_not_flushed_may_be_undone_by_a_crash() -> None:
    log = log_of(1, 1, 1, flushed=3)
    log.truncate_to(1)
    log.append(Entry(2, -1, -1))
    log.crash(1, undo_cut=True)
    assert [each.epoch for each in log.read_all(0, 9)] == [1, 1, 1]


def test_a_flushed_truncation_stays() -> None:
    log = log_of(1, 1, 1, flushed=3)
    log.truncate_to(1)
    log.append(Entry(2, -1, -1))
    log.flush(log.begin_flush())
    log.crash(0, undo_cut=True)
    assert [each.epoch for each in log.read_all(0, 9)] == [1, 2]


def test_a_flush_that_began_before_a_truncation_does_not_cover_what_came_after() -> None:
    log = log_of(1, 1, 1, flushed=0)
    end = log.begin_flush()
    log.truncate_to(1)
    log.append(Entry(2, -1, -1))
    log.append(Entry(2, -1, -2))
    log.flush(end)
    assert log.flushed_offset == 1


def test_sequences_follow_truncations() -> None:
    log = log_of(1, 1, 1, flushed=3)
    assert (log.next_sequence(7), log.written_at(7, 2)) == (3, 2)
    log.truncate_to(1)
    assert (log.next_sequence(7), log.written_at(7, 2)) == (1, None)
    assert log.written_at(7, 0) == 0


def test_epochs_are_found_by_offset_and_by_end() -> None:
    log = log_of(1, 1, 3, 3, flushed=4)
    assert [log.epoch_of(each) for each in range(4)] == [1, 1, 3, 3]
    assert log.end_offset_for_epoch(2) == (1, 2)
    assert log.end_offset_for_epoch(3) == (3, 4)
    assert log.end_offset_for_epoch(4) == (-1, -1)


def test_what_is_damaged_cannot_be_read_but_is_still_there() -> None:
    log = log_of(1, 1, 1, flushed=3)
    log.damaged_from = 1
    assert len(log.read(0, 9)) == 1
    assert log.log_end_offset == 3
    log.truncate_to(1)
    assert log.damaged_from is None

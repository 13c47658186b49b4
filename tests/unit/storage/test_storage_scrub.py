"""The scrub: rate-limited, resumable, and it finds damage while the broker runs."""

import pytest
from storage_support import append
from test_storage_damage import (
    COMPACTED,
    COUNT,
    PARTITION,
    PLAIN,
    open_log,
    open_manager,
    read_all,
    write_log,
)
from tests.manual_time import ManualClock

from zhumq.model.errors import CorruptMessage
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.scrub import Scrubber

DAY_MS = 86_400_000


def scrubber_of(
    manager: LogManager, *, bytes_per_second: int = 1 << 20, clock: ManualClock | None = None
) -> Scrubber:
    return Scrubber(
        manager,
        clock or ManualClock(),
        bytes_per_second=bytes_per_second,
        interval_ms=DAY_MS,
    )


def turn(scrubber: Scrubber) -> bool:
    if not scrubber.begin():
        return False
    scrubber.read()
    scrubber.finish()
    return True


@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
@pytest.mark.parametrize("byte", [3, 7, 14, 15, 40, 70], ids=lambda byte: f"byte-{byte}")
def test_what_changes_under_a_running_broker_is_found_and_refused(
    config: LogConfig, byte: int
) -> None:
    disk, truth = write_log(config)
    manager = open_manager(disk, config)
    log = open_log(manager, config)
    assert read_all(log)[0] == truth  # All of it is verified, so reads do not verify it again.
    reported: list[int] = []
    log.on_damage = reported.append
    segment = log.segments.all[1]
    disk.files[segment.paths[0]].content[byte] ^= 1
    scrubber = scrubber_of(manager)
    assert turn(scrubber)
    assert scrubber.segments_damaged == 1
    assert len(reported) == 1
    records, refused = read_all(log)
    assert records.items() <= truth.items()
    assert sum(map(len, refused)) > 0
    with pytest.raises(CorruptMessage):
        log.read(reported[0], max_bytes=1, up_to_offset=COUNT)


def test_a_segment_that_is_cut_under_a_running_broker_is_found() -> None:
    disk, truth = write_log(PLAIN)
    manager = open_manager(disk, PLAIN)
    log = open_log(manager, PLAIN)
    path = log.segments.all[0].paths[0]
    del disk.files[path].content[len(disk.files[path].content) // 2 :]
    scrubber = scrubber_of(manager)
    assert turn(scrubber)
    assert scrubber.segments_damaged == 1
    records, _ = read_all(log)
    assert records.items() < truth.items()


def test_a_turn_reads_as_much_as_the_rate_allows_and_a_pass_everything_once() -> None:
    disk, _ = write_log(PLAIN)
    manager = open_manager(disk, PLAIN)
    log = open_log(manager, PLAIN)
    clock = ManualClock()
    scrubber = scrubber_of(manager, bytes_per_second=200, clock=clock)
    turns = 0
    while turn(scrubber):
        turns += 1
        assert scrubber.bytes_read <= turns * 300  # Only whole batches are read.
    assert scrubber.bytes_read == log.size_bytes
    assert (scrubber.passes, scrubber.segments_damaged) == (1, 0)
    assert scrubber.segments_read == len(log.segments)
    assert not turn(scrubber)
    clock.ms += DAY_MS
    assert turn(scrubber)


def test_after_a_restart_it_goes_on_where_it_was() -> None:
    disk, _ = write_log(PLAIN)
    manager = open_manager(disk, PLAIN)
    log = open_log(manager, PLAIN)
    first = scrubber_of(manager, bytes_per_second=log.segments.all[0].size)
    assert turn(first)
    manager.close()
    manager = open_manager(disk, PLAIN)
    again = scrubber_of(manager)
    while turn(again):
        pass
    assert first.segments_read + again.segments_read == len(open_log(manager, PLAIN).segments)


def test_what_is_written_and_cut_meanwhile_is_not_taken_for_damage() -> None:
    disk, _ = write_log(PLAIN)
    manager = open_manager(disk, PLAIN)
    log = open_log(manager, PLAIN)
    scrubber = scrubber_of(manager)
    assert scrubber.begin()
    log.truncate_to(7)
    for place in range(10):
        append(log, b"other %d" % place, leader_epoch=6)
    scrubber.read()
    scrubber.finish()
    assert scrubber.segments_damaged == 0
    assert log.corrupt_ranges == ()
    assert manager.logs[PARTITION] is log

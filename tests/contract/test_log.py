"""The contract of a log: every layout on disk passes it, and so does the log in memory of other tests."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.log_layouts import LAYOUTS, SEGMENT_BYTES, Layout
from tests.contract.memory_log import MemoryLog
from tests.unit.storage.storage_support import NOW_MS, PARTITION, append, make_batch, read_values

from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    DiskFull,
    InvalidProducerEpoch,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    StorageFailed,
)
from zhumq.records.batch import HEADER, BatchHeader, RecordBatch, TimestampType, batches, records
from zhumq.records.builder import rebuild_batch
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.log import Log
from zhumq.storage.log_config import CleanupPolicy, LogConfig
from zhumq.storage.log_slice import Appended, AppendedRun

CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)
ALL_BYTES = 1 << 20
SEED = 20_261_117
RANDOM_STEPS = 400


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    return LAYOUTS[request.param](tmp_path)


@pytest.fixture
def log(layout: Layout) -> Log:
    return layout.open(CONFIG)


def numbered(sequence: int, *values: bytes, producer_epoch: int = 0) -> bytes:
    """A batch of an idempotent producer."""
    return make_batch(*values, producer_id=7, producer_epoch=producer_epoch, base_sequence=sequence)


def read_from(log: Log, offset: int, **limits: Any) -> list[RecordBatch]:
    """The batches of one read."""
    limits = {"max_bytes": ALL_BYTES, "up_to_offset": log.log_end_offset, **limits}
    return list(batches(log.read(offset, **limits).read_bytes()))


def all_bytes(log: Log) -> bytes:
    """All batches, as a follower fetches them."""
    offset, parts = log.log_start_offset, []
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=ALL_BYTES, up_to_offset=log.log_end_offset)
        assert part.next_offset > offset
        parts.append(part.read_bytes())
        offset = part.next_offset
    return b"".join(parts)


def begin_flush(log: Log) -> FlushTicket:
    ticket = log.begin_flush()
    assert ticket is not None
    return ticket


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.run()
        log.finish_flush(ticket)


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.log_start_offset, log.flushed_offset, log.log_end_offset) == (0, 0, 0)
    assert log.topic_partition == PARTITION
    assert (log.size_bytes, log.failure, log.corrupt_ranges, log.suspect_offset) == (
        0,
        None,
        (),
        None,
    )
    assert read_from(log, 0) == []
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None
    assert (log.epoch_of(0), log.end_offset_for_epoch(0)) == (-1, (-1, -1))
    assert log.producer_state.producers == {}


def test_a_log_can_be_made_known_before_anything_is_written(layout: Layout) -> None:
    log = layout.open(CONFIG)
    for _ in range(2):
        log.make_files()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert append(layout.crash(), b"a") == 0


# Appending


def test_bytes_that_were_written_count_also_when_they_are_gone(layout: Layout, log: Log) -> None:
    append(log, b"a")
    written = log.bytes_written
    assert written == log.size_bytes
    append(log, b"b")
    log.truncate_to(1)
    assert (log.size_bytes, log.bytes_written) == (written, 2 * written)
    assert layout.crash().bytes_written == 0


def test_the_log_assigns_offsets_and_epochs_whatever_the_producer_wrote(log: Log) -> None:
    assert append(log, b"a", b"b", base_offset=17, leader_epoch=4) == 0
    assert append(log, b"c", base_offset=0, partition_leader_epoch=9, leader_epoch=4) == 2
    assert log.log_end_offset == 3
    assert log.size_bytes == len(all_bytes(log))
    found = list(batches(all_bytes(log)))
    assert [batch.header.base_offset for batch in found] == [0, 2]
    assert {batch.header.partition_leader_epoch for batch in found} == {4}
    assert all(batch.crc_matches for batch in found)
    assert read_values(log) == [b"a", b"b", b"c"]


def test_several_batches_of_one_append_go_in_together(log: Log) -> None:
    data = make_batch(b"a") + make_batch(b"b", b"c")
    appended = log.append(data, leader_epoch=0, now_ms=NOW_MS)
    assert appended == (0, 2, -1, 0, False)
    assert read_values(log) == [b"a", b"b", b"c"]


def test_one_bad_batch_of_an_append_keeps_all_of_it_out(log: Log) -> None:
    bad = bytearray(make_batch(b"bad"))
    bad[-1] ^= 1
    for data in (bytes(bad), make_batch(b"good") + bytes(bad), b"", bytes(30)):
        with pytest.raises(BrokerError):
            log.append(data, leader_epoch=0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size_bytes, log.failure) == (0, 0, None)


def test_the_log_stamps_its_own_time_if_the_topic_requires_it(layout: Layout) -> None:
    log = layout.open(LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    data = make_batch(b"a", b"b", timestamp=5)
    assert log.append(data, leader_epoch=0, now_ms=NOW_MS).log_append_time_ms == NOW_MS
    (stored,) = read_from(log, 0)
    assert stored.crc_matches
    assert [record.timestamp for record in stored.records()] == [NOW_MS, NOW_MS]
    run = log.append_each([memoryview(data)], leader_epoch=0, now_ms=NOW_MS + 1)
    assert (run.base_offsets, run.log_append_time_ms) == ([2], NOW_MS + 1)
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS, 0, 0)


def test_new_settings_count_from_the_next_append_on(log: Log) -> None:
    append(log, b"x" * 200)
    log.update_config(LogConfig(max_message_bytes=150))
    assert log.config.max_message_bytes == 150
    with pytest.raises(BrokerError):
        append(log, b"x" * 200)


def test_a_repeated_batch_is_answered_with_its_first_offsets(log: Log) -> None:
    append(log, b"other")
    first = log.append(numbered(0, b"a", b"b"), leader_epoch=0, now_ms=NOW_MS)
    append(log, b"other")
    again = log.append(numbered(0, b"a", b"b"), leader_epoch=0, now_ms=NOW_MS)
    assert (first.base_offset, first.last_offset, first.duplicate) == (1, 2, False)
    assert (again.base_offset, again.last_offset, again.duplicate) == (1, 2, True)
    assert log.log_end_offset == 4


def test_a_batch_that_does_not_follow_its_producers_last_one_is_refused(log: Log) -> None:
    log.append(numbered(0, b"a", producer_epoch=1), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append(numbered(2, b"c", producer_epoch=1), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(InvalidProducerEpoch):
        log.append(numbered(1, b"b", producer_epoch=0), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 1
    assert log.producer_state.producers[7].next_sequence == 1


@pytest.mark.parametrize("form", [bytes, memoryview])
def test_batches_of_several_clients_go_in_with_one_write(
    log: Log, form: Callable[[bytes], bytes | memoryview]
) -> None:
    append(log, b"before")
    data = [make_batch(b"a", b"b"), numbered(0, b"c"), numbered(1, b"d")]
    run = log.append_each([form(each) for each in data], leader_epoch=3, now_ms=NOW_MS)
    assert run == AppendedRun([1, 3, 4], -1, 0, sum(map(len, data)), None)
    assert read_values(log, 1) == [b"a", b"b", b"c", b"d"]
    for offset, values in ((2, [b"a", b"b", b"c", b"d"]), (3, [b"c", b"d"]), (4, [b"d"])):
        assert read_values(log, offset) == values
    assert (log.epoch_of(0), log.epoch_of(1)) == (0, 3)
    assert log.producer_state.producers[7].next_sequence == 2


def test_a_run_ends_behind_the_request_that_needs_an_answer_of_its_own(log: Log) -> None:
    log.append(numbered(0, b"a"), leader_epoch=0, now_ms=NOW_MS)
    bad = bytearray(make_batch(b"bad"))
    bad[-1] ^= 1
    good = make_batch(b"good")
    for odd, outcome in (
        (bytes(bad), CorruptMessage),
        (numbered(0, b"a"), Appended),
        (numbered(5, b"f"), OutOfOrderSequenceNumber),
    ):
        end = log.log_end_offset
        views = [memoryview(each) for each in (good, odd, good)]
        run = log.append_each(views, leader_epoch=0, now_ms=NOW_MS)
        assert (run.base_offsets, run.size) == ([end], len(good))
        assert isinstance(run.last, outcome)
        assert log.log_end_offset == end + 1
    views = [memoryview(each) for each in (good, good * 2, good)]
    run = log.append_each(views, leader_epoch=0, now_ms=NOW_MS)
    assert run == AppendedRun([4], -1, 0, 3 * len(good), Appended(5, 6, -1, 0, duplicate=False))
    assert log.log_end_offset == 7


# Reading


def test_a_read_gives_whole_batches_within_its_limits(log: Log) -> None:
    draw = random.Random(SEED)
    spans = []
    for number in range(60):
        count = draw.randint(1, 4)
        base_offset = append(log, *(b"%d" % number * draw.randint(1, 40) for _ in range(count)))
        spans.append((base_offset, base_offset + count))
    end = log.log_end_offset
    for _ in range(RANDOM_STEPS):
        offset = draw.randint(0, end)
        up_to = draw.randint(0, end)
        max_bytes = draw.choice([1, 100, 300, ALL_BYTES])
        at_least_one = draw.random() < 0.5
        part = log.read(offset, max_bytes=max_bytes, up_to_offset=up_to, at_least_one=at_least_one)
        found = list(batches(part.read_bytes()))
        expected = [span for span in spans if offset < span[1] <= up_to]
        got = [(each.header.base_offset, each.header.next_offset) for each in found]
        assert got == expected[: len(found)]
        assert found or not (at_least_one and expected)
        assert len(part) <= max_bytes or (at_least_one and len(found) == 1)
        assert part.next_offset > offset if found else part.next_offset == offset
        assert not found or part.next_offset >= found[-1].header.next_offset


def test_an_offset_outside_of_the_log_is_refused(log: Log) -> None:
    append(log, b"a", b"b", b"c")
    log.delete_records_before(1)
    for offset in (-1, 0, 4):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, max_bytes=ALL_BYTES, up_to_offset=3)
    assert len(read_from(log, 1)) == 1
    assert read_from(log, 3) == []


def test_a_slice_stays_readable_when_its_batches_are_gone(log: Log) -> None:
    append(log, b"a")
    part = log.read(0, max_bytes=ALL_BYTES, up_to_offset=1)
    log.truncate_fully_and_start_at(1)
    assert [record.value for record in records(part.read_bytes())] == [b"a"]


def test_only_replicas_get_the_batches_that_compaction_emptied(layout: Layout) -> None:
    compacted = frozenset({CleanupPolicy.COMPACT})
    log = layout.open(LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=compacted))
    assert log.may_have_gaps
    for number in range(6):
        data = make_batch(b"v", keys=(b"k",), base_offset=number * 2, partition_leader_epoch=0)
        if number in (0, 2, 3, 5):
            (batch,) = batches(data)
            data = rebuild_batch(batch.header, [], delete_horizon_ms=None)
        log.append_fetched(data, epoch_max=0, gaps_allowed=True)
    consumed, replicated = [], []
    for for_consumer, offsets in ((True, consumed), (False, replicated)):
        offset = 0
        while found := read_from(log, offset, for_consumer=for_consumer):
            offsets += [batch.header.base_offset for batch in found]
            offset = found[-1].header.next_offset
    assert consumed == [2, 8]
    assert replicated == [0, 2, 4, 6, 8, 10]


def test_offsets_are_found_by_time(log: Log) -> None:
    append(log, b"a", timestamp=NOW_MS + 10, leader_epoch=1)
    append(log, b"b", b"c", timestamp=NOW_MS + 30, leader_epoch=2)
    append(log, b"d", timestamp=NOW_MS + 20, leader_epoch=2)
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS + 10, 0, 1)
    assert log.offset_for_timestamp(NOW_MS + 11) == (NOW_MS + 30, 1, 2)
    assert log.offset_for_timestamp(NOW_MS + 31) is None
    assert log.max_timestamp_offset() == (NOW_MS + 30, 1, 2)
    log.delete_records_before(2)
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS + 30, 2, 2)


def test_an_epoch_ends_where_the_next_one_begins(log: Log) -> None:
    append(log, b"a", b"b", leader_epoch=1)
    append(log, b"c", leader_epoch=4)
    assert [log.epoch_of(offset) for offset in range(3)] == [1, 1, 4]
    assert log.end_offset_for_epoch(1) == (1, 2)
    assert log.end_offset_for_epoch(3) == (1, 2)
    assert log.end_offset_for_epoch(4) == (4, 3)
    assert log.end_offset_for_epoch(5) == (-1, -1)


# What a follower writes


def leader_log() -> MemoryLog:
    leader = MemoryLog()
    leader.append(numbered(0, b"a", b"b"), leader_epoch=1, now_ms=NOW_MS)
    append(leader, b"c", leader_epoch=1)
    leader.append(numbered(2, b"d"), leader_epoch=3, now_ms=NOW_MS)
    return leader


def test_a_follower_has_the_leaders_bytes_epochs_and_producers(log: Log) -> None:
    leader = leader_log()
    data = all_bytes(leader)
    assert log.append_fetched(data[:-3], epoch_max=3, gaps_allowed=False) == 3
    assert log.append_fetched(data[-20:][:10], epoch_max=3, gaps_allowed=False) == 3
    assert log.append_fetched(read_from(leader, 3)[0].data, epoch_max=3, gaps_allowed=False) == 4
    assert all_bytes(log) == data
    assert [log.epoch_of(offset) for offset in range(4)] == [1, 1, 1, 3]
    assert log.producer_state == leader.producer_state


def with_header(data: bytes, **fields: int) -> bytes:
    header = BatchHeader._make(HEADER.unpack_from(data))._replace(**fields)
    return HEADER.pack(*header) + data[HEADER.size :]


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 9},
        {"base_offset": 0},
        {"partition_leader_epoch": 4},
        {"partition_leader_epoch": 0},
        {"partition_leader_epoch": -1},
        {"batch_length": 3},
        {"last_offset_delta": -1},
        {"crc": 1},
        {"magic": 1},
    ],
)
def test_fetched_batches_that_do_not_follow_the_log_are_refused(
    log: Log, fields: dict[str, int]
) -> None:
    leader = leader_log()
    first, second, third = (bytes(each.data) for each in batches(all_bytes(leader)))
    log.append_fetched(first, epoch_max=3, gaps_allowed=False)
    with pytest.raises(CorruptMessage):
        log.append_fetched(with_header(second, **fields), epoch_max=3, gaps_allowed=False)
    assert all_bytes(log) == first
    log.append_fetched(second + third, epoch_max=3, gaps_allowed=False)
    assert all_bytes(log) == all_bytes(leader)


def test_gaps_are_taken_only_where_they_are_allowed(log: Log) -> None:
    data = make_batch(b"a", base_offset=5, partition_leader_epoch=1)
    with pytest.raises(CorruptMessage):
        log.append_fetched(data, epoch_max=1, gaps_allowed=False)
    assert log.append_fetched(data, epoch_max=1, gaps_allowed=True) == 6
    assert [batch.header.base_offset for batch in read_from(log, 2)] == [5]


def test_a_followers_log_may_begin_inside_a_batch(log: Log) -> None:
    leader = leader_log()
    leader.delete_records_before(1)
    log.truncate_fully_and_start_at(1)
    data = all_bytes(leader)
    assert log.append_fetched(data, epoch_max=3, gaps_allowed=False) == 4
    assert log.log_start_offset == 1
    assert all_bytes(log) == data
    with pytest.raises(OffsetOutOfRange):
        read_from(log, 0)
    # Only the first batch of a log may begin before the end.
    overlapping = make_batch(b"d", b"e", base_offset=3, partition_leader_epoch=3)
    with pytest.raises(CorruptMessage):
        log.append_fetched(overlapping, epoch_max=3, gaps_allowed=False)
    assert all_bytes(log) == data


# Removal


def test_truncation_removes_whole_batches_and_what_is_derived_from_them(log: Log) -> None:
    for number in range(4):
        data = numbered(number * 2, b"%d" % number, b"+")
        log.append(data, leader_epoch=number, now_ms=NOW_MS)
    log.truncate_to(9)
    assert log.log_end_offset == 8
    log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset) == (0, 4)
    assert read_values(log) == [b"0", b"+", b"1", b"+"]
    assert log.end_offset_for_epoch(1) == (1, 4)
    assert log.producer_state.producers[7].next_sequence == 4
    assert log.append(numbered(4, b"again"), leader_epoch=5, now_ms=NOW_MS).base_offset == 4
    assert log.epoch_of(4) == 5


def test_truncation_below_the_start_leaves_an_empty_log_there(log: Log) -> None:
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    log.delete_records_before(2)
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert append(log, b"e") == 2
    assert read_values(log) == [b"e"]


def test_a_log_can_start_over_at_another_offset(log: Log) -> None:
    log.append(numbered(0, b"a"), leader_epoch=1, now_ms=NOW_MS)
    for offset in (100, 50):
        log.truncate_fully_and_start_at(offset)
        assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
        assert log.producer_state.producers == {}
        assert append(log, b"b", leader_epoch=2) == offset
        assert read_values(log) == [b"b"]


def test_records_before_an_offset_can_be_deleted(log: Log) -> None:
    append(log, b"a", b"b", leader_epoch=1)
    append(log, b"c", leader_epoch=2)
    assert log.delete_records_before(1) == 1
    assert log.delete_records_before(0) == 1
    assert (log.epoch_of(0), log.epoch_of(1)) == (-1, 1)
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records_before(offset)
    assert log.delete_records_before(3) == 3
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert append(log, b"d", leader_epoch=2) == 3


# Durability


def test_a_flush_reaches_what_was_there_when_it_began(log: Log) -> None:
    append(log, b"a")
    ticket = begin_flush(log)
    append(log, b"b")
    assert log.flushed_offset == 0
    ticket.run()
    assert log.flushed_offset == 0
    log.finish_flush(ticket)
    assert log.flushed_offset == 1
    flush(log)
    assert log.flushed_offset == 2
    assert log.begin_flush() is None


def test_a_flush_from_before_a_truncation_flushes_nothing(log: Log) -> None:
    append(log, b"a")
    flush(log)
    append(log, b"b")
    ticket = begin_flush(log)
    ticket.run()
    log.truncate_to(1)
    append(log, b"other")
    log.finish_flush(ticket)
    assert log.flushed_offset == 1
    log.truncate_to(0)
    assert log.flushed_offset == 0


def test_a_truncation_has_to_be_flushed_as_well(log: Log) -> None:
    append(log, b"a")
    append(log, b"b")
    flush(log)
    log.truncate_to(1)
    assert log.flushed_offset == log.log_end_offset == 1
    assert log.begin_flush() is not None


def test_what_was_flushed_is_there_after_a_crash(layout: Layout) -> None:
    log = layout.open(CONFIG)
    for number in range(20):
        log.append(numbered(number, b"%d" % number), leader_epoch=number // 5, now_ms=NOW_MS)
    flush(log)
    before, producers = all_bytes(log), log.producer_state
    append(log, b"not flushed", leader_epoch=9)
    again = layout.crash()
    assert again.log_end_offset in (20, 21)
    again.truncate_to(20)
    assert all_bytes(again) == before
    assert again.producer_state == producers
    assert [again.epoch_of(offset) for offset in (0, 4, 5, 19)] == [0, 0, 1, 3]
    assert again.append(numbered(19, b"19"), leader_epoch=9, now_ms=NOW_MS).duplicate


def test_a_failed_sync_takes_the_log_offline_for_good(layout: Layout) -> None:
    log = layout.open(CONFIG)
    append(log, b"a")
    flush(log)
    append(log, b"b")
    layout.fail_syncs()
    flush(log)
    layout.repair_disk()
    assert isinstance(log.failure, StorageFailed)
    assert log.flushed_offset == 1
    assert log.begin_flush() is None
    assert_offline(log)


def test_a_full_disk_refuses_appends_and_loses_nothing(layout: Layout) -> None:
    log = layout.open(CONFIG)
    append(log, b"a")
    layout.fill_disk()
    batch = make_batch(b"b", base_offset=1, partition_leader_epoch=0)
    with pytest.raises(DiskFull):
        log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(DiskFull):
        log.append_each([memoryview(batch)], leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(DiskFull):
        log.append_fetched(batch, epoch_max=0, gaps_allowed=False)
    assert (log.log_end_offset, log.failure) == (1, None)
    assert read_values(log) == [b"a"]
    layout.repair_disk()
    assert append(log, b"c") == 1
    flush(log)
    assert log.flushed_offset == 2
    assert read_values(log) == [b"a", b"c"]


def test_a_closed_log_has_been_flushed_and_is_offline(layout: Layout) -> None:
    log = layout.open(CONFIG)
    append(log, b"a")
    log.close()
    assert log.flushed_offset == 1
    assert_offline(log)
    log.close()
    assert read_values(layout.crash()) == [b"a"]


def test_a_flush_that_ends_after_an_unclean_close_changes_nothing(log: Log) -> None:
    append(log, b"a")
    ticket = begin_flush(log)
    log.close(clean=False)
    ticket.run()
    log.finish_flush(ticket)
    assert log.flushed_offset == 0
    assert_offline(log)


def assert_offline(log: Log) -> None:
    assert log.failure is not None
    view = memoryview(make_batch(b"x"))
    for refused in (
        lambda: log.append_each([view], leader_epoch=0, now_ms=NOW_MS),
        lambda: append(log, b"x"),
        lambda: log.append_fetched(view, epoch_max=0, gaps_allowed=True),
        lambda: read_from(log, 0),
        lambda: log.delete_records_before(0),
    ):
        with pytest.raises(StorageFailed):
            refused()


# Damage


def test_a_damaged_batch_is_never_served(layout: Layout) -> None:
    log = layout.open(CONFIG)
    for number in range(5):
        append(log, b"%d" % number, leader_epoch=1)
    assert log.find_damage(0, ALL_BYTES) is None
    log = layout.damage(2)
    seen: list[int] = []
    log.on_damage = seen.append
    with pytest.raises(CorruptMessage):
        read_from(log, 2)
    assert seen == [2]
    assert [(bad.first_offset, bad.next_offset) for bad in log.corrupt_ranges] == [(2, 3)]
    assert [batch.header.base_offset for batch in read_from(log, 0)] == [0, 1]
    assert [batch.header.base_offset for batch in read_from(log, 3)] == [3, 4]
    assert [log.find_damage(offset, ALL_BYTES) for offset in (0, 2, 3)] == [2, 2, None]
    assert log.failure is None
    log.truncate_to(2)
    assert log.corrupt_ranges == ()
    assert append(log, b"fetched again", leader_epoch=1) == 2
    assert read_values(log) == [b"0", b"1", b"fetched again"]


def test_damage_is_found_before_it_is_read(layout: Layout) -> None:
    log = layout.open(CONFIG)
    for number in range(5):
        append(log, b"%d" % number, leader_epoch=1)
    assert layout.damage(3).find_damage(0, ALL_BYTES) == 3


def test_the_lowest_suspect_offset_is_there_after_a_crash_until_it_is_cleared(
    layout: Layout,
) -> None:
    log = layout.open(CONFIG)
    append(log, b"a")
    for offset in (5, 3, 4):
        log.mark_suspect(offset)
    assert log.suspect_offset == 3
    log = layout.crash()
    assert log.suspect_offset == 3
    log.clear_suspect()
    assert log.suspect_offset is None


# All of it


def test_a_random_history_leaves_every_layout_as_it_leaves_the_log_in_memory(log: Log) -> None:
    draw = random.Random(SEED)
    model = MemoryLog(PARTITION, CONFIG)
    epoch = 0
    for step in range(RANDOM_STEPS):
        start, end = model.log_start_offset, model.log_end_offset
        kind = draw.choices(
            ["append", "each", "epoch", "truncate", "delete", "restart", "flush"],
            [40, 10, 5, 5, 5, 1, 10],
        )[0]
        entry = model.producer_state.producers.get(7)
        sequence = entry.next_sequence if entry and draw.random() < 0.9 else 0
        values = [b"%d" % step * draw.randint(0, 30) for _ in range(draw.randint(1, 3))]
        data = numbered(sequence, *values) if draw.random() < 0.5 else make_batch(*values)
        offset = draw.randint(start, end)
        if kind == "epoch":
            epoch += 1
        for each in (model, log):
            try:
                if kind == "append":
                    each.append(data, leader_epoch=epoch, now_ms=NOW_MS)
                elif kind == "each":
                    views = [memoryview(make_batch(b"x")), memoryview(data)]
                    each.append_each(views, leader_epoch=epoch, now_ms=NOW_MS)
                elif kind == "truncate":
                    each.truncate_to(offset)
                elif kind == "delete":
                    each.delete_records_before(offset)
                elif kind == "restart":
                    each.truncate_fully_and_start_at(end + 5)
                elif kind == "flush":
                    flush(each)
            except OutOfOrderSequenceNumber:
                pass
        assert log.log_start_offset == model.log_start_offset
        assert log.log_end_offset == model.log_end_offset
        assert log.flushed_offset == model.flushed_offset
        assert log.producer_state == model.producer_state
        assert all_bytes(log) == all_bytes(model)
        assert [log.end_offset_for_epoch(each) for each in range(epoch + 1)] == [
            model.end_offset_for_epoch(each) for each in range(epoch + 1)
        ]

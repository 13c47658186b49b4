"""The retention policy: limits, the daily hour, watermarks, the clock; and what the explanation says."""

import logging
from dataclasses import replace

import pytest
from storage_support import NOW_MS, append, apply_retention, flush, open_log, read_values
from tests.manual_time import ManualClock

from zhumq.host.disk import DiskUsage
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from zhumq.storage.disk_room import DiskRoom
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.retention import (
    DAY_MS,
    HOUR_MS,
    DailyHour,
    LogFacts,
    Protection,
    Reason,
    ReplicaFacts,
    RetentionLimits,
    RetentionRules,
    SegmentFacts,
    Watermarks,
    due_reasons,
    plan_retention,
    protection_of,
    refuses_writes,
)
from zhumq.storage.retention_clock import HOLD_MS, JUMP_MS_MAX, RetentionClock
from zhumq.storage.retention_forecast import bytes_of_a_day, forecast
from zhumq.storage.retention_pass import Retention, RetentionSettings
from zhumq.testing.disk import MemoryDisk

DAYS_3 = RetentionLimits(retention_ms=3 * DAY_MS, retention_bytes=-1)
NO_LIMITS = RetentionLimits(retention_ms=-1, retention_bytes=-1)
RULES = RetentionRules()
ORDERS = TopicPartition("orders", 0)
HALF_FULL = DiskUsage(used_bytes=500, total_bytes=1000)


def facts(*segments: tuple[int, int, int, int]) -> list[SegmentFacts]:
    return [
        SegmentFacts(base_offset=base, next_offset=end, size_bytes=size, max_timestamp=timestamp)
        for base, end, size, timestamp in segments
    ]


def log_of(
    segments: list[SegmentFacts],
    limits: RetentionLimits,
    high_watermark: int | None = None,
    start: int = 0,
    name: TopicPartition = ORDERS,
) -> LogFacts:
    end = segments[-1].next_offset if high_watermark is None else high_watermark
    return LogFacts(
        topic_partition=name,
        segments=segments,
        log_start_offset=start,
        limits=limits,
        replica=ReplicaFacts(high_watermark=end),
    )


def hourly(topic: str, *hours: int, size: int = 100, limits: RetentionLimits = DAYS_3) -> LogFacts:
    """A log whose segments have their newest record at these hours."""
    segments = facts(
        *(
            (place * 10, place * 10 + 10, size, NOW_MS + hour * HOUR_MS)
            for place, hour in enumerate(hours)
        )
    )
    return log_of(segments, limits, name=TopicPartition(topic, 0))


def full(percent: int) -> DiskUsage:
    return DiskUsage(used_bytes=percent * 100, total_bytes=10_000)


THREE = facts((0, 10, 100, 1000), (10, 20, 100, 2000), (20, 30, 100, 3000))


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "start", "high_watermark", "now_ms", "count"),
    [
        (-1, -1, 0, 30, 10**9, 0),
        (500, -1, 0, 30, 1500, 0),
        (500, -1, 0, 30, 1501, 1),
        (500, -1, 0, 30, 9000, 3),
        (500, -1, 0, 29, 9000, 2),
        (500, -1, 0, 0, 9000, 0),
        (0, -1, 0, 30, 2001, 2),
        (-1, 300, 0, 30, 0, 0),
        (-1, 250, 0, 30, 0, 0),
        (-1, 200, 0, 30, 0, 1),
        (-1, 0, 0, 30, 0, 3),
        (-1, 0, 0, 15, 0, 1),
        (-1, -1, 10, 30, 0, 1),
        (-1, -1, 19, 30, 0, 1),
        (-1, -1, 30, 30, 0, 3),
    ],
)
def test_retention_takes_the_oldest_segments(
    retention_ms: int,
    retention_bytes: int,
    start: int,
    high_watermark: int,
    now_ms: int,
    count: int,
) -> None:
    log = log_of(
        THREE,
        RetentionLimits(retention_ms=retention_ms, retention_bytes=retention_bytes),
        high_watermark,
        start,
    )
    assert len(due_reasons(log, now_ms, by_time=True)) == count


def test_an_old_segment_behind_a_young_one_stays() -> None:
    mixed = facts((0, 10, 100, 5000), (10, 20, 100, 1000))
    log = log_of(mixed, RetentionLimits(retention_ms=100, retention_bytes=-1), 20)
    assert due_reasons(log, 2000, by_time=True) == []


def test_records_without_a_timestamp_do_not_age() -> None:
    limits = RetentionLimits(retention_ms=100, retention_bytes=-1)
    log = log_of(facts((0, 10, 100, -1)), limits, 10)
    assert due_reasons(log, 10**12, by_time=True) == []


def test_the_hour_of_deletions_waits_for_time_only() -> None:
    hour = DailyHour(start_minute=4 * 60, utc_offset_ms=0)
    rules = RetentionRules(hour=hour)
    midnight = NOW_MS - NOW_MS % DAY_MS
    old = log_of(facts((0, 10, 100, midnight - 4 * DAY_MS), (10, 20, 100, midnight)), DAYS_3)
    large = replace(old, limits=RetentionLimits(retention_ms=-1, retention_bytes=100))
    for minutes, goes in ((0, False), (239, False), (240, True), (299, True), (300, False)):
        now_ms = midnight + minutes * 60_000
        plan = plan_retention([old], HALF_FULL, rules, now_ms)
        assert bool(plan.deletions) is goes, minutes
        assert plan_retention([large], HALF_FULL, rules, now_ms).deletions
    # Short of space, expired segments do not wait.
    assert plan_retention([old], full(75), rules, midnight).deletions == {
        old.topic_partition: [Reason.TIME]
    }


def test_the_hour_is_that_of_the_local_clock() -> None:
    midnight = NOW_MS - NOW_MS % DAY_MS
    east = DailyHour(start_minute=4 * 60, utc_offset_ms=2 * HOUR_MS)
    assert east.next_open(midnight) == midnight + 2 * HOUR_MS
    late = DailyHour(start_minute=23 * 60 + 30, utc_offset_ms=0)
    assert late.next_open(midnight + 10 * 60_000) == midnight + 10 * 60_000
    assert late.next_open(midnight + HOUR_MS) == midnight + 23 * HOUR_MS + 30 * 60_000


def test_above_the_forced_mark_the_oldest_segments_of_the_disk_go_first() -> None:
    logs = [hourly("a", 1, 4, 7, 9), hourly("b", 2, 3, 8, 9), hourly("c", 5, 6, 9)]
    assert plan_retention(logs, full(84), RULES, NOW_MS).deletions == {}
    # 200 bytes above the mark: three segments of 100 bytes bring it below.
    plan = plan_retention(logs, full(87), RULES, NOW_MS)
    assert plan.deletions == {
        ("a", 0): [Reason.DISK],
        ("b", 0): [Reason.DISK, Reason.DISK],
    }
    assert plan.is_pressed
    # What expired counts first.
    at = NOW_MS + 3 * DAY_MS + 2 * HOUR_MS + 1
    assert plan_retention(logs, full(86), RULES, at).deletions == {
        ("a", 0): [Reason.TIME],
        ("b", 0): [Reason.TIME],
    }


def test_a_disk_that_other_files_fill_costs_no_messages() -> None:
    logs = [hourly("a", 1, 2, 3), hourly("b", 1, 2, 3)]
    plan = plan_retention(logs, full(89), RULES, NOW_MS)
    assert plan.deletions == {}
    assert plan.is_beyond_help
    plan = plan_retention(logs, full(88), RULES, NOW_MS)
    assert sum(map(len, plan.deletions.values())) == 4
    assert not plan.is_beyond_help


def test_what_a_full_disk_does_not_delete() -> None:
    log = hourly("orders", 1, 2, 3)
    internal = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
    follower = replace(log.replica, is_leader=False)
    uncommitted = replace(log.replica, high_watermark=9)
    in_transaction = replace(log.replica, first_unstable_offset=5)
    compacted = RetentionLimits(retention_ms=1, retention_bytes=1, is_deleted=False)
    for facts_, protection in (
        (log, None),
        (replace(log, topic_partition=internal), Protection.INTERNAL),
        (replace(log, limits=compacted), Protection.COMPACTED),
        (replace(log, limits=NO_LIMITS), Protection.NO_LIMIT),
        (replace(log, replica=follower), Protection.FOLLOWER),
        (replace(log, replica=uncommitted), Protection.NOT_COMMITTED),
        (replace(log, replica=in_transaction), Protection.OPEN_TRANSACTION),
    ):
        assert protection_of(facts_, 0) is protection
        deleted = plan_retention([facts_], full(86), RULES, NOW_MS).deletions
        assert bool(deleted) is (protection is None)
    assert protection_of(log, 2) is Protection.ACTIVE


def test_writes_are_refused_at_the_mark_and_resume_below_it() -> None:
    marks = Watermarks()
    assert not refuses_writes(full(89), marks, is_refusing=False)
    assert refuses_writes(full(90), marks, is_refusing=False)
    assert refuses_writes(full(88), marks, is_refusing=True)
    assert not refuses_writes(full(87), marks, is_refusing=True)
    # Forced deletions are always enough to resume.
    close = Watermarks(forced_percent=89, refused_percent=90)
    assert not refuses_writes(full(88), close, is_refusing=True)
    # A file system that does not know its size refuses nothing.
    assert not refuses_writes(DiskUsage(used_bytes=0, total_bytes=0), marks, is_refusing=False)
    off = Watermarks(expired_percent=100, forced_percent=100, refused_percent=100)
    assert not refuses_writes(full(100), off, is_refusing=False)
    assert plan_retention([hourly("a", 1, 2)], full(100), RetentionRules(watermarks=off), 0) == (
        plan_retention([], full(1), RULES, 0)
    )


def test_a_clock_that_jumps_ahead_is_followed_after_an_hour_only() -> None:
    clock = RetentionClock(NOW_MS, 0)
    assert clock.read(NOW_MS + 10_000, 10_000) == NOW_MS + 10_000
    assert clock.read(NOW_MS + JUMP_MS_MAX + 20_000, 20_000) == NOW_MS + JUMP_MS_MAX + 20_000
    start = NOW_MS + JUMP_MS_MAX
    years = 10 * 365 * DAY_MS
    assert clock.read(start + years + 30_000, 30_000) == start + 30_000
    assert clock.is_held
    # Corrected again: nothing was deleted.
    assert clock.read(start + 40_000, 40_000) == start + 40_000
    assert not clock.is_held
    # Never corrected: the machine was suspended.
    assert clock.read(start + years, 50_000) == start + 50_000
    assert clock.read(start + years, 50_000 + HOLD_MS - 1) == start + 50_000 + HOLD_MS - 1
    assert clock.read(start + years, 50_000 + HOLD_MS) == start + years


def test_a_clock_that_is_set_back_counts_at_once() -> None:
    clock = RetentionClock(NOW_MS, 0)
    assert clock.read(NOW_MS - DAY_MS, 10_000) == NOW_MS - DAY_MS
    assert not clock.is_held


def test_the_forecast_says_when_each_segment_goes() -> None:
    log = hourly("orders", -80, -70, -60)
    plan = plan_retention([log], HALF_FULL, RULES, NOW_MS)
    forecasts = forecast(log, plan, RULES, NOW_MS)
    assert [each.reason for each in forecasts] == [Reason.TIME] * 3
    assert [each.goes_at_ms for each in forecasts] == [
        NOW_MS,
        NOW_MS + 2 * HOUR_MS + 1,
        NOW_MS + 12 * HOUR_MS + 1,
    ]
    hour = DailyHour(start_minute=0, utc_offset_ms=-(NOW_MS % DAY_MS))  # begins now
    forecasts = forecast(log, plan, RetentionRules(hour=hour), NOW_MS)
    assert [each.goes_at_ms for each in forecasts] == [NOW_MS, NOW_MS + DAY_MS, NOW_MS + DAY_MS]
    sized = replace(log, limits=RetentionLimits(retention_ms=-1, retention_bytes=450))
    forecasts = forecast(sized, plan_retention([sized], HALF_FULL, RULES, NOW_MS), RULES, NOW_MS)
    assert [each.goes_after_bytes for each in forecasts] == [250, 350, None]
    assert {each.goes_at_ms for each in forecasts} == {None}


def test_a_day_more_costs_what_the_busiest_day_wrote() -> None:
    assert bytes_of_a_day([]) == 0
    assert bytes_of_a_day([hourly("a", 0, 10, 30, 31, 32, size=7)]) == 4 * 7
    assert bytes_of_a_day([hourly("a", 0, 24, size=7), hourly("b", 1, size=5)]) == 12
    assert bytes_of_a_day([hourly("a", 0, limits=NO_LIMITS)]) == 0


class SmallDisk(MemoryDisk):
    """A disk that is as full as the test says."""

    percent = 50

    def usage(self, path: str) -> DiskUsage:
        return full(self.percent)


class TwoClocks(ManualClock):
    """A wall clock that can jump, beside a monotonic one that cannot."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return self.ms + self.ahead_ms


def open_manager(disk: MemoryDisk, clock: ManualClock) -> LogManager:
    manager = LogManager.take("/data", disk=disk, clock=clock, broker_id=0, cluster_id=None)
    manager.load(lambda _: LogConfig())
    return manager


def test_a_pass_logs_each_deleted_segment_with_its_reason_and_counts_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, clock = MemoryDisk(), TwoClocks(NOW_MS)
    manager = open_manager(disk, clock)
    config = LogConfig(segment_bytes=400, retention_ms=HOUR_MS)
    log = manager.create_log(TopicPartition("orders", 0), None, config)
    for _ in range(4):
        append(log, b"x" * 100)
    retention = Retention(
        manager,
        lambda log: ReplicaFacts(high_watermark=log.log_end_offset),
        clock,
        RetentionSettings(watermarks=Watermarks()),
        lambda _: 0,
    )
    caplog.set_level(logging.INFO)
    # A jump of the wall clock alone deletes nothing.
    clock.ahead_ms = 400 * DAY_MS
    assert retention.run(disk.usage("/data")) == 0
    assert "the clock jumped ahead by 34560000 s" in caplog.text
    forecasts = retention.explain("orders", disk.usage("/data"))
    assert forecasts.is_clock_held
    clock.ahead_ms = 0
    clock.ms += HOUR_MS + 1
    forecasts = retention.explain("orders", disk.usage("/data"))
    going = [each for each in forecasts.partitions[0].segments if each.goes_at_ms == clock.ms]
    size_bytes = sum(each.segment.size_bytes for each in going)
    assert retention.run(disk.usage("/data")) == len(going) == 2
    assert retention.deleted[Reason.TIME].segments == 2
    assert retention.deleted[Reason.TIME].size_bytes == size_bytes
    assert caplog.text.count("older than retention.ms=3600000") == 2
    assert "orders-0: deleted offsets 0 to 1, " in caplog.text


def test_the_files_of_deleted_segments_go_at_once_when_space_is_short() -> None:
    disk, clock = SmallDisk(), ManualClock(NOW_MS)
    manager = open_manager(disk, clock)
    config = LogConfig(segment_bytes=300, retention_ms=HOUR_MS)
    for name in "ab":
        log = manager.create_log(TopicPartition(name, 0), None, config)
        for place in range(40):
            append(log, b"x" * 100, timestamp=NOW_MS + place)
    retention = Retention(
        manager,
        lambda log: ReplicaFacts(high_watermark=log.log_end_offset),
        clock,
        RetentionSettings(watermarks=Watermarks()),
        lambda _: 0,
    )
    assert retention.run(disk.usage("/data")) == 0
    assert manager.take_trash() == []
    disk.percent = 86
    assert retention.run(disk.usage("/data")) == 1
    assert retention.deleted[Reason.DISK].segments == 1
    assert len([path for path in manager.take_trash() if path.endswith(".log.deleted")]) == 1
    disk.percent = 99
    assert retention.run(disk.usage("/data")) > 0
    assert {log.log_end_offset for log in manager} == {40}


def test_a_disk_without_any_room_is_made_room_on() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_bytes=400, retention_ms=HOUR_MS)
    for epoch in range(6):
        append(log, b"x" * 100, leader_epoch=epoch)
    flush(log, checkpoint=True)
    disk.bytes_free = 0
    leads = ReplicaFacts(high_watermark=6)
    # There is no room for the successor of the active segment.
    trash = apply_retention(log, NOW_MS + HOUR_MS + 1, leads)
    assert log.log_start_offset == 4
    for path in trash:
        disk.unlink(path)
    disk.bytes_free = 100_000
    assert apply_retention(log, NOW_MS + HOUR_MS + 1, leads)
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    append(log, b"next", leader_epoch=6)
    flush(log)
    log.close()
    again = open_log(disk, segment_bytes=400, recovery_point=6, log_start_offset=6)
    assert read_values(again) == [b"next"]


def test_a_disk_above_its_mark_refuses_messages_until_it_is_well_below() -> None:
    disk, clock = SmallDisk(), ManualClock(NOW_MS)
    room = DiskRoom(open_manager(disk, clock), Watermarks())
    for percent, refuses in ((89, False), (90, True), (89, True), (88, True), (87, False)):
        disk.percent = percent
        room.look()
        assert bool(room.refusal) is refuses, percent
    disk.percent = 95
    room.look()
    assert "95 % full" in room.refusal
    assert "below 88 % (disk.watermark.refused.percent=90)" in room.refusal

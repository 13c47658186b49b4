"""The retention policy over any logs, disks and clocks: what it may delete, how much, and what it says before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from zhumq.host.disk import DiskUsage
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from zhumq.storage.retention import (
    DAY_MS,
    DailyHour,
    LogFacts,
    Reason,
    ReplicaFacts,
    RetentionLimits,
    RetentionRules,
    SegmentFacts,
    Watermarks,
    is_at,
    plan_retention,
    protection_of,
)
from zhumq.storage.retention_forecast import forecast

NOW_MS = 1_700_000_000_000
TOPICS = ("a", "b", "c", "d", CONSUMER_OFFSETS_TOPIC)


@st.composite
def logs(draw: st.DrawFn) -> LogFacts:
    segments: list[SegmentFacts] = []
    offset = draw(st.integers(0, 50))
    for _ in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 10))
        segments.append(
            SegmentFacts(
                base_offset=offset,
                next_offset=offset + length,
                size_bytes=draw(st.integers(1, 1000)),
                max_timestamp=draw(
                    st.one_of(st.just(-1), st.integers(NOW_MS - 10 * DAY_MS, NOW_MS + DAY_MS))
                ),
            )
        )
        offset += length
    if draw(st.booleans()):  # an active segment without records
        empty = SegmentFacts(base_offset=offset, next_offset=offset, size_bytes=0, max_timestamp=-1)
        segments.append(empty)
    high_watermark = draw(st.integers(segments[0].base_offset, offset))
    return LogFacts(
        topic_partition=TopicPartition(draw(st.sampled_from(TOPICS)), draw(st.integers(0, 50))),
        segments=segments,
        log_start_offset=draw(st.integers(segments[0].base_offset, high_watermark)),
        limits=RetentionLimits(
            retention_ms=draw(st.sampled_from((-1, 0, DAY_MS, 3 * DAY_MS))),
            retention_bytes=draw(st.sampled_from((-1, 0, 500, 2000))),
            is_deleted=draw(st.booleans()),
        ),
        replica=ReplicaFacts(
            high_watermark=high_watermark,
            first_unstable_offset=draw(st.one_of(st.none(), st.integers(0, high_watermark))),
            is_leader=draw(st.booleans()),
            is_sole=draw(st.booleans()),
        ),
    )


many_logs = st.lists(logs(), max_size=8, unique_by=lambda log: log.topic_partition)
disks = st.integers(1, 100).map(lambda each: DiskUsage(used_bytes=each * 200, total_bytes=20_000))
hours = st.one_of(
    st.none(),
    st.builds(
        DailyHour,
        start_minute=st.integers(0, 24 * 60 - 1),
        utc_offset_ms=st.integers(-12, 12).map(lambda each: each * 3_600_000),
    ),
)
all_rules = st.builds(
    RetentionRules,
    hour=hours,
    watermarks=st.sampled_from(
        (
            Watermarks(),
            Watermarks(expired_percent=10, forced_percent=20, refused_percent=30),
            Watermarks(expired_percent=100, forced_percent=40, refused_percent=100),
            Watermarks(expired_percent=100, forced_percent=100, refused_percent=100),
        )
    ),
)


@given(many_logs, disks, all_rules)
def test_nothing_goes_that_is_not_committed_and_nothing_by_force_that_is_protected(
    logs: list[LogFacts], usage: DiskUsage, rules: RetentionRules
) -> None:
    plan = plan_retention(logs, usage, rules, NOW_MS)
    for log in logs:
        reasons = plan.deletions.get(log.topic_partition, ())
        for place, reason in enumerate(reasons):
            segment = log.segments[place]
            assert segment.size_bytes
            assert segment.next_offset <= log.replica.high_watermark
            if reason is Reason.DISK:
                assert protection_of(log, place) is None
                assert place < len(log.segments) - 1
            elif reason is not Reason.LOG_START:
                assert log.replica.is_leader
                assert log.limits.is_deleted
        if not log.replica.is_sole:
            assert len(reasons) < len(log.segments)


@given(many_logs, disks, all_rules)
def test_by_force_goes_no_more_than_needed_and_the_oldest_first(
    logs: list[LogFacts], usage: DiskUsage, rules: RetentionRules
) -> None:
    plan = plan_retention(logs, usage, rules, NOW_MS)
    mark = rules.watermarks.forced_percent
    forced: list[SegmentFacts] = []
    staying: list[SegmentFacts] = []  # the heads that might have gone in their place
    left = usage.used_bytes
    for log in logs:
        reasons = plan.deletions.get(log.topic_partition, ())
        left -= sum(segment.size_bytes for segment in log.segments[: len(reasons)])
        forced += [
            segment
            for segment, reason in zip(log.segments, reasons, strict=False)
            if reason is Reason.DISK
        ]
        place = len(reasons)
        if place < len(log.segments) and protection_of(log, place) is None:
            staying.append(log.segments[place])
    after = DiskUsage(used_bytes=left, total_bytes=usage.total_bytes)
    if plan.is_beyond_help:
        assert is_at(after, mark)
        assert not forced
    else:
        assert not is_at(after, mark)
    if forced and staying:
        # The last one was needed, and nothing older stays at the head of a log.
        newest = max(forced, key=lambda each: each.max_timestamp)
        without_newest = replace(after, used_bytes=left + newest.size_bytes)
        heads = min(each.max_timestamp for each in staying)
        assert heads >= newest.max_timestamp or is_at(without_newest, mark)


@given(many_logs, disks, all_rules)
def test_what_the_explanation_says_goes_now_is_what_goes(
    logs: list[LogFacts], usage: DiskUsage, rules: RetentionRules
) -> None:
    plan = plan_retention(logs, usage, rules, NOW_MS)
    for log in logs:
        forecasts = forecast(log, plan, rules, NOW_MS)
        going = [
            each for each in forecasts if each.goes_at_ms is not None and each.goes_at_ms <= NOW_MS
        ]
        assert [each.reason for each in going] == list(plan.deletions.get(log.topic_partition, ()))
        assert [each.segment for each in forecasts] == list(log.segments)


@given(logs(), hours)
def test_a_segment_goes_at_the_moment_that_the_explanation_says(
    log: LogFacts, hour: DailyHour | None
) -> None:
    usage = DiskUsage(used_bytes=0, total_bytes=1)
    rules = RetentionRules(hour=hour)
    forecasts = forecast(log, plan_retention([log], usage, rules, NOW_MS), rules, NOW_MS)
    for place, each in enumerate(forecasts):
        if each.goes_at_ms is None or each.goes_at_ms <= NOW_MS:
            continue

        def deleted(now_ms: int) -> int:
            plan = plan_retention([log], usage, rules, now_ms)
            return len(plan.deletions.get(log.topic_partition, ()))

        assert deleted(each.goes_at_ms) > place
        assert deleted(each.goes_at_ms - 1) <= place


@given(logs(), st.integers(1, 10_000))
def test_after_so_many_more_bytes_a_segment_goes_by_size(log: LogFacts, written: int) -> None:
    usage = DiskUsage(used_bytes=0, total_bytes=1)
    rules = RetentionRules()
    log = replace(log, limits=replace(log.limits, retention_ms=-1))
    forecasts = forecast(log, plan_retention([log], usage, rules, NOW_MS), rules, NOW_MS)
    last = log.segments[-1]
    grown = replace(
        log, segments=[*log.segments[:-1], replace(last, size_bytes=last.size_bytes + written)]
    )
    gone = len(plan_retention([grown], usage, rules, NOW_MS).deletions.get(log.topic_partition, ()))
    for place, each in enumerate(forecasts):
        is_committed = each.segment.next_offset <= log.replica.high_watermark
        if each.goes_after_bytes is not None and is_committed:
            assert (gone > place) is (each.goes_after_bytes <= written)

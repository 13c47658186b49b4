"""Explains retention: when each segment of a log goes, and why. Pure: the same policy, asked ahead."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zhumq.storage.retention import (
    DAY_MS,
    LogFacts,
    Protection,
    Reason,
    RetentionPlan,
    RetentionRules,
    SegmentFacts,
    expires_at_ms,
    protection_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentForecast:
    """When and why a segment goes."""

    segment: SegmentFacts
    is_active: bool
    # When it goes, and why; None, both: not by what is known now.
    goes_at_ms: int | None
    reason: Reason | None
    # How many more bytes of messages make it go by retention.bytes; None: no number of them does.
    goes_after_bytes: int | None
    # Why a full disk does not delete it; None: it may.
    protection: Protection | None


def forecast(
    log: LogFacts, plan: RetentionPlan, rules: RetentionRules, now_ms: int
) -> list[SegmentForecast]:
    """The segments of a log, oldest first. What the plan deletes goes now."""
    going = plan.deletions.get(log.topic_partition, ())
    hour = None if plan.is_pressed else rules.hour
    total_bytes = sum(segment.size_bytes for segment in log.segments)
    forecasts: list[SegmentForecast] = []
    goes_at: int | None = now_ms
    removed_bytes = 0
    for place, segment in enumerate(log.segments):
        removed_bytes += segment.size_bytes
        is_active = place == len(log.segments) - 1
        reason: Reason | None = going[place] if place < len(going) else Reason.TIME
        after_bytes: int | None = None
        if place >= len(going):
            goes_at = _later(goes_at, _expires_at(log, segment, is_active=is_active))
            if goes_at is None:
                reason = None
            elif hour is not None:
                goes_at = hour.next_open(goes_at)
            if log.decides and log.limits.retention_bytes >= 0 and not is_active:
                after_bytes = max(log.limits.retention_bytes + removed_bytes - total_bytes, 0)
        forecasts.append(
            SegmentForecast(
                segment=segment,
                is_active=is_active,
                goes_at_ms=goes_at,
                reason=reason,
                goes_after_bytes=after_bytes,
                protection=protection_of(log, place),
            )
        )
    return forecasts


def bytes_of_a_day(logs: Iterable[LogFacts]) -> int:
    """The most bytes that expire in any 24 hours: what retention costs on the disk if it is a day longer."""
    expiring = sorted(
        (segment.max_timestamp, segment.size_bytes)
        for log in logs
        if log.limits.is_deleted and log.limits.retention_ms >= 0
        for segment in log.segments
        if segment.max_timestamp >= 0
    )
    return _largest_window(expiring, DAY_MS)


def _largest_window(sizes: Sequence[tuple[int, int]], width_ms: int) -> int:
    largest = current = first = 0
    for timestamp, size in sizes:
        current += size
        while sizes[first][0] <= timestamp - width_ms:
            current -= sizes[first][1]
            first += 1
        largest = max(largest, current)
    return largest


def _expires_at(log: LogFacts, segment: SegmentFacts, *, is_active: bool) -> int | None:
    # The last segment of a replicated log keeps its epoch, and an empty one has nothing to delete.
    stays = not segment.size_bytes or (is_active and not log.replica.is_sole)
    if stays or not log.decides or segment.next_offset > log.replica.high_watermark:
        return None
    return expires_at_ms(segment, log.limits)


def _later(earlier: int | None, own: int | None) -> int | None:
    """A segment goes after those before it; None: one of them stays."""
    return None if earlier is None or own is None else max(earlier, own)

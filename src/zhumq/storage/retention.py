"""Decides which segments retention deletes, and why. Pure: facts in, a decision out."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from zhumq.host.disk import DiskUsage
from zhumq.model.ids import INTERNAL_TOPICS, TopicPartition

MARK_OFF: Final = 100  # the percentage that switches a watermark off
# Writes resume this far below the mark that refuses them, so that they do not stop and go.
RESUME_PERCENT: Final = 2
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
MINUTE_MS: Final = 60_000


class Reason(StrEnum):
    """Why a segment goes."""

    LOG_START = "log start"  # below the log start offset: DeleteRecords, or the leader deleted it
    TIME = "retention.ms"
    SIZE = "retention.bytes"
    DISK = "disk"  # among the oldest of a disk that is too full


class Protection(StrEnum):
    """Why a full disk does not delete a segment that is not due."""

    ACTIVE = "active segment"
    FOLLOWER = "another broker leads"
    INTERNAL = "internal topic"
    COMPACTED = "compacted topic"
    NO_LIMIT = "topic without a limit"
    NOT_COMMITTED = "not committed"
    OPEN_TRANSACTION = "open transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """The properties of a segment that retention uses."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int  # -1 if no record has one


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """What the upkeep of a log has to know of its replica."""

    high_watermark: int
    # Where the oldest open transaction begins; None: there is none below the high watermark.
    first_unstable_offset: int | None = None
    # Only the leader applies the retention policy: a follower adopts its log start offset.
    is_leader: bool = True
    # If there are other replicas, retention keeps the last batch, with its epoch.
    is_sole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """The limits of a topic; -1: no limit."""

    retention_ms: int
    retention_bytes: int
    is_deleted: bool = True  # whether cleanup.policy has `delete`

    @property
    def has_any(self) -> bool:
        return self.retention_ms >= 0 or self.retention_bytes >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """A log as retention sees it. The last segment is the active one."""

    topic_partition: TopicPartition
    segments: Sequence[SegmentFacts]
    log_start_offset: int
    limits: RetentionLimits
    replica: ReplicaFacts

    @property
    def decides(self) -> bool:
        """Whether the limits of the topic delete segments of this replica."""
        return self.replica.is_leader and self.limits.is_deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """Percentages of the disk at which retention does more, and writes are refused; 100: never."""

    expired_percent: int = 75
    forced_percent: int = 85
    refused_percent: int = 90

    @property
    def resume_percent(self) -> int:
        """Below this, refused writes resume. Forced deletions are enough to get there."""
        below = self.refused_percent - RESUME_PERCENT
        return below if self.forced_percent == MARK_OFF else max(below, self.forced_percent)


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyHour:
    """The hour of the day, by the clock of the broker, in which expired segments are deleted."""

    start_minute: int  # of the day
    utc_offset_ms: int

    def next_open(self, moment_ms: int) -> int:
        """The first moment from this one on that is inside of the hour."""
        since_ms = (moment_ms + self.utc_offset_ms - self.start_minute * MINUTE_MS) % DAY_MS
        return moment_ms if since_ms < HOUR_MS else moment_ms + DAY_MS - since_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The rules of a broker, for all its logs."""

    watermarks: Watermarks = field(default_factory=Watermarks)
    hour: DailyHour | None = None  # None: expired segments are deleted at any time


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What goes now."""

    # Of each log the reasons why its oldest segments go, one for each of them.
    deletions: Mapping[TopicPartition, Sequence[Reason]]
    # Space is short: expired segments do not wait for their hour, and files are removed without delay.
    is_pressed: bool
    # The disk is above the mark, and all segments that may go are not enough to get below.
    is_beyond_help: bool = False


def is_at(usage: DiskUsage, percent: int) -> bool:
    """Whether the disk is filled to this percentage, which is not off. Some file systems do not know their size."""
    return percent < MARK_OFF and 0 < usage.total_bytes * percent <= usage.used_bytes * 100


def refuses_writes(usage: DiskUsage, watermarks: Watermarks, *, is_refusing: bool) -> bool:
    """Whether messages of clients are refused from now on."""
    if watermarks.refused_percent == MARK_OFF:
        return False
    mark = watermarks.resume_percent if is_refusing else watermarks.refused_percent
    return is_at(usage, mark)


def plan_retention(
    logs: Sequence[LogFacts], usage: DiskUsage, rules: RetentionRules, now_ms: int
) -> RetentionPlan:
    """What goes now of all the logs on one disk."""
    marks = rules.watermarks
    is_pressed = is_at(usage, marks.expired_percent) or is_at(usage, marks.forced_percent)
    by_time = is_pressed or rules.hour is None or rules.hour.next_open(now_ms) == now_ms
    deletions: dict[TopicPartition, list[Reason]] = {}
    freed_bytes = 0
    for log in logs:
        reasons = due_reasons(log, now_ms, by_time=by_time)
        if reasons:
            deletions[log.topic_partition] = reasons
            freed_bytes += sum(each.size_bytes for each in log.segments[: len(reasons)])
    left = DiskUsage(used_bytes=usage.used_bytes - freed_bytes, total_bytes=usage.total_bytes)
    if not is_at(left, marks.forced_percent):
        return RetentionPlan(deletions=deletions, is_pressed=is_pressed)
    forced = _force(logs, deletions, _bytes_above(left, marks.forced_percent))
    for name, count in (forced or {}).items():
        deletions.setdefault(name, []).extend([Reason.DISK] * count)
    return RetentionPlan(deletions=deletions, is_pressed=is_pressed, is_beyond_help=forced is None)


def due_reasons(log: LogFacts, now_ms: int, *, by_time: bool) -> list[Reason]:
    """Why the oldest segments of a log go by its own limits, one reason for each of them.

    Always a prefix of the log: all segments after one that stays are kept.
    """
    limits = log.limits
    high_watermark = log.replica.high_watermark
    excess_bytes = sum([segment.size_bytes for segment in log.segments]) - limits.retention_bytes
    reasons: list[Reason] = []
    for segment in log.segments:
        # Followers may still need what is above the high watermark, and consumers have not seen it.
        if segment.next_offset > high_watermark or not segment.size_bytes:
            break
        if segment.next_offset <= log.log_start_offset:
            reasons.append(Reason.LOG_START)
        elif not log.decides:
            break
        elif by_time and is_expired(segment, limits, now_ms):
            reasons.append(Reason.TIME)
        elif limits.retention_bytes >= 0 and excess_bytes >= segment.size_bytes:
            reasons.append(Reason.SIZE)
        else:
            break
        excess_bytes -= segment.size_bytes
    if len(reasons) == len(log.segments) and not log.replica.is_sole:
        reasons.pop()
    return reasons


def is_expired(segment: SegmentFacts, limits: RetentionLimits, now_ms: int) -> bool:
    """Whether all records of the segment are older than the limit. Without timestamps they have no age."""
    expires_at = expires_at_ms(segment, limits)
    return expires_at is not None and expires_at <= now_ms


def expires_at_ms(segment: SegmentFacts, limits: RetentionLimits) -> int | None:
    """The first moment at which the segment is older than the limit; None: never."""
    if limits.retention_ms < 0 or segment.max_timestamp < 0:
        return None
    return segment.max_timestamp + limits.retention_ms + 1


def protection_of(log: LogFacts, place: int) -> Protection | None:
    """Why a full disk does not delete this segment; None if it may."""
    segment = log.segments[place]
    unstable = log.replica.first_unstable_offset
    if log.topic_partition.topic in INTERNAL_TOPICS:
        # Without their state consumers and transactions cannot go on.
        return Protection.INTERNAL
    if not log.limits.is_deleted:
        return Protection.COMPACTED
    if not log.limits.has_any:
        return Protection.NO_LIMIT
    if not log.replica.is_leader:
        return Protection.FOLLOWER
    if place == len(log.segments) - 1:
        return Protection.ACTIVE
    if segment.next_offset > log.replica.high_watermark:
        return Protection.NOT_COMMITTED
    if unstable is not None and segment.next_offset > unstable:
        # No consumer at read_committed could have read it.
        return Protection.OPEN_TRANSACTION
    return None


def _bytes_above(usage: DiskUsage, percent: int) -> int:
    """The fewest bytes to free so that the disk is below the percentage."""
    return usage.used_bytes - (usage.total_bytes * percent - 1) // 100


def _force(
    logs: Sequence[LogFacts], due: Mapping[TopicPartition, Sequence[Reason]], excess_bytes: int
) -> dict[TopicPartition, int] | None:
    """How many more segments of each log go, the oldest of the disk first, until the excess is freed.

    None if all of them are not enough: other files fill the disk, and messages would be lost for nothing.
    """
    counts: dict[TopicPartition, int] = {}
    heads: list[tuple[int, TopicPartition, int, LogFacts]] = []
    for log in logs:
        _push_head(heads, log, len(due.get(log.topic_partition, ())))
    while excess_bytes > 0:
        if not heads:
            return None
        _, name, place, log = heapq.heappop(heads)
        counts[name] = counts.get(name, 0) + 1
        excess_bytes -= log.segments[place].size_bytes
        _push_head(heads, log, place + 1)
    return counts


def _push_head(
    heads: list[tuple[int, TopicPartition, int, LogFacts]], log: LogFacts, place: int
) -> None:
    if place < len(log.segments) and protection_of(log, place) is None:
        segment = log.segments[place]
        heapq.heappush(heads, (segment.max_timestamp, log.topic_partition, place, log))

"""Carries out retention on all logs of a broker: plans, deletes, logs and counts; and explains it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from zhumq.host.clock import Clock
from zhumq.host.disk import DiskUsage
from zhumq.model.errors import BrokerError
from zhumq.storage.log import Log
from zhumq.storage.log_manager import LogManager
from zhumq.storage.log_retention import delete_segments, log_facts
from zhumq.storage.retention import (
    DailyHour,
    LogFacts,
    Reason,
    ReplicaFacts,
    RetentionRules,
    Watermarks,
    is_at,
    plan_retention,
)
from zhumq.storage.retention_clock import HOLD_MS, RetentionClock
from zhumq.storage.retention_forecast import SegmentForecast, bytes_of_a_day, forecast

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """The broker's settings of retention."""

    watermarks: Watermarks
    # The minute of the day, by the clock of the broker, at which the hour of deletions begins; None: any time.
    start_minute: int | None = None


@dataclass(slots=True, kw_only=True)
class Deleted:
    """Counts of what retention deleted for one reason."""

    segments: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionForecast:
    """What happens to the segments of a partition that this broker leads."""

    facts: LogFacts
    segments: list[SegmentForecast]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicForecast:
    """What happens to the partitions of a topic that this broker leads."""

    now_ms: int  # the time that retention goes by
    partitions: list[PartitionForecast]
    day_bytes: int  # what retention costs here if it is a day longer
    usage: DiskUsage
    watermarks: Watermarks
    start_minute: int | None
    is_clock_held: bool
    is_beyond_help: bool


class Retention:
    """Retention of all logs of a broker. All methods are called on the event loop."""

    def __init__(
        self,
        logs: LogManager,
        replica_of: Callable[[Log], ReplicaFacts],
        clock: Clock,
        settings: RetentionSettings,
        utc_offset_ms: Callable[[int], int],
    ) -> None:
        self._logs = logs
        self._replica_of = replica_of
        self._clock = clock
        self._settings = settings
        self._utc_offset_ms = utc_offset_ms
        self._time = RetentionClock(clock.now_ms(), clock.monotonic_ms())
        self._is_clock_held = False
        self._is_beyond_help = False
        self.deleted = {reason: Deleted() for reason in Reason}

    def is_pressed(self, usage: DiskUsage) -> bool:
        """Whether files of deleted segments are removed without delay."""
        marks = self._settings.watermarks
        return is_at(usage, marks.expired_percent) or is_at(usage, marks.forced_percent)

    def run(self, usage: DiskUsage) -> int:
        """Delete what goes now; returns the number of segments. Their files are in the trash."""
        now_ms = self._now_ms()
        facts = self._facts()
        plan = plan_retention(facts, usage, self._rules(now_ms), now_ms)
        self._report_beyond_help(plan.is_beyond_help, usage)
        count = 0
        for each in facts:
            log = self._logs.logs.get(each.topic_partition)
            if log is None or log.failure is not None:
                continue
            log.producer_state.expire(now_ms, log.config.producer_id_expiration_ms)
            reasons = plan.deletions.get(each.topic_partition)
            if not reasons:
                continue
            try:
                done, trash = delete_segments(log, each, reasons)
            except BrokerError:
                logger.exception("%s: retention failed", log.topic_partition)
                continue
            self._logs.add_trash(trash, 0 if plan.is_pressed else log.config.file_delete_delay_ms)
            for segment, reason in zip(each.segments[:done], reasons, strict=False):
                self.deleted[reason].segments += 1
                self.deleted[reason].size_bytes += segment.size_bytes
            count += done
        return count

    def explain(self, topic: str, usage: DiskUsage) -> TopicForecast:
        """When and why the segments of a topic go that this broker leads. Deletes nothing."""
        now_ms = self._now_ms()
        rules = self._rules(now_ms)
        # Below the forced mark no log matters to another.
        is_forced = is_at(usage, rules.watermarks.forced_percent)
        facts = self._facts(None if is_forced else topic)
        plan = plan_retention(facts, usage, rules, now_ms)
        led = [
            each for each in facts if each.topic_partition.topic == topic and each.replica.is_leader
        ]
        return TopicForecast(
            now_ms=now_ms,
            partitions=[
                PartitionForecast(facts=each, segments=forecast(each, plan, rules, now_ms))
                for each in led
            ],
            day_bytes=bytes_of_a_day(led),
            usage=usage,
            watermarks=self._settings.watermarks,
            start_minute=self._settings.start_minute,
            is_clock_held=self._time.is_held,
            is_beyond_help=plan.is_beyond_help,
        )

    def _facts(self, topic: str | None = None) -> list[LogFacts]:
        """The logs of a topic, or of all, that work."""
        found = []
        for log in self._logs:
            if log.failure is not None or topic not in (None, log.topic_partition.topic):
                continue
            try:
                found.append(log_facts(log, self._replica_of(log)))
            except BrokerError:
                logger.exception("%s: retention failed", log.topic_partition)
        return found

    def _rules(self, now_ms: int) -> RetentionRules:
        settings = self._settings
        hour = None
        if settings.start_minute is not None:
            hour = DailyHour(
                start_minute=settings.start_minute, utc_offset_ms=self._utc_offset_ms(now_ms)
            )
        return RetentionRules(watermarks=settings.watermarks, hour=hour)

    def _now_ms(self) -> int:
        now_ms = self._clock.now_ms()
        time_ms = self._time.read(now_ms, self._clock.monotonic_ms())
        if self._time.is_held and not self._is_clock_held:
            logger.warning(
                "the clock jumped ahead by %d s: for %d minutes retention goes by the time before",
                (now_ms - time_ms) // 1000,
                HOLD_MS // 60_000,
            )
        self._is_clock_held = self._time.is_held
        return time_ms

    def _report_beyond_help(self, is_beyond_help: bool, usage: DiskUsage) -> None:
        if is_beyond_help and not self._is_beyond_help:
            logger.error(
                "the disk of %s is %d %% full, and all segments that may go would not bring it below"
                " %d %%: no more of them go, because other files fill the disk",
                self._logs.data_dir,
                usage.used_percent,
                self._settings.watermarks.forced_percent,
            )
        self._is_beyond_help = is_beyond_help

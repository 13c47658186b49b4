"""Retention of a topic: which segments go, when and why, as the brokers that lead it explain it."""

from dataclasses import dataclass
from typing import Any, Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.settings import topic_settings
from zhumq.admin.topics import topic_partitions
from zhumq.client.errors import ClientError

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment of a partition. The times are milliseconds since 1970."""

    partition: int
    first_offset: int
    next_offset: int
    size_bytes: int
    newest_ms: int | None  # of its newest record
    active: bool
    goes_at_ms: int | None  # None, as is the reason: not by what is known now
    reason: str | None
    goes_after_bytes: int | None  # so many more bytes of messages make it go by retention.bytes
    protection: str | None  # why a full disk does not delete it


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDisk:
    """The disk of a broker that leads partitions of the topic. A watermark of 100 is off."""

    broker: int
    used_bytes: int
    total_bytes: int
    expired_percent: int
    forced_percent: int
    refused_percent: int
    refuses_writes: bool
    delete_at: str | None  # the time of the day from which on expired segments go for an hour
    clock_held: bool  # the clock jumped ahead: retention goes by the time before, for a while
    beyond_help: bool  # the disk is too full, and deleting messages would not be enough
    day_bytes: int  # what 24 hours more cost on this disk
    now_ms: int  # the time that retention goes by

    @property
    def used_percent(self) -> int:
        return self.used_bytes * 100 // max(self.total_bytes, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRetention:
    """What happens to the segments of a topic."""

    topic: str
    retention_ms: int  # -1: no limit, as is the next
    retention_bytes: int
    cleanup_policy: str
    day_bytes: int  # what 24 hours more cost on the disks of the leaders
    segments: tuple[Segment, ...]
    segments_left_off: int  # the youngest, of a topic with very many
    unanswered: tuple[int, ...]  # partitions whose leaders did not answer
    disks: tuple[BrokerDisk, ...]


def explain_retention(connection: ClusterConnection, topic: str) -> TopicRetention:
    """When and why the segments of a topic go. Raises NotFound, and PushUnavailable without a push listener."""
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    partitions = topic_partitions(connection, topic)
    settings = topic_settings(connection, topic)
    values = {name: each.value or "" for name, each in settings.items()}
    answers = push_calls.call_all(connection, "ExplainRetention", topic=topic)
    leading = [answer for answer in answers if answer.segments]
    segments = [_segment(each) for answer in leading for each in answer.segments]
    answered = {each.partition for each in segments}
    return TopicRetention(
        topic=topic,
        retention_ms=int(values["retention.ms"]),
        retention_bytes=int(values["retention.bytes"]),
        cleanup_policy=values["cleanup.policy"],
        day_bytes=sum(answer.day_bytes for answer in leading),
        segments=tuple(sorted(segments, key=lambda each: (each.partition, each.first_offset))),
        segments_left_off=sum(answer.segments_left_off for answer in leading),
        unanswered=tuple(each for each in partitions if each not in answered),
        disks=tuple(sorted((_disk(each) for each in leading), key=lambda disk: disk.broker)),
    )


def kept_for(connection: ClusterConnection, topic: str) -> str | None:
    """How long a topic keeps its messages, in words; None if the brokers do not answer that."""
    try:
        settings = topic_settings(connection, topic)
    except ClientError:
        return None
    values = {name: each.value or "" for name, each in settings.items()}
    return retention_words(
        int(values["retention.ms"]), int(values["retention.bytes"]), values["cleanup.policy"]
    )


def retention_words(retention_ms: int, retention_bytes: int, cleanup_policy: str) -> str:
    """The limits of a topic in words."""
    if "delete" not in cleanup_policy:
        return "it keeps the last message of each key (cleanup.policy=compact)"
    limits = []
    if retention_ms >= 0:
        hours, rest = divmod(retention_ms, HOUR_MS)
        time = f"{hours} h" if not rest else f"{retention_ms / 1000:g} s"
        limits.append(f"for {time} (retention.ms)")
    if retention_bytes >= 0:
        limits.append(f"up to {retention_bytes} bytes of a partition (retention.bytes)")
    return "it keeps messages " + (" and ".join(limits) or "for ever (no limit is set)")


def _segment(each: Any) -> Segment:
    return Segment(
        partition=each.partition,
        first_offset=each.base_offset,
        next_offset=each.next_offset,
        size_bytes=each.size_bytes,
        newest_ms=each.max_timestamp if each.max_timestamp >= 0 else None,
        active=each.active,
        goes_at_ms=each.goes_at_ms if each.HasField("goes_at_ms") else None,
        reason=each.reason or None,
        goes_after_bytes=each.goes_after_bytes if each.HasField("goes_after_bytes") else None,
        protection=each.protection or None,
    )


def _disk(answer: Any) -> BrokerDisk:
    return BrokerDisk(
        broker=answer.broker_id,
        used_bytes=answer.disk_used_bytes,
        total_bytes=answer.disk_total_bytes,
        expired_percent=answer.expired_percent,
        forced_percent=answer.forced_percent,
        refused_percent=answer.refused_percent,
        refuses_writes=answer.refuses_writes,
        delete_at=answer.delete_at or None,
        clock_held=answer.clock_held,
        beyond_help=answer.beyond_help,
        day_bytes=answer.day_bytes,
        now_ms=answer.now_ms,
    )

"""The answer to ExplainRetention: a forecast of the policy as a message."""

from typing import Final

from zhumq.model.ids import BrokerId
from zhumq.protocol.push import push_pb2 as pb
from zhumq.storage.retention_forecast import SegmentForecast
from zhumq.storage.retention_pass import TopicForecast

SEGMENTS_MAX: Final = 10_000  # of one answer, so that it stays below the 4 MiB that clients take


def retention_answer(
    forecast: TopicForecast, broker_id: BrokerId, *, refuses_writes: bool
) -> pb.ExplainRetentionResponse:
    """The forecast of a broker for a topic. Of very many segments, the oldest of each partition."""
    marks, minute = forecast.watermarks, forecast.start_minute
    each_max = SEGMENTS_MAX // max(len(forecast.partitions), 1)
    return pb.ExplainRetentionResponse(
        broker_id=broker_id,
        now_ms=forecast.now_ms,
        segments=[
            _segment(partition.facts.topic_partition.partition, each)
            for partition in forecast.partitions
            for each in partition.segments[:each_max]
        ],
        segments_left_off=sum(
            max(len(partition.segments) - each_max, 0) for partition in forecast.partitions
        ),
        day_bytes=forecast.day_bytes,
        disk_used_bytes=forecast.usage.used_bytes,
        disk_total_bytes=forecast.usage.total_bytes,
        expired_percent=marks.expired_percent,
        forced_percent=marks.forced_percent,
        refused_percent=marks.refused_percent,
        refuses_writes=refuses_writes,
        delete_at="" if minute is None else f"{minute // 60:02d}:{minute % 60:02d}",
        clock_held=forecast.is_clock_held,
        beyond_help=forecast.is_beyond_help,
    )


def _segment(partition: int, each: SegmentForecast) -> pb.RetentionSegment:
    segment = each.segment
    return pb.RetentionSegment(
        partition=partition,
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        max_timestamp=segment.max_timestamp,
        active=each.is_active,
        goes_at_ms=each.goes_at_ms,
        reason=each.reason or "",
        goes_after_bytes=each.goes_after_bytes,
        protection=each.protection or "",
    )

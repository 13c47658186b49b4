"""Decides which segments retention deletes. A pure function, without I/O."""

from collections.abc import Sequence
from dataclasses import dataclass


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
    # Only the leader applies the retention policy: a follower adopts its log start offset.
    is_leader: bool = True
    # If there are other replicas, retention keeps the last batch, with its epoch.
    is_sole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The retention limits of a log; -1: no limit."""

    retention_ms: int
    retention_bytes: int
    log_start_offset: int


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    policy: RetentionPolicy,
    high_watermark: int,
    now_ms: int,
) -> int:
    """The number of oldest segments to delete.

    Always a prefix of the log: all segments after one that stays are kept.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - policy.retention_bytes
    count = 0
    for segment in segments:
        # Followers may still need what is above the high watermark, and consumers have not seen it.
        if segment.next_offset > high_watermark or not segment.size_bytes:
            break
        below_start = segment.next_offset <= policy.log_start_offset
        too_old = 0 <= policy.retention_ms < now_ms - segment.max_timestamp
        too_much = policy.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (below_start or too_much or (too_old and segment.max_timestamp >= 0)):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count

"""Limits and times of half messages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfSettings:
    """Plain values from the broker's settings."""

    first_check_ms: int = 6_000
    check_interval_ms: int = 30_000
    checks_max: int = 15
    pending_max: int = 100_000  # of a shard, with what is listed
    retention_ms: int = 7 * 24 * 3_600_000  # of what no producer decides

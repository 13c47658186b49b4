"""Acknowledgements of offset ranges, and the ranges that a member has acquired."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class AckKind(IntEnum):
    """Result of delivered records; the numbers are KIP-932's acknowledge types."""

    GAP = 0  # there was no record at this offset
    ACCEPT = 1  # processed: never deliver again
    RELEASE = 2  # not processed: deliver again, to any member
    REJECT = 3  # no member can process it: write a dead letter
    RENEW = 4  # still being processed: extend the lock


class AcquiredRange(NamedTuple):
    """Offsets that a member has acquired; `delivery_count` includes this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One kind of acknowledgement for a range of offsets."""

    first_offset: int
    last_offset: int
    kind: AckKind
    # Written to the dead letter.
    reason: str = ""
    # RELEASE: whether this delivery counts. It does not if the consumer never processed the records.
    counts: bool = True
    # RELEASE: delay before redelivery; None: the policy's backoff.
    delay_ms: int | None = None
    # RENEW: the new lock duration from now on; None: that of the share partition.
    lock_ms: int | None = None


def joined_ranges(ranges: Sequence[AcquiredRange]) -> list[AcquiredRange]:
    """Adjacent ranges with equal delivery counts as one."""
    joined: list[AcquiredRange] = []
    for each in ranges:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.last_offset + 1 == each.first_offset
            and last.delivery_count == each.delivery_count
        ):
            joined[-1] = last._replace(last_offset=each.last_offset)
        else:
            joined.append(each)
    return joined

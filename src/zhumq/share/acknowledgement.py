"""What consumers say about what they were given: acknowledgements of ranges, and ranges themselves."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class AckKind(IntEnum):
    """What became of delivered records; the numbers are those of KIP-932's acknowledge types."""

    GAP = 0  # there was no record at this offset
    ACCEPT = 1  # processed: never to be delivered again
    RELEASE = 2  # not processed: deliver again, to anybody
    REJECT = 3  # cannot be processed by anybody: to the dead letters
    RENEW = 4  # still being processed: keep the lock for longer


class AcquiredRange(NamedTuple):
    """Offsets that a member holds now, all delivered this often, this time included."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One kind of answer for a range of offsets."""

    first_offset: int
    last_offset: int
    kind: AckKind
    # Kept with a dead letter.
    reason: str = ""
    # RELEASE: whether this delivery counts. Not if its consumer never looked at the records.
    counts: bool = True
    # RELEASE: how long the records wait before they are delivered again; None: the policy's backoff.
    delay_ms: int | None = None
    # RENEW: for how long from now on; None: for as long as the window's locks are.
    lock_ms: int | None = None

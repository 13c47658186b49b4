"""The delay of a message as a producer gives it: seconds, a name such as "10m", or a time."""

import math
from datetime import datetime, timedelta
from typing import Final

from zhumq.model.delay_headers import (
    DELAY_LEVEL_HEADER,
    DELAY_LEVELS_MS,
    DELAY_MS_HEADER,
    DELIVER_AT_HEADER,
)

Delay = float | timedelta | str
DeliverAt = datetime | int
_TIME_MS_MIN: Final = 10**11  # 1973: a smaller number is in seconds, by mistake


def delay_header(delay: Delay | None, deliver_at: DeliverAt | None) -> tuple[str, str] | None:
    """The header for a delay (seconds, a timedelta, or one of RocketMQ's levels by name), or for a time (a datetime with a
    time zone, or milliseconds since 1970); None for neither. Raises ValueError."""
    if delay is not None and deliver_at is not None:
        raise ValueError("give delay or deliver_at, not both")
    if deliver_at is not None:
        return DELIVER_AT_HEADER, str(_time_ms(deliver_at))
    if delay is None:
        return None
    if isinstance(delay, str):
        if delay not in DELAY_LEVELS_MS:
            raise ValueError(f"delay={delay!r} is none of {' '.join(DELAY_LEVELS_MS)}")
        return DELAY_LEVEL_HEADER, delay
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"delay={seconds} is not a number of seconds from 0 on")
    return DELAY_MS_HEADER, str(round(seconds * 1000))


def _time_ms(deliver_at: DeliverAt) -> int:
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise ValueError(f"deliver_at={deliver_at} has no time zone: use datetime.now(UTC)")
        return max(round(deliver_at.timestamp() * 1000), 0)
    if deliver_at < _TIME_MS_MIN:
        raise ValueError(f"deliver_at={deliver_at} is milliseconds since 1970: time.time() * 1000")
    return deliver_at

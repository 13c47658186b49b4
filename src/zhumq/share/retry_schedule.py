"""Retry schedules of groups as text: a fixed time, a list of times, or a range that is doubled through. Pure."""

import re
from dataclasses import replace
from typing import Final

from zhumq.share.redelivery import RedeliveryPolicy

DELAYS_MAX: Final = 32
DELAY_MS_MAX: Final = 24 * 3_600_000  # A message that waits takes a place among those in flight.
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_TIME: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h)")
_RANGE: Final = ".."


class ScheduleInvalid(ValueError):
    """The text is no schedule; the message says why."""


def with_schedule(policy: RedeliveryPolicy, text: str) -> RedeliveryPolicy:
    """The policy with the times of a schedule; empty: its own. Raises ScheduleInvalid.

    `30s` is a fixed time, `10s,1m,10m` a list whose last time is repeated, `1s..10m` is doubled after each failure.
    """
    text = text.strip()
    if not text:
        return policy
    if _RANGE in text:
        first, _, last = text.partition(_RANGE)
        first_ms, last_ms = _parse(first), _parse(last)
        if not 0 < first_ms <= last_ms:
            raise ScheduleInvalid(f"{text!r} does not go from a shorter to a longer time")
        return replace(policy, backoff_ms=first_ms, backoff_ms_max=last_ms, delays_ms=())
    delays_ms = tuple(_parse(each) for each in text.split(","))
    if len(delays_ms) > DELAYS_MAX:
        raise ScheduleInvalid(f"a retry schedule has at most {DELAYS_MAX} times")
    return replace(policy, delays_ms=delays_ms)


def _parse(text: str) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ScheduleInvalid(
            f"{text.strip()!r} is no time: write 30s, or 10s,1m,10m, or 1s..10m (ms, s, m, h)"
        )
    delay_ms = int(found[1]) * _UNITS_MS[found[2]]
    if delay_ms > DELAY_MS_MAX:
        raise ScheduleInvalid(f"{text.strip()!r} is longer than 24h")
    return delay_ms

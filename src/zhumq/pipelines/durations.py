"""Times such as `10 minutes` or `90m`, as Spark writes them and shorter. Pure."""

import re
from typing import Final

DURATION_MS_MAX: Final = 366 * 86_400_000

# As Spark writes them, `1 hour 30 minutes`, and shorter, `90m`.
_DURATION: Final = re.compile(
    r"(\d{1,9})\s*(ms|s|m|h|d|w|milliseconds?|seconds?|minutes?|hours?|days?|weeks?)(?:\s+|$)"
)
_UNIT_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000,
}  # fmt: skip


def parse_duration_ms(text: str) -> int | None:
    """The time in milliseconds; None if it is none."""
    left, total_ms = text.strip().lower().removeprefix("interval ").strip(), 0
    while match := _DURATION.match(left):
        unit = "ms" if match[2].startswith("mil") else match[2]
        total_ms += int(match[1]) * _UNIT_MS[unit if unit == "ms" else unit[0]]
        left = left[match.end() :]
    return None if left or not text.strip() else total_ms

"""Headers that delay a message, which any Kafka client can set, and RocketMQ's delay levels as names."""

from collections.abc import Mapping
from typing import Final

DELIVER_AT_HEADER: Final = "zhumq-deliver-at"  # milliseconds since 1970
DELAY_MS_HEADER: Final = "zhumq-delay-ms"
DELAY_LEVEL_HEADER: Final = "zhumq-delay-level"
DELAY_HEADERS: Final = frozenset({DELIVER_AT_HEADER, DELAY_MS_HEADER, DELAY_LEVEL_HEADER})
DELAY_HEADERS_PREFIX: Final = b"zhumq-del"  # of all three

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS

DELAY_LEVELS_MS: Final[Mapping[str, int]] = {
    "1s": _SECOND_MS,
    "5s": 5 * _SECOND_MS,
    "10s": 10 * _SECOND_MS,
    "30s": 30 * _SECOND_MS,
    **{f"{minutes}m": minutes * _MINUTE_MS for minutes in (*range(1, 11), 20, 30)},
    "1h": _HOUR_MS,
    "2h": 2 * _HOUR_MS,
}

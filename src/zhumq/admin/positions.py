"""Parses a position in a topic: earliest, latest, an offset or a time. Pure."""

from datetime import datetime
from typing import Final

from zhumq.admin.errors import Refused
from zhumq.admin.offsets import Position

DIGITS_MAX: Final = 19  # of a 64-bit number
INT64_MAX: Final = 2**63 - 1


def parse_position(text: str, *, name: str) -> Position:
    """Parse earliest, latest, an offset, an ISO 8601 time, or @MILLISECONDS since 1970. `name` begins the error."""
    if text in ("earliest", "latest"):
        return Position(edge=text)
    digits = text.removeprefix("@")
    if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX:
        number = min(int(digits), INT64_MAX)
        return Position(timestamp_ms=number) if text != digits else Position(offset=number)
    try:
        # A time without a zone is local time.
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):  # OverflowError: a zone moves it out of the calendar
        raise Refused(
            f"{name} takes earliest, latest, an offset, a time such as 2026-01-31T09:00:00Z, "
            f"or @MILLISECONDS, not {text!r}"
        ) from None
    return Position(timestamp_ms=int(moment.timestamp() * 1000))

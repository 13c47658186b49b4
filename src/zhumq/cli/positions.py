"""Parses a position in a topic: earliest, latest, an offset or a time."""

from datetime import datetime

from zhumq.admin.offsets import Position
from zhumq.cli.options import INT64_MAX, CommandFailed

DIGITS_MAX = 19  # of a 64-bit number


def parse_position(text: str, *, option: str) -> Position:
    """Parse earliest, latest, an offset, an ISO 8601 time, or @MILLISECONDS since 1970."""
    if text in ("earliest", "latest"):
        return Position(edge=text)
    digits = text.removeprefix("@")
    if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX:
        number = min(int(digits), INT64_MAX)
        return Position(timestamp_ms=number) if text != digits else Position(offset=number)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(
            f"{option} takes earliest, latest, an offset, a time such as 2026-01-31T09:00:00Z, "
            f"or @MILLISECONDS, not {text!r}"
        ) from None
    # A time without a zone is local time.
    return Position(timestamp_ms=int(moment.astimezone().timestamp() * 1000))


def parse_time(text: str | None, option: str) -> int | None:
    """Parse an optional time: ISO 8601, or @MILLISECONDS since 1970. Returns milliseconds."""
    if text is None:
        return None
    position = parse_position(text, option=option)
    if position.timestamp_ms is None:
        raise CommandFailed(
            f"{option} takes a time such as 2026-01-31T09:00:00Z, or @MILLISECONDS, not {text!r}"
        )
    return position.timestamp_ms

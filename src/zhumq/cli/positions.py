"""Positions and times as options of commands."""

from zhumq.admin import positions
from zhumq.admin.errors import Refused
from zhumq.admin.offsets import Position
from zhumq.cli.options import CommandFailed


def parse_position(text: str, *, option: str) -> Position:
    """Parse earliest, latest, an offset, an ISO 8601 time, or @MILLISECONDS since 1970."""
    try:
        return positions.parse_position(text, name=option)
    except Refused as error:
        raise CommandFailed(str(error)) from None


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

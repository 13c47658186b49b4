"""Reads from the headers of a message when it is due. Pure."""

from collections.abc import Iterable
from typing import Final

from zhumq.model.delay_headers import (
    DELAY_HEADERS,
    DELAY_LEVEL_HEADER,
    DELAY_LEVELS_MS,
    DELAY_MS_HEADER,
    DELIVER_AT_HEADER,
)
from zhumq.model.errors import InvalidRecord
from zhumq.records.batch import Record, RecordHeader

NAMED_RECORDS_MAX: Final = 1_000  # the invalid records of a batch that an error lists
DIGITS_MAX: Final = 19  # of a number in a header: more than any time has


class InvalidDelay(ValueError):
    """The delay headers of a message are wrong; the text says what to do."""


def due_times(records: Iterable[Record], now_ms: int, delay_max_ms: int) -> list[int | None]:
    """When each record is due; None for one that is not delayed. Raises InvalidRecord, which lists the invalid records."""
    dues: list[int | None] = []
    invalid: list[int] = []
    reason = ""
    for index, record in enumerate(records):
        due_ms = None
        if record.headers:
            try:
                due_ms = due_time(record.headers, now_ms, delay_max_ms)
            except InvalidDelay as error:
                reason = reason or str(error)
                invalid.append(index)
        dues.append(due_ms)
    if invalid:
        raise InvalidRecord(reason, tuple(invalid[:NAMED_RECORDS_MAX]))
    return dues


def due_time(headers: Iterable[RecordHeader], now_ms: int, delay_max_ms: int) -> int | None:
    """When a message with these headers is due; None if that is now. Raises InvalidDelay."""
    given = [each for each in headers if each.key in DELAY_HEADERS]
    if not given:
        return None
    if len(given) > 1:
        names = " and ".join(sorted(each.key for each in given))
        raise InvalidDelay(f"a message has one delay header, not {names}")
    name, value = given[0]
    if name == DELAY_LEVEL_HEADER:
        due_ms = now_ms + _level_ms(value)
    else:
        number = _number(name, value)
        due_ms = number if name == DELIVER_AT_HEADER else now_ms + number
    if due_ms > now_ms + delay_max_ms:
        raise InvalidDelay(
            f"a message is delayed by at most {delay_max_ms} ms"
            f" (delayed.message.delay.max.ms), not by {due_ms - now_ms} ms"
        )
    return due_ms if due_ms > now_ms else None


def delivered_headers(headers: Iterable[RecordHeader], due_ms: int) -> tuple[RecordHeader, ...]:
    """The headers that consumers see: the time at which the message was due in place of its delay. A consumer that sends
    the message on with its headers does not delay it again."""
    kept = (each for each in headers if each.key not in DELAY_HEADERS)
    return (*kept, RecordHeader(DELIVER_AT_HEADER, b"%d" % due_ms))


def _level_ms(value: bytes | None) -> int:
    try:
        return DELAY_LEVELS_MS[(value or b"").decode()]
    except (KeyError, UnicodeDecodeError):
        levels = " ".join(DELAY_LEVELS_MS)
        raise InvalidDelay(
            f"{DELAY_LEVEL_HEADER} is one of {levels}, not {_shown(value)}"
        ) from None


def _number(name: str, value: bytes | None) -> int:
    what = "a delay in milliseconds" if name == DELAY_MS_HEADER else "milliseconds since 1970"
    digits = (value or b"").removeprefix(b"-")
    if not digits.isdigit() or len(digits) > DIGITS_MAX:
        raise InvalidDelay(f"{name} is {what} as decimal digits, not {_shown(value)}")
    if value != digits:
        raise InvalidDelay(f"{name} is {what}, and not below zero: {_shown(value)}")
    return int(digits)


def _shown(value: bytes | None) -> str:
    return "null" if value is None else ascii(value[:40].decode(errors="replace"))

"""Runs `zhumq pipeline upkeep`: makes the files of Delta tables fewer."""

from dataclasses import asdict
from typing import Final

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import headings, print_table
from zhumq.pipelines.delta_layout import (
    DELETES_OLDER_THAN_MS_DEFAULT,
    EXPIRY_MS_MAX,
    EXPIRY_MS_MIN,
    OLDER_THAN_MS_DEFAULT,
    OLDER_THAN_MS_MIN,
    Expiry,
)
from zhumq.pipelines.delta_upkeep import keep_up
from zhumq.pipelines.durations import DURATION_MS_MAX, parse_duration_ms

COLUMNS: Final = headings("table files merged removed forgotten expired")


def keep_up_tables(
    tables: list[str],
    *,
    older_than: str | None,
    deletes_older_than: str | None,
    expire: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Keep up tables, one after the other. Raises ZhumqError."""
    age_ms = _age_ms("--older-than", older_than, OLDER_THAN_MS_DEFAULT)
    deletes_ms = _age_ms("--deletes-older-than", deletes_older_than, DELETES_OLDER_THAN_MS_DEFAULT)
    expiry = _expiry(expire)
    done = [
        each
        for table in tables
        for each in keep_up(
            table,
            older_than_ms=age_ms,
            deletes_older_than_ms=deletes_ms,
            expiry=expiry,
            dry_run=dry_run,
        )
    ]
    print_table([asdict(each) for each in done], COLUMNS, empty="", as_json=as_json)


def _age_ms(option: str, text: str | None, default_ms: int) -> int:
    if text is None:
        return default_ms
    age_ms = parse_duration_ms(text)
    if age_ms is None:
        raise CommandFailed(f"{option} is a time such as 7d or 12h, not {text!r}")
    if not OLDER_THAN_MS_MIN <= age_ms <= DURATION_MS_MAX:
        raise CommandFailed(
            f"{option} is {text}, and must be an hour to a year: a shorter time would remove the files"
            " of a batch that is being written"
        )
    return age_ms


def _expiry(text: str | None) -> Expiry | None:
    if text is None:
        return None
    column, _, age = text.partition("=")
    after_ms = parse_duration_ms(age)
    if not column or after_ms is None or not EXPIRY_MS_MIN <= after_ms <= EXPIRY_MS_MAX:
        raise CommandFailed(
            f"--expire is COLUMN=TIME, a time of a day to 100 years, as date=90d; not {text!r}"
        )
    return Expiry(column=column, after_ms=after_ms)

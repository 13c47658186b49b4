"""Runs `zhumq pipeline upkeep`: makes the files of Delta tables fewer."""

from dataclasses import asdict
from typing import Final

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import headings, print_table
from zhumq.pipelines.delta_layout import (
    DELETES_OLDER_THAN_MS_DEFAULT,
    OLDER_THAN_MS_DEFAULT,
    OLDER_THAN_MS_MIN,
)
from zhumq.pipelines.delta_upkeep import keep_up
from zhumq.pipelines.durations import DURATION_MS_MAX, parse_duration_ms

COLUMNS: Final = headings("table files merged removed forgotten")


def keep_up_tables(
    tables: list[str],
    *,
    older_than: str | None,
    deletes_older_than: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Keep up tables, one after the other. Raises ZhumqError."""
    age_ms = _age_ms("--older-than", older_than, OLDER_THAN_MS_DEFAULT)
    deletes_ms = _age_ms("--deletes-older-than", deletes_older_than, DELETES_OLDER_THAN_MS_DEFAULT)
    done = [
        each
        for table in tables
        for each in keep_up(
            table, older_than_ms=age_ms, deletes_older_than_ms=deletes_ms, dry_run=dry_run
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

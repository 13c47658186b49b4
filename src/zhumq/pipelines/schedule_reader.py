"""Reads the schedules of a pipeline file: of the pipeline, and of the upkeep of its tables."""

import re
from collections.abc import Collection
from typing import Final

from zhumq.pipelines.delta_layout import (
    DELETES_OLDER_THAN_MS_DEFAULT,
    EXPIRY_MS_MAX,
    EXPIRY_MS_MIN,
    OLDER_THAN_MS_DEFAULT,
    OLDER_THAN_MS_MIN,
    Expiry,
)
from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.durations import parse_duration_ms
from zhumq.pipelines.schedule import MINUTE_MS, Schedule
from zhumq.pipelines.spec import TableUpkeep, Trigger, TriggerKind
from zhumq.pipelines.step_reader import duration_ms

TIMES_MAX: Final = 48  # of a day
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def read_schedule(field: Field | None, trigger: Trigger) -> Schedule | None:
    """The schedule of a pipeline. Raises SpecInvalid."""
    if field is None:
        return None
    if trigger.kind is TriggerKind.INTERVAL:
        field.fail(
            f"is for runs that end: trigger: available-now or batch. With {trigger.interval} the run"
            " goes on until it is stopped"
        )
    fields = field.fields()
    fields.only("every", "at")
    return _times(fields)


def read_upkeep(
    field: Field | None, path: str, partition_by: Collection[str]
) -> TableUpkeep | None:
    """When a Delta table is kept up, and what is removed. Raises SpecInvalid."""
    if field is None:
        return None
    if "://" in path.removeprefix("file://"):
        field.fail("is for tables on the file system of the machine that runs the pipeline")
    fields = field.fields()
    fields.only("every", "at", "older_than", "deletes_older_than", "expire")
    return TableUpkeep(
        mark=field.mark,
        schedule=_times(fields),
        older_than_ms=_age_ms(fields.get("older_than"), OLDER_THAN_MS_DEFAULT),
        deletes_older_than_ms=_age_ms(
            fields.get("deletes_older_than"), DELETES_OLDER_THAN_MS_DEFAULT
        ),
        expiry=_expiry(fields.get("expire"), partition_by),
    )


def _expiry(field: Field | None, partition_by: Collection[str]) -> Expiry | None:
    """`{date: 90d}`: a column that the table is partitioned by, and how long its days are kept."""
    if field is None:
        return None
    found = list(field.fields())
    if len(found) != 1:
        field.fail("is one column and how long its days are kept, as {date: 90d}")
    (column, age), *_ = found
    if column not in partition_by:
        age.fail(
            f"the table is not partitioned by {column!r}: rows expire by partitions, see partition_by"
        )
    after_ms = parse_duration_ms(age.text())
    if after_ms is None or not EXPIRY_MS_MIN <= after_ms <= EXPIRY_MS_MAX:
        age.fail(f"is a time of a day to 100 years, such as 90d, not {age.text()!r}")
    return Expiry(column=column, after_ms=after_ms)


def _times(fields: Fields) -> Schedule:
    kind, what = fields.one_of("every", "at")
    if kind == "every":
        every_ms = duration_ms(what)
        if every_ms < MINUTE_MS:
            what.fail("must be a minute or longer")
        return Schedule(every_ms=every_ms)
    items = what.items()
    if not items:
        what.fail("names no time")
    if len(items) > TIMES_MAX:
        what.fail(f"names more than {TIMES_MAX} times of the day")
    found = [_time_ms(each) for each in items]
    for index, each in enumerate(found):
        if each in found[:index]:
            items[index].fail(f"names the time {items[index].text()} twice")
    return Schedule(at_ms=tuple(sorted(found)))


def _time_ms(field: Field) -> int:
    match = _TIME.fullmatch(field.text())
    if match is None:
        field.fail(f"is a time of the day in UTC such as 04:00, not {field.text()!r}")
    return (int(match[1]) * 60 + int(match[2])) * MINUTE_MS


def _age_ms(field: Field | None, default_ms: int) -> int:
    if field is None:
        return default_ms
    age_ms = duration_ms(field)
    if age_ms < OLDER_THAN_MS_MIN:
        field.fail(
            "must be an hour or longer: a shorter time would remove the files of a batch that is being"
            " written"
        )
    return age_ms

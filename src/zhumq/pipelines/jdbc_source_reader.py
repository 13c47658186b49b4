"""Reads the sources of a pipeline file that are tables or queries of a database."""

import re
from typing import Final

from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.durations import DURATION_MS_MAX, parse_duration_ms
from zhumq.pipelines.jdbc_reader import read_database
from zhumq.pipelines.jdbc_statements import Database, database_of, is_table_name
from zhumq.pipelines.spec import JdbcSource, Lag
from zhumq.pipelines.step_reader import read_watermark

ROWS_PER_BATCH: Final = 100_000
PARTITIONS_MAX: Final = 100  # each is a connection
_VALUES: Final = re.compile(r"\d{1,15}")
_QUERY: Final = re.compile(r"\s*(?:SELECT|WITH)\b", re.IGNORECASE)
# What the file says with fields of its own.
_OPTIONS_OF_FIELDS: Final = {
    "numpartitions": "partitions",
    "partitioncolumn": "partition_by",
    "lowerbound": "partition_by",
    "upperbound": "partition_by",
    "driver": "a URL of a database that is known",
}


def read_source(name: str, fields: Fields, what: Field, *, streaming: bool) -> JdbcSource:
    """The source of these fields. Raises SpecInvalid."""
    fields.only(
        "jdbc", "grows", "lag", "rows_per_batch", "may_shrink", "partitions", "partition_by",
        "watermark", "options",
    )  # fmt: skip
    text = what.text().strip().rstrip(";")
    is_query = _QUERY.match(text) is not None
    if not is_query and not is_table_name(text):
        what.fail(f"is a table such as orders or shop.orders, or a SELECT, not {text!r}")
    grows, partitions, by = (fields.get(each) for each in ("grows", "partitions", "partition_by"))
    for each in ("lag", "rows_per_batch", "may_shrink", "watermark"):
        given = fields.get(each)
        if given is not None and grows is None:
            given.fail("is for a source with `grows`, which is read row by row as it grows")
    lag, per_batch, may_shrink = (
        fields.get(each) for each in ("lag", "rows_per_batch", "may_shrink")
    )
    if (partitions is None) != (by is None):
        (partitions or by or what).fail(
            "goes with another field: partitions: 4 and partition_by: id, a column of whole numbers"
        )
    count = partitions.number() if partitions else 1
    if partitions is not None and count > PARTITIONS_MAX:
        partitions.fail(f"is more than {PARTITIONS_MAX}, and each is a connection")
    options = read_database(fields)
    return JdbcSource(
        name=name,
        mark=what.mark,
        database=_database(fields, options["url"]),
        what=text,
        is_query=is_query,
        options=options,
        # A batch reads all rows; what grows does not matter to it.
        grows=grows.text() if grows and streaming else None,
        grows_mark=(grows or what).mark,
        lag=_lag(lag) if lag else None,
        rows_per_batch=per_batch.number() if per_batch else ROWS_PER_BATCH,
        may_shrink=may_shrink.flag() if may_shrink else False,
        partitions=count,
        partition_by=by.text() if by else None,
        partition_mark=(by or what).mark,
        watermark=read_watermark(fields.get("watermark")),
    )


def _database(fields: Fields, url: str) -> Database:
    given = fields.need("options").fields()
    for name, part in given:
        own = _OPTIONS_OF_FIELDS.get(name.lower())
        if own is not None:
            part.fail(f"is not an option here: give {own}")
    database = database_of(url)
    if database is None:
        known = " and ".join(f"jdbc:{each}" for each in Database)
        given.need("url").fail(
            f"is not of a database that a source knows: {known}; of others, a `table` with format: jdbc"
            " reads all rows"
        )
    return database


def _lag(field: Field) -> Lag:
    text = field.text().replace("_", "")
    if _VALUES.fullmatch(text):
        return Lag(amount=int(text), is_time=False)
    time_ms = parse_duration_ms(text)
    if time_ms is None or time_ms > DURATION_MS_MAX:
        field.fail("is a time such as 30s, or a number of values such as 1000")
    return Lag(amount=time_ms, is_time=True)

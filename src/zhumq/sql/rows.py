"""The rows of a topic and of its archive as one DataFrame, with the fields of the messages as columns."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from zhumq.admin.schemas import ReadableSchema
from zhumq.model.errors import ZhumqError
from zhumq.pipelines.archive import ArchiveTable
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import explain
from zhumq.pipelines.ddl import parse_ddl
from zhumq.pipelines.document import Mark
from zhumq.pipelines.json_columns import json_columns
from zhumq.pipelines.message_schemas import MessageSchema, registry_decoder
from zhumq.pipelines.parsing import parse, without_frame
from zhumq.pipelines.routing import REASON
from zhumq.pipelines.spec import OnChange, OnError, ParseFormat, ParseStep
from zhumq.sql.boundary import PartitionSplit

RECORD: Final = ("key", "value", "partition", "offset", "timestamp", "headers")
SHOWN_OF_RECORD: Final = ("key", "partition", "offset", "timestamp", "headers")
ERROR: Final = "_error"  # why a message has no fields
# A record's column that a field of the message hides has this before its name.
HIDDEN_PREFIX: Final = "_record_"
_ARCHIVE_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_FORMATS: Final = {
    "AVRO": ParseFormat.AVRO, "PROTOBUF": ParseFormat.PROTOBUF, "JSON": ParseFormat.JSON,
}  # fmt: skip


class ArchiveUnusable(ZhumqError):
    """A folder that is no archive of a topic."""


def archived_offsets(table: ArchiveTable, topic: str, *, must_exist: bool) -> dict[int, int]:
    """The next offset of each partition that the archive has committed. Raises ArchiveUnusable."""
    states = table.states()
    if not states and must_exist:
        raise ArchiveUnusable(
            f"{table.path} is no archive: it has no _zhumq/*.state.json; `zhumq pipeline run archive"
            f" --set topic={topic} --set table=PATH` makes one"
        )
    found = table.next_offsets()
    if must_exist and topic not in found and any(found.values()):
        others = ", ".join(sorted(found))
        raise ArchiveUnusable(f"{table.path} is an archive of {others}, not of {topic}")
    return {int(partition): end for partition, end in found.get(topic, {}).items()}


def topic_rows(
    spark: SparkSession,
    brokers: Brokers,
    topic: str,
    splits: Mapping[int, PartitionSplit],
    *,
    pushes_filters: bool,
) -> DataFrame:
    """What the topic has of the splits."""
    first = {str(number): split.first_offset for number, split in splits.items()}
    until = {str(number): split.until_offset for number, split in splits.items()}
    options = {
        **brokers.options(),
        # The partitions by number: one that is added meanwhile belongs to the next query.
        "assign": json.dumps({topic: sorted(splits)}),
        "startingOffsets": json.dumps({topic: first}),
        "endingOffsets": json.dumps({topic: until}),
        "includeHeaders": "true",
        "pushFilters": "true" if pushes_filters else "false",
    }
    return spark.read.format("zhumq").options(**options).load().select(*RECORD)


def archive_rows(
    spark: SparkSession, path: str, topic: str, splits: Mapping[int, PartitionSplit]
) -> DataFrame:
    """What the archive has of the splits. Files of a batch that is not committed have none of it."""
    try:
        names = spark.read.parquet(path).columns
        missing = sorted(set(_ARCHIVE_TYPES) - {"headers"} - set(names))
        if missing:
            raise ArchiveUnusable(
                f"the archive {path} has no column {missing[0]!r}; it has {', '.join(names)}"
            )
        # With types of our own: Spark would take a topic named 0042 in a folder's name for a number.
        schema = ", ".join(f"`{name}` {kind}" for name, kind in _ARCHIVE_TYPES.items())
        rows = spark.read.schema(schema).parquet(path)
    except PySparkException as error:
        raise ArchiveUnusable(f"cannot read the archive {path}: {explain(error)}") from None
    below = F.lit(False)
    for number, split in sorted(splits.items()):
        if split.archived_until:
            below |= (F.col("partition") == number) & (F.col("offset") < split.archived_until)
    return rows.where((F.col("topic") == topic) & below).select(*RECORD)


def with_fields(rows: DataFrame, topic: str, versions: Sequence[ReadableSchema]) -> DataFrame:
    """The fields of the newest schema as columns, then those of the record. Raises SchemaError, SpecInvalid."""
    newest = versions[-1] if versions else None
    if newest is None or newest.type not in _FORMATS:
        return rows.withColumn("topic", F.lit(topic)).select(*RECORD)
    mark = Mark(file=newest.subject, line=newest.version, field="", text_line=1)
    decoder, ddl = None, ""
    if newest.type != "JSON":
        decoder = registry_decoder(newest, versions, needs_choice=False)
        fields = [name for name, _ in decoder.columns]
    else:
        ddl = json_columns(newest.schema, newest.uses)
        fields = [each.name for each in parse_ddl(ddl)]
    step = ParseStep(
        name=topic, mark=mark, input=topic,
        format=_FORMATS[newest.type],
        column="value", column_mark=mark, schema=ddl, schema_mark=mark, source=None, options={},
        on_error=OnError.DEAD_LETTERS, on_change=OnChange.IGNORE,
    )  # fmt: skip
    kept = {f"{HIDDEN_PREFIX}{name}": F.col(name) for name in (*SHOWN_OF_RECORD, "value")}
    source = rows.withColumns(kept)
    if decoder is None:
        source = source.withColumn("value", without_frame(F.col("value")))
    parsed = parse(source, step, MessageSchema(decoder=decoder))
    taken = {name.lower() for name in fields}
    columns = [F.col(f"`{name}`") for name in fields]
    columns += [
        F.col(f"{HIDDEN_PREFIX}{name}" if name in taken else name) for name in SHOWN_OF_RECORD
    ]
    # A message without a value is no mistake: it deletes its key.
    reason = F.when(F.col(f"{HIDDEN_PREFIX}value").isNotNull(), F.col(REASON))
    return parsed.select(*columns, reason.alias(ERROR))

"""The spec of a pipeline as data: sources, steps, sinks and a trigger."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from zhumq.pipelines.delta_layout import Expiry
from zhumq.pipelines.document import Mark
from zhumq.pipelines.jdbc_spec import JdbcTarget
from zhumq.pipelines.jdbc_statements import Database
from zhumq.pipelines.schedule import Schedule

# Each batch is written to a staging folder and moved into the table, so exactly once.
FILE_FORMATS: Final = ("parquet", "orc", "json", "csv")
TABLE_FORMATS: Final = (*FILE_FORMATS, "delta", "iceberg", "jdbc")
DEAD_LETTERS: Final = "dead_letters"
# The rows that expect steps send to a sink are the input of that sink; no view has such a name.
QUARANTINE: Final = "quarantine of "
# Columns that pipelines use for themselves: no field of a schema has such a name.
RESERVED_COLUMNS: Final = (
    "_message", "_reason", "_change", "_added", "_parsed", "_corrupt", "_keys", "_values",
)  # fmt: skip
# Options of a stream that a batch does not have, and the group, whose offsets a preview leaves alone.
STREAM_OPTIONS: Final = frozenset(
    {
        "groupid", "groupidprefix", "maxoffsetspertrigger", "minoffsetspertrigger",
        "maxbytespertrigger", "maxtriggerdelay",
    }
)  # fmt: skip
KEPT_COLUMNS: Final = ("headers", "partition", "timestamp")


class TriggerKind(StrEnum):
    """When a pipeline runs, and when it ends."""

    BATCH = "batch"  # reads everything once, without a checkpoint
    AVAILABLE_NOW = "available-now"  # reads what is new since the last run, then ends
    INTERVAL = "interval"  # starts a micro-batch at each interval until it is stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    kind: TriggerKind
    interval: str | None = None  # in Spark's syntax, e.g. "10 seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late a row may come before its window is closed."""

    column: str
    delay: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Topics of a broker, or segment folders without one; the options of `format("zhumq")`."""

    name: str
    mark: Mark
    options: Mapping[str, str]
    watermark: Watermark | None

    @property
    def batch_options(self) -> dict[str, str]:
        """The options for one read of what is there, which leaves no trace."""
        kept = {
            name: text for name, text in self.options.items() if name.lower() not in STREAM_OPTIONS
        }
        if kept.get("startingOffsets") == "latest":
            kept["startingOffsets"] = "earliest"  # What comes later is not there yet.
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Files or a table that Spark reads."""

    name: str
    mark: Mark
    path: str
    format: str
    options: Mapping[str, str]


class OnError(StrEnum):
    """What becomes of a message or a row of a file that cannot be parsed."""

    FAIL = "fail"
    DROP = "drop"
    DEAD_LETTERS = "dead_letters"


class FileFormat(StrEnum):
    """What the files of a source are."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ORC = "orc"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSource:
    """Files that arrive in a folder: each is read once."""

    name: str
    mark: Mark
    path: str
    format: FileFormat
    schema: str | None  # in Spark's DDL; None for text
    pattern: str | None  # of the names of the files, as *.json
    files_per_batch: int
    on_error: OnError
    options: Mapping[str, str]  # of Spark's file streams
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far behind the newest row a growing table is read, for rows that come late."""

    amount: int  # milliseconds, or values of the column
    is_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSource:
    """A table or a query of a database: its rows, or those that are added to it."""

    name: str
    mark: Mark
    database: Database
    what: str  # a table, or a SELECT
    is_query: bool
    options: Mapping[str, str]  # of Spark's JDBC source; secrets by reference
    grows: str | None  # the column whose values say which rows are new; None: all rows are read
    grows_mark: Mark
    lag: Lag | None
    rows_per_batch: int
    may_shrink: bool
    partitions: int
    partition_by: str | None  # a column of whole numbers
    partition_mark: Mark
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A query over the views before it."""

    name: str
    mark: Mark  # of the SQL text
    sql: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """A function from DataFrames to a DataFrame."""

    name: str
    mark: Mark
    function: str  # module:name
    inputs: tuple[str, ...]
    arguments: Mapping[str, str]
    watermark: Watermark | None


class ParseFormat(StrEnum):
    """How the messages are written."""

    JSON = "json"
    CSV = "csv"
    LOGFMT = "logfmt"
    DEBEZIUM = "debezium"  # its envelopes of changes, as JSON
    AVRO = "avro"
    PROTOBUF = "protobuf"
    LOG = "log"  # any of the formats of log lines that `inspect` knows


class OnChange(StrEnum):
    """What becomes of a message with fields that the schema does not have."""

    IGNORE = "ignore"  # these fields are left out
    FAIL = "fail"
    ADD_COLUMNS = "add_columns"
    DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSource:
    """Where the schema of messages comes from: a file, or a subject of the schema registry."""

    mark: Mark
    format: ParseFormat
    text: str | None  # of the file
    imports: tuple[tuple[str, str], ...]  # the names and texts of the .proto files that it imports
    subject: str | None
    version: int | None  # of the subject; None is the latest
    message: str | None  # of Protobuf; None is the only one that no other message has as a field


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseStep:
    """The fields of messages as columns."""

    name: str
    mark: Mark
    input: str
    format: ParseFormat
    column: str
    column_mark: Mark
    schema: str  # in Spark's DDL; empty with a source, and for log lines
    schema_mark: Mark
    source: SchemaSource | None
    options: Mapping[str, str]  # of from_csv
    on_error: OnError
    on_change: OnChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition that a row must fulfil, and the reason in the dead letter of one that does not."""

    expression: str
    reason: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """The rows that fulfil every rule; the others are bad rows."""

    name: str
    mark: Mark
    input: str
    rules: tuple[Rule, ...]


class Action(StrEnum):
    """What becomes of a row that breaks a rule of an expect step. Every such row is counted."""

    WARN = "warn"  # it stays
    DROP = "drop"
    QUARANTINE = "quarantine"  # it goes to a sink of its own
    FAIL = "fail"  # it ends the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A named rule of an expect step."""

    name: str
    expression: str
    action: Action
    sink: str | None  # for the quarantine
    mark: Mark  # of the expression


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectStep:
    """The rows that may stay by their rules, each of which counts the rows that break it."""

    name: str
    mark: Mark
    input: str
    rules: tuple[Expectation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateStep:
    """The first row of each key within a time."""

    name: str
    mark: Mark
    input: str
    by: tuple[str, ...]
    by_mark: Mark
    time: str  # a column of timestamps
    time_mark: Mark
    within_ms: int


class Missing(StrEnum):
    """What becomes of a row whose key is not in the table that it is enriched from."""

    KEEP = "keep"  # the columns of the table are null
    DROP = "drop"
    DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrichStep:
    """Rows with columns of a table beside them, by key; in a stream the table is read again and again."""

    name: str
    mark: Mark
    input: str
    table: str  # a source that `is_read_whole`
    table_mark: Mark
    by: tuple[tuple[str, str], ...]  # a column of the rows and one of the table
    by_mark: Mark
    columns: tuple[tuple[str, str], ...]  # the new column and that of the table
    columns_mark: Mark
    where: tuple[str, Mark] | None  # a condition for rows of the table
    sequence: str | None  # of two rows of a key in the table, the higher one counts
    sequence_mark: Mark
    refresh_ms: int  # how old the table may be when a micro-batch begins
    missing: Missing


Source = TopicSource | TableSource | FilesSource | JdbcSource
Step = SqlStep | PythonStep | ParseStep | CheckStep | ExpectStep | DeduplicateStep | EnrichStep


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Rows to a topic. Key and value are expressions of Spark SQL over the rows."""

    name: str
    mark: Mark
    input: str
    topic: str
    key: tuple[str, Mark] | None
    value: tuple[str, Mark] | None
    keep: tuple[str, ...]  # the KEPT_COLUMNS that the new records copy from the rows
    mode: str
    rate: int | None  # rows a second
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUpkeep:
    """When a Delta table is kept up, and what is removed from it."""

    mark: Mark
    schedule: Schedule
    older_than_ms: int
    deletes_older_than_ms: int
    expiry: Expiry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """Rows to a table, each micro-batch once."""

    name: str
    mark: Mark
    input: str
    path: str
    format: str
    partition_by: tuple[str, ...]
    partition_mark: Mark
    batch_sql: tuple[str, Mark] | None  # applied to each micro-batch, whose view is `batch`
    options: Mapping[str, str]
    jdbc: JdbcTarget | None  # with `format: jdbc`, if the database gets each batch once
    upkeep: TableUpkeep | None  # with `format: delta`


class ChangeFormat(StrEnum):
    """What the rows of a merge are."""

    ROWS = "rows"
    DEBEZIUM = "debezium"  # before, after, op, as its connectors write them


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSink:
    """Changes to a table by key: the newest row of each, or its history."""

    name: str
    mark: Mark
    input: str
    path: str
    changes: ChangeFormat
    keys: tuple[str, ...]
    keys_mark: Mark
    sequence: tuple[str, Mark]  # an expression: of two changes of a key, the higher one is newer
    deletes: tuple[str, Mark] | None  # a condition: such a change deletes its key
    except_columns: tuple[str, ...]
    except_mark: Mark
    scd_type: int  # 1: the newest row of each key, 2: all its versions
    partition_by: tuple[str, ...]
    partition_mark: Mark
    upkeep: TableUpkeep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink:
    """Prints the first rows."""

    name: str
    mark: Mark
    input: str
    rows: int
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptySink:
    """A view that must have no rows: any row fails the run, and is printed."""

    name: str
    mark: Mark
    input: str
    report: str | None  # a JSON file for the rows that were found


def is_read_whole(source: Source) -> bool:
    """Whether each batch reads all rows of the source."""
    return isinstance(source, TableSource) or (
        isinstance(source, JdbcSource) and source.grows is None
    )


Sink = TopicSink | TableSink | MergeSink | ConsoleSink | EmptySink


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Where bad rows go, with the reason in their headers."""

    topic: str
    mark: Mark
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A function that reads what a run has written, and returns lines to print."""

    function: str
    mark: Mark
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The spec of a pipeline file."""

    file: str
    name: str
    description: str
    bootstrap: str | None
    security: Mapping[str, str]  # Kafka's client settings; secrets by reference
    trigger: Trigger
    schedule: Schedule | None  # of runs that end
    spark: Mapping[str, str]
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    dead_letters: DeadLetters | None
    report: Report | None

    @property
    def is_stream(self) -> bool:
        return self.trigger.kind is not TriggerKind.BATCH

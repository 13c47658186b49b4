"""The spec of a pipeline as data: sources, steps, sinks and a trigger."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from zhumq.pipelines.document import Mark

# Each batch is written to a staging folder and moved into the table, so exactly once.
FILE_FORMATS: Final = ("parquet", "orc", "json", "csv")
TABLE_FORMATS: Final = (*FILE_FORMATS, "delta", "iceberg", "jdbc")
DEAD_LETTERS: Final = "dead_letters"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Files or a table that Spark reads."""

    name: str
    mark: Mark
    path: str
    format: str
    options: Mapping[str, str]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonStep:
    """The fields of JSON messages as columns; a message that does not match the schema is a bad row."""

    name: str
    mark: Mark
    input: str
    column: str
    column_mark: Mark
    schema: str
    schema_mark: Mark


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


Source = TopicSource | TableSource
Step = SqlStep | PythonStep | JsonStep | CheckStep


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


Sink = TopicSink | TableSink | ConsoleSink | EmptySink


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Where bad rows go, with the reason in their headers."""

    topic: str
    mark: Mark


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
    spark: Mapping[str, str]
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    dead_letters: DeadLetters | None
    report: Report | None

    @property
    def is_stream(self) -> bool:
        return self.trigger.kind is not TriggerKind.BATCH

"""Tables that hold every micro-batch exactly once, even after a crash in the middle of one."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import StructType

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.archive_columns import FileColumns
from zhumq.pipelines.folder import Folder
from zhumq.spark.ranges import OffsetRange

# Readers of tables ignore names that begin with an underscore.
STATE_FOLDER: Final = "_zhumq"
STAGING_FOLDER: Final = f"{STATE_FOLDER}/staging"
COLUMNS_FILE: Final = f"{STATE_FOLDER}/columns.json"
_WITH_TYPES: Final = ("parquet", "orc")  # formats whose files say what their columns are
RECORD_COLUMNS: Final = ("topic", "partition", "offset")
QUERY_NAME_LENGTH: Final = 8

Offsets = dict[str, dict[str, int]]  # by topic and partition; the partitions are texts, as in JSON


class ArchiveFailed(ZhumqError):
    """A batch that cannot be added to the table without duplicating or losing a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """What one query has written to the table. A query is one checkpoint, over all its restarts."""

    query: str
    last_batch: int = -1
    rows: int = 0
    next_offsets: Offsets = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "QueryState":
        return cls(
            query=document["query"],
            last_batch=document["last_batch"],
            rows=document["rows"],
            next_offsets=document["next_offsets"],
        )

    def document(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "last_batch": self.last_batch,
            "rows": self.rows,
            "next_offsets": self.next_offsets,
        }


class ArchiveTable:
    """A folder of files, one set of them for each micro-batch.

    A batch is written to a staging folder. Its list of moves is written. Its files are moved into the
    table under names made of the query and the batch. Then the query's state records the batch. When
    Spark runs a batch again after a crash, files of an unfinished batch are removed first, and a
    recorded batch is skipped. So a reader may see part of the newest batch, but never a row twice.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        file_format: str = "parquet",
        partition_by: tuple[str, ...] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._folder = Folder(spark, path)
        self._format = file_format
        self._partition_by = partition_by
        self._options = dict(options or {})

    @property
    def path(self) -> str:
        return self._folder.path

    def states(self) -> dict[str, QueryState]:
        """The state of each query that has written to the table."""
        found = {}
        for name in self._folder.names(STATE_FOLDER):
            if name.endswith(".state.json"):
                document = self._folder.read_document(f"{STATE_FOLDER}/{name}")
                if document is not None:
                    state = QueryState.of(document)
                    found[state.query] = state
        return found

    def next_offsets(self) -> Offsets:
        """The next offset of each partition in the table, over all queries."""
        merged: Offsets = {}
        for state in self.states().values():
            for topic, partitions in state.next_offsets.items():
                ends = merged.setdefault(topic, {})
                for partition, end in partitions.items():
                    ends[partition] = max(end, ends.get(partition, 0))
        return merged

    def has(self, *, query: str, batch: int) -> bool:
        """Whether the table has a batch of a query."""
        document = self._folder.read_document(_state_name(query))
        return document is not None and batch <= QueryState.of(document).last_batch

    def check(self, schema: StructType) -> None:
        """Raises ArchiveFailed if readers could not read rows of these columns together with the files."""
        known = self._columns()
        rows = FileColumns.of_rows(schema, self._partition_by)
        words = known and known.unlike_words(rows, by_position=self._format == "csv")
        if words:
            raise ArchiveFailed(
                f"{self.path.removeprefix('file:')} {words}, or choose another table"
            )

    def forget_unfinished(self, query: str) -> None:
        """Remove what an unfinished batch has left: for a query that does not run again."""
        if self._folder.exists(_filled_name(query)):
            self._clear_done(query)
            return
        found = self._folder.read_document(_state_name(query))
        self._clear_leftovers(QueryState(query=query) if found is None else QueryState.of(found))

    def fill(self, rows: DataFrame, *, query: str, ranges: Iterable[OffsetRange]) -> int | None:
        """Add rows of these ranges beside the queries, once; those whose offsets the table has are left out.

        Returns how many were added; None if this was done before. It leaves no state of a query: queries
        leave out what is before the offsets of others, and a range may be ahead of one that is late.
        """
        if self._folder.exists(_filled_name(query)):
            self._clear_done(query)
            return None
        self._clear_leftovers(QueryState(query=query))
        if set(RECORD_COLUMNS) <= set(rows.columns):
            rows = self._without_present(rows, ranges)
        staging = f"{STAGING_FOLDER}/{query}/{uuid.uuid4().hex}"
        self._write(rows, staging)
        count, _ = self._count(staging, rows.schema, has_records=False)
        self._move_in(staging, query, 0)
        if count:
            self._note_columns(rows.schema)
        self._folder.write_document(_filled_name(query), {"query": query, "rows": count})
        self._clear_done(query)
        return count

    def add(self, rows: DataFrame, *, query: str, batch: int, stateful: bool = False) -> int:
        """Add the rows of a batch unless the table has them. Returns how many were added."""
        states = self.states()
        state = states.pop(query, QueryState(query=query))
        self._clear_leftovers(state)
        if batch <= state.last_batch:
            if stateful:
                # Its tasks must still run: Spark fails a batch whose state this run has not saved,
                # and would fail it again after each restart.
                rows.write.format("noop").mode("overwrite").save()
            return 0
        has_records = set(RECORD_COLUMNS) <= set(rows.columns)
        if states and state.last_batch < 0 and not has_records:
            other = min(states)
            raise ArchiveFailed(
                f"{self.path} was filled by a query with another checkpoint ({other}), and its rows have"
                f" no columns {', '.join(RECORD_COLUMNS)} to tell which are in the table: use that"
                " checkpoint again, or choose another table"
            )
        if states and has_records:
            rows = self._without_archived(rows, states)
        staging = f"{STAGING_FOLDER}/{query}/{uuid.uuid4().hex}"
        self._write(rows, staging)
        count, ranges = self._count(staging, rows.schema, has_records=has_records)
        self._check_order(state, ranges)
        self._move_in(staging, query, batch)
        if count:
            self._note_columns(rows.schema)
        next_offsets = {topic: dict(ends) for topic, ends in state.next_offsets.items()}
        for (topic, partition), (_, last) in ranges.items():
            next_offsets.setdefault(topic, {})[str(partition)] = last + 1
        done = QueryState(
            query=query, last_batch=batch, rows=state.rows + count, next_offsets=next_offsets
        )
        self._folder.write_document(_state_name(query), done.document())
        self._clear_done(query)
        return count

    def _clear_leftovers(self, state: QueryState) -> None:
        """Remove the files that an unfinished batch has moved into the table."""
        moves = self._folder.read_document(_moves_name(state.query))
        if moves is not None:
            if moves["batch"] > state.last_batch:
                for target in moves["files"]:
                    self._folder.remove(target)
            self._folder.remove(_moves_name(state.query))
        self._folder.remove(f"{STAGING_FOLDER}/{state.query}")

    def _clear_done(self, query: str) -> None:
        """Remove what a finished batch needs no more."""
        self._folder.remove(_moves_name(query))
        self._folder.remove(f"{STAGING_FOLDER}/{query}")

    def _without_present(self, rows: DataFrame, ranges: Iterable[OffsetRange]) -> DataFrame:
        """The rows of offsets that the table does not have."""
        if not self._folder.exists(""):
            return rows
        # All columns, as a CSV file has no names to find three of them by.
        reader = rows.sparkSession.read.format(self._format).options(**self._options)
        there = reader.schema(rows.schema).load(self.path).where(of_ranges(ranges))
        present = there.select(*RECORD_COLUMNS).distinct()
        return rows.join(present, list(RECORD_COLUMNS), "left_anti").select(*rows.columns)

    def _without_archived(self, rows: DataFrame, others: Mapping[str, QueryState]) -> DataFrame:
        """The rows that no other query has archived: a new checkpoint reads all records again."""
        ends: dict[tuple[str, int], int] = {}
        for state in others.values():
            for topic, partitions in state.next_offsets.items():
                for partition, end in partitions.items():
                    place = (topic, int(partition))
                    ends[place] = max(end, ends.get(place, 0))
        if not ends:
            return rows
        known = rows.sparkSession.createDataFrame(
            [(topic, partition, end) for (topic, partition), end in ends.items()],
            "_topic STRING, _partition INT, _end BIGINT",
        )
        same = (F.col("topic") == F.col("_topic")) & (F.col("partition") == F.col("_partition"))
        joined = rows.join(F.broadcast(known), same, "left")
        fresh = joined.where(F.col("_end").isNull() | (F.col("offset") >= F.col("_end")))
        return fresh.drop("_topic", "_partition", "_end")

    def _columns(self) -> FileColumns | None:
        """The columns of the files; None if there are none, or if they do not say it."""
        document = self._folder.read_document(COLUMNS_FILE)
        if document is not None:
            return FileColumns.of(document)
        # An earlier version has made the table, or an earlier run has died behind its first files.
        if self._format not in _WITH_TYPES:
            return None
        try:
            schema = self._spark.read.format(self._format).load(self.path).schema
        except AnalysisException:
            return None  # There are no files.
        # Types of columns in the names of folders are Spark's guesses.
        own = [each for each in schema.fields if each.name not in self._partition_by]
        return FileColumns.of_rows(StructType(own), self._partition_by)

    def _note_columns(self, schema: StructType) -> None:
        """Keep the columns of rows that were written, for those that come later."""
        known, rows = self._columns(), FileColumns.of_rows(schema, self._partition_by)
        new = rows if known is None else known.with_new(rows)
        if new != known or not self._folder.exists(COLUMNS_FILE):
            self._folder.write_document(COLUMNS_FILE, new.document())

    def _write(self, rows: DataFrame, staging: str) -> None:
        self.check(rows.schema)
        writer = rows.write.format(self._format).options(**self._options).mode("overwrite")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(self._folder.inside(staging))

    def _count(
        self, staging: str, schema: StructType, *, has_records: bool
    ) -> tuple[int, dict[tuple[str, int], tuple[int, int]]]:
        """How many rows were written, and, for records, the offset range of each partition."""
        files = [name for name in self._folder.files(staging) if _is_data(name)]
        if not files:
            return 0, {}
        reader = self._spark.read.format(self._format).options(**self._options).schema(schema)
        rows = reader.load(self._folder.inside(staging))
        if not has_records:
            return rows.count(), {}
        found = (
            rows.groupBy("topic", "partition")
            .agg(
                F.min("offset").alias("first"),
                F.max("offset").alias("last"),
                F.count("*").alias("n"),
            )
            .collect()
        )
        ranges = {
            (str(row["topic"]), int(row["partition"])): (int(row["first"]), int(row["last"]))
            for row in found
        }
        return sum(int(row["n"]) for row in found), ranges

    def _check_order(
        self, state: QueryState, ranges: Mapping[tuple[str, int], tuple[int, int]]
    ) -> None:
        for (topic, partition), (first, _) in ranges.items():
            end = state.next_offsets.get(topic, {}).get(str(partition), 0)
            if first < end:
                raise ArchiveFailed(
                    f"{topic}-{partition} begins again at offset {first}, but {self.path} holds it"
                    f" up to {end}: the topic was created again, so archive it into another table"
                )

    def _move_in(self, staging: str, query: str, batch: int) -> None:
        moves: dict[str, str] = {}
        for number, name in enumerate(
            each for each in self._folder.files(staging) if _is_data(each)
        ):
            folder, slash, file = name.rpartition("/")
            suffix = file.partition(".")[2]
            target = f"{query[:QUERY_NAME_LENGTH]}-{batch:09d}-{number:05d}.{suffix}"
            moves[f"{staging}/{name}"] = f"{folder}{slash}{target}"
        if not moves:
            return
        note = {"batch": batch, "files": sorted(moves.values())}
        self._folder.write_document(_moves_name(query), note)
        for source, target in moves.items():
            self._folder.move(source, target)


def of_ranges(ranges: Iterable[OffsetRange]) -> Column:
    """Whether a row with RECORD_COLUMNS is of one of these ranges. A row without a place is of none."""
    within = [
        (F.col("topic") == each.place.topic)
        & (F.col("partition") == each.place.partition)
        & (F.col("offset") >= each.first_offset)
        & (F.col("offset") < each.until_offset)
        for each in ranges
    ]
    return F.coalesce(reduce(or_, within, F.lit(False)), F.lit(False))


def _is_data(name: str) -> bool:
    return not name.rpartition("/")[2].startswith(("_", "."))


def _state_name(query: str) -> str:
    return f"{STATE_FOLDER}/{query}.state.json"


def _moves_name(query: str) -> str:
    return f"{STATE_FOLDER}/{query}.moves.json"


def _filled_name(query: str) -> str:
    return f"{STATE_FOLDER}/{query}.filled.json"

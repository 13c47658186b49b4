"""Merges batches of changes into a Delta table: files with a changed key are written again, in one commit."""

import uuid

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import StructField, StructType

from zhumq.pipelines.delta_layout import DELETES_FOLDER, WRITTEN_MS, DeltaFailed
from zhumq.pipelines.delta_log import DataFile, Snapshot, now_ms, table_schema
from zhumq.pipelines.delta_table import (
    COMMIT_ATTEMPTS_MAX,
    STAGING_FOLDER,
    DeltaTable,
    column,
    run_tasks,
)
from zhumq.pipelines.merging import (
    DELETED,
    SEQUENCE,
    VALID_FROM,
    VALID_TO,
    merged_type_1,
    merged_type_2,
    newest,
)


class MergeTable:
    """A table with one row (SCD type 1) or all versions (type 2) of each key.

    A late change must find the delete that came before it, whose row is no longer in the table: the
    deletes are kept in a Delta table of their own. They are committed before the changes; a batch that
    dies between the two is merged again, and merging a change twice gives the same rows.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        keys: tuple[str, ...],
        scd_type: int,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.table = DeltaTable(spark, path, partition_by=partition_by)
        self.deletes = DeltaTable(spark, f"{self.table.path}/{DELETES_FOLDER}")
        self._keys = keys
        self._scd_type = scd_type

    def merge(self, changes: DataFrame, *, query: str, batch: int, stateful: bool = False) -> int:
        """Merge a batch unless the table has it. Returns the number of its changes."""
        snapshot = self.table.log.snapshot()
        if snapshot.batches.get(query, -1) >= batch:
            if stateful:
                run_tasks(changes)
            return 0
        schema = self._schema(changes.schema)
        self.table.check_rows(snapshot, schema)
        self._check_kind(snapshot)
        self.table.clear_staging(query)
        staged = self._staged(changes, query)
        (counted,) = staged.agg(
            F.count(F.lit(1)).alias("all"), F.count_if(DELETED).alias("deletes")
        ).collect()
        count = int(counted["all"])
        if counted["deletes"]:
            self._keep_deletes(staged, query, batch)
        touched, files = self._replaced(staged, snapshot, schema, query) if count else ([], [])
        for _ in range(COMMIT_ATTEMPTS_MAX):
            at_ms = now_ms()
            actions = self.table.preparing(snapshot, schema, at_ms)
            actions.append({"txn": {"appId": query, "version": batch, "lastUpdated": at_ms}})
            actions += [each.removed(at_ms, data_change=True) for each in touched]
            actions += [each.added(data_change=True) for each in files]
            if self.table.commit(snapshot, actions, files, operation="MERGE", at_ms=at_ms):
                self.table.clear_staging(query)
                return count
            before, snapshot = snapshot, self.table.log.snapshot()
            if snapshot.batches.get(query, -1) >= batch:
                # Another run of the same query, which is thought to be dead.
                self.table.discard(files)
                return 0
            self.table.check_rows(snapshot, schema)
            # Some commits, such as those of VACUUM, change no file. After others there is more to merge with.
            if count and not _is_as_before(before, snapshot):
                self.table.discard(files)
                touched, files = self._replaced(staged, snapshot, schema, query)
        self.table.discard(files)
        raise self.table.too_many_attempts()

    def _replaced(
        self, staged: DataFrame, snapshot: Snapshot, schema: StructType, query: str
    ) -> tuple[list[DataFile], list[DataFile]]:
        """The files that the batch changes, and the new ones instead of them, which no commit names yet."""
        touched = self._touched(staged, snapshot)
        rows = self._merged(staged, snapshot, touched, schema)
        room = self.table.log.room(snapshot) + len(touched)
        return touched, self.table.write_files(rows, query, room=room)

    def _schema(self, changes: StructType) -> StructType:
        """The columns of the table for such changes."""
        data = [each for each in changes.fields if each.name not in (SEQUENCE, DELETED)]
        kind = changes[SEQUENCE].dataType
        names = (SEQUENCE,) if self._scd_type == 1 else (VALID_FROM, VALID_TO)
        return table_schema(StructType([*data, *(StructField(name, kind) for name in names)]))

    def _check_kind(self, snapshot: Snapshot) -> None:
        if not snapshot.exists:
            return
        needed = SEQUENCE if self._scd_type == 1 else VALID_FROM
        if needed not in snapshot.schema.names:
            raise DeltaFailed(
                f"{self.table.path} has no column {needed!r}, so it is no table of scd_type"
                f" {self._scd_type}: use another table"
            )

    def _staged(self, changes: DataFrame, query: str) -> DataFrame:
        """The batch as files, since it is read several times and its source only once."""
        session = changes.sparkSession
        keys = self._keys if self._scd_type == 1 else (*self._keys, SEQUENCE)
        place = self.table.folder.inside(f"{STAGING_FOLDER}/{query}/{uuid.uuid4().hex}-changes")
        newest(changes, keys).write.mode("overwrite").parquet(place)
        return session.read.schema(table_schema(changes.schema)).parquet(place)

    def _keep_deletes(self, staged: DataFrame, query: str, batch: int) -> None:
        names = (*self._keys, SEQUENCE)
        deleted = staged.where(F.col(DELETED)).select(*(column(name) for name in names))
        rows = deleted.withColumn(WRITTEN_MS, F.lit(now_ms()).cast("bigint"))
        self.deletes.append(rows.coalesce(1), query=query, batch=batch)

    def _touched(self, staged: DataFrame, snapshot: Snapshot) -> list[DataFile]:
        """The files that hold a key of the batch."""
        if not snapshot.files:
            return []
        session = staged.sparkSession
        keys = staged.select(*(column(name) for name in self._keys)).distinct()
        file = F.col("_metadata.file_path").alias("_file")
        named = self.table.scan(session, snapshot, snapshot.files.values(), file)
        found = named.join(keys, list(self._keys), "left_semi").select("_file").distinct().collect()
        return [snapshot.files[self.table.relative(row["_file"])] for row in found]

    def _merged(
        self, staged: DataFrame, snapshot: Snapshot, touched: list[DataFile], schema: StructType
    ) -> DataFrame:
        """What the touched files hold after the batch."""
        session = staged.sparkSession
        if touched:
            before = self.table.read(session, snapshot, touched)
        else:
            before = session.createDataFrame([], snapshot.schema if snapshot.exists else schema)
        events = staged.unionByName(self._known_deletes(staged), allowMissingColumns=True)
        merge = merged_type_1 if self._scd_type == 1 else merged_type_2
        rows = merge(before, events, self._keys)
        names = [*(name for name in before.columns), *schema.names]
        return rows.select(*(column(name) for name in dict.fromkeys(names)))

    def _known_deletes(self, staged: DataFrame) -> DataFrame:
        """The deletes of the batch's keys, of this batch and of earlier ones."""
        session = staged.sparkSession
        names = [*self._keys, SEQUENCE]
        snapshot = self.deletes.log.snapshot()
        keys = staged.select(*(column(name) for name in self._keys)).distinct()
        if snapshot.exists:
            rows = self.deletes.read(session, snapshot).join(keys, list(self._keys), "left_semi")
        else:
            rows = staged.limit(0)
        return rows.select(*(column(name) for name in names), F.lit(True).alias(DELETED))


def _is_as_before(one: Snapshot, other: Snapshot) -> bool:
    # A batch of another query may have left every file as it was, and kept a delete that has to be found.
    return (
        one.files.keys() == other.files.keys()
        and one.batches == other.batches
        and one.metadata == other.metadata
    )

"""Iceberg tables without a jar: Spark writes the files, and PyIceberg commits each batch as one snapshot, once."""

from contextlib import suppress
from typing import Final, NoReturn

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import IcebergType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.delta_table import run_tasks
from zhumq.pipelines.iceberg_catalog import OpenCatalog, opened
from zhumq.pipelines.iceberg_files import WrittenFiles, write_files
from zhumq.pipelines.iceberg_schema import (
    check_partitions,
    creation,
    has_field_ids,
    new_columns,
    refusal,
)
from zhumq.pipelines.iceberg_spec import IcebergFailed, IcebergTarget

COMMIT_ATTEMPTS_MAX: Final = 10  # while other writers commit as well
FORMAT_VERSION_MAX: Final = 2
QUERY: Final = "zhumq.query"  # of a snapshot
BATCH: Final = "zhumq.batch"  # of a snapshot
LAST_BATCH: Final = "zhumq.batch."  # of the table, with the query behind it: snapshots expire
QUERY_NAME_LENGTH: Final = 8
# Each batch writes the metadata again and adds a manifest: neither must grow with the age of a stream.
_NEW_TABLE: Final = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


class Overtaken(ZhumqError):
    """A commit that the catalog refuses, as another writer's came first."""


class IcebergTable:
    """One table of a catalog, as one sink writes to it. Every method raises IcebergFailed."""

    def __init__(
        self, session: SparkSession, target: IcebergTarget, *, partition_by: tuple[str, ...] = ()
    ) -> None:
        self._session = session
        self._target = target
        self._partition_by = partition_by

    def check(self, schema: StructType) -> None:
        """Find what the table, if there is one, would refuse of such rows. Changes nothing."""
        with opened(self._target) as catalog:
            table = catalog.table()
            self._check_rows(schema)
            if table is not None:
                self._check_table(table, schema)

    def has(self, *, query: str, batch: int) -> bool:
        """Whether the table has a batch of a query."""
        with opened(self._target) as catalog:
            table = catalog.table()
        return table is not None and last_batch(table, query) >= batch

    def append(
        self,
        rows: DataFrame,
        *,
        query: str,
        batch: int,
        stateful: bool = False,
        repeats: bool = True,
    ) -> int:
        """Add the rows of a batch unless the table has them. Returns how many were added.

        Without `repeats` the query has no other batch and is not run again, so that nothing remembers it.
        """
        with opened(self._target) as catalog:
            table = catalog.table()
            if table is not None and last_batch(table, query) >= batch:
                if stateful:
                    run_tasks(rows)
                return 0
            table = self._ready(catalog, table, rows.schema)
            with catalog.failures("write files of"):
                written = write_files(
                    rows,
                    table,
                    partition_by=self._partition_by,
                    prefix=f"{query[:QUERY_NAME_LENGTH]}-{batch:09d}",
                    name=self._target.name,
                )
            for _ in range(COMMIT_ATTEMPTS_MAX):
                with suppress(Overtaken), catalog.failures("commit to"):
                    commit(table, written, query=query, batch=batch, remembers=repeats)
                    return written.rows
                table = self._again(catalog)
                if last_batch(table, query) >= batch:
                    # Another run of the same query, which is thought to be dead. The files stay: no reader sees
                    # those that no snapshot names, and to remove one that a snapshot does name breaks the table.
                    return 0
                self._check_table(table, rows.schema)
                written.check(table, self._target.name)
        raise self._too_many_attempts()

    def _ready(self, catalog: OpenCatalog, table: Table | None, schema: StructType) -> Table:
        """The table with all columns of such rows; a commit of its own adds new ones.

        Files have the ids of their columns, which a new column has only when it is in the table.
        """
        self._check_rows(schema)
        if table is None:
            table = catalog.create(*creation(schema, self._partition_by), _NEW_TABLE)
        for _ in range(COMMIT_ATTEMPTS_MAX):
            added = self._check_table(table, schema)
            if not added:
                return table
            with (
                suppress(CommitFailedException),
                catalog.failures("add columns to"),
                table.update_schema() as update,
            ):
                for name, kind in added:
                    update.add_column((name,), kind)
            table = self._again(catalog)
        raise self._too_many_attempts()

    def _again(self, catalog: OpenCatalog) -> Table:
        table = catalog.table()
        if table is None:
            raise IcebergFailed(f"{self._target.name} was dropped while this batch was written")
        return table

    def _check_rows(self, schema: StructType) -> None:
        words = refusal(schema, self._partition_by)
        if words is not None:
            raise IcebergFailed(f"{self._target.name}: {words}")

    def _check_table(self, table: Table, schema: StructType) -> list[tuple[str, IcebergType]]:
        """The columns of such rows that the table lacks."""
        name = self._target.name
        if table.format_version > FORMAT_VERSION_MAX:
            raise IcebergFailed(
                f"{name} is an Iceberg table of format version {table.format_version}; zhumq writes"
                f" {FORMAT_VERSION_MAX} and older ones: use another table"
            )
        check_partitions(table.schema(), table.spec(), self._partition_by, name)
        return new_columns(table.schema(), schema, name)

    def _too_many_attempts(self) -> IcebergFailed:
        return IcebergFailed(
            f"{self._target.name}: other writers committed {COMMIT_ATTEMPTS_MAX} times before this batch"
            " could: run fewer of them at a time"
        )


def last_batch(table: Table, query: str) -> int:
    """The number of the last batch of a query in the table; -1 without one.

    A property of the table says it, as snapshots expire. The snapshots say it too, should another engine have
    replaced the properties.
    """
    found = int(table.properties.get(f"{LAST_BATCH}{query}", -1))
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        summary = snapshot.summary
        if summary is not None and summary.get(QUERY) == query:
            return max(found, int(summary.get(BATCH) or -1))
    return found


def commit(
    table: Table, written: WrittenFiles, *, query: str, batch: int, remembers: bool = True
) -> None:
    """Make one snapshot of the files, with the number of the batch. Raises Overtaken."""
    transaction = _TriedOnce.of(table).transaction()
    properties = {f"{LAST_BATCH}{query}": str(batch)} if remembers else {}
    if not has_field_ids(table.schema()) and table.metadata.name_mapping() is None:
        mapping = table.schema().name_mapping.model_dump_json()
        properties[TableProperties.DEFAULT_NAME_MAPPING] = mapping
    if properties:
        transaction.set_properties(properties)
    summary = {QUERY: query, BATCH: str(batch)}
    with transaction.update_snapshot(snapshot_properties=summary).merge_append() as snapshot:
        for each in written.files:
            snapshot.append_data_file(each)
    transaction.commit_transaction()


class _TriedOnce(Table):
    """A table to which PyIceberg commits once: by itself it tries again, and does not look for the batch before.

    With no retries it would remove the manifests of a commit that the catalog has refused. But a catalog behind a
    network may have made it, when an answer was lost and the request was repeated on the way.
    """

    @classmethod
    def of(cls, table: Table) -> "_TriedOnce":
        again = {
            **table.metadata.properties,
            TableProperties.COMMIT_NUM_RETRIES: "1",
            TableProperties.COMMIT_TOTAL_RETRY_TIME_MS: str(
                TableProperties.COMMIT_TOTAL_RETRY_TIME_MS_DEFAULT
            ),
        }
        metadata = table.metadata.model_copy(update={"properties": again})
        return cls(
            table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config
        )

    def refresh(self) -> NoReturn:
        """What PyIceberg does before it tries again, after a pause."""
        raise Overtaken(f"another writer committed to {'.'.join(self.name())} first")

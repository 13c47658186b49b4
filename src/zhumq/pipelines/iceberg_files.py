"""The Parquet files of a batch of an Iceberg table: Spark writes them, the driver reads their footers."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import date_to_days
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.observation import Observation

from zhumq.pipelines.delta_table import column
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.iceberg_schema import check_ids, columns_of_file
from zhumq.pipelines.iceberg_spec import IcebergFailed

FILES_OF_BATCH_MAX: Final = 10_000  # the driver reads the footer of each
_GROUP: Final = "zhumq_partition"
_CODEC: Final = "write.parquet.compression-codec"
_CODEC_DEFAULT: Final = "zstd"  # as of Iceberg's other writers
# What readers of Iceberg tables expect of Parquet, whatever the session says: moments as 64 bits, lists of three levels.
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """New files of a table, which no snapshot names yet."""

    files: tuple[DataFile, ...]
    rows: int
    spec_id: int
    arrow_schema: Any  # of each file; None if there is none

    def check(self, table: Table, name: str) -> None:
        """Raise IcebergFailed if the table is not any more what the files were written for."""
        if self.spec_id != table.metadata.default_spec_id:
            raise IcebergFailed(f"the partitions of {name} were changed meanwhile: run again")
        if self.arrow_schema is not None:
            mapping = table.metadata.name_mapping() or table.schema().name_mapping
            check_ids(table.schema(), _schema_of(self.arrow_schema, mapping, name), name)


def write_files(
    rows: DataFrame, table: Table, *, partition_by: tuple[str, ...], prefix: str, name: str
) -> WrittenFiles:
    """Write rows to a new folder of the table. Nothing else writes there, or removes anything."""
    session = rows.sparkSession
    place = f"{table.location_provider().data_path}/{prefix}-{uuid.uuid4().hex}"
    columns = columns_of_file(table.schema(), rows.schema)
    shaped = rows.select(
        *(
            column(each.name).cast(each.dataType).alias(each.name, metadata=each.metadata)
            for each in columns
        )
    )
    observed = Observation("written")
    shaped = shaped.observe(observed, F.count(F.lit(1)).alias("rows"))
    group = _GROUP
    while group in (each.name.lower() for each in columns):
        group += "_"
    if partition_by:
        # A folder's name has no room for every text, and Spark gives an empty one that of null. So it is a digest,
        # and the values are in the file, as Iceberg wants them.
        values = F.to_json(F.struct(*(column(each) for each in partition_by)))
        shaped = shaped.withColumn(group, F.sha2(values, 256))
    writer = (
        shaped.write.mode("errorifexists")
        .option("compression", table.metadata.properties.get(_CODEC, _CODEC_DEFAULT))
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )
    if partition_by:
        writer = writer.partitionBy(group)
    with _settings(session):
        writer.parquet(place)
    count = int(observed.get["rows"])
    folder = Folder(session, place)
    names = [each for each in folder.files("") if each.endswith(".parquet")]
    if len(names) > FILES_OF_BATCH_MAX:
        folder.remove("")
        raise IcebergFailed(
            f"a batch may add {FILES_OF_BATCH_MAX:,} files to {name}, and this one has {len(names):,}: use"
            " fewer partitions"
        )
    found, arrow_schema = [], None
    for each in names:
        data_file, arrow_schema = _data_file(table, f"{place}/{each}", partition_by)
        if data_file.record_count:
            found.append(data_file)
        else:
            folder.remove(each)
    there = sum(each.record_count for each in found)
    if there != count:
        raise IcebergFailed(
            f"Spark wrote {count:,} rows for {name} below {place}, and the driver finds {there:,} there: the"
            " driver and all executors must reach the same folder by this path"
        )
    written = WrittenFiles(
        files=tuple(found),
        rows=count,
        spec_id=table.metadata.default_spec_id,
        arrow_schema=arrow_schema,
    )
    written.check(table, name)
    return written


def _data_file(table: Table, path: str, partition_by: tuple[str, ...]) -> tuple[DataFile, Any]:
    """What a manifest says about a file, by its footer; and its schema."""
    schema = table.schema()
    given = table.io.new_input(path)
    with given.open() as stream:
        footer = pq.read_metadata(stream)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, table.metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        # PyIceberg's add_files asks the statistics, which a long text does not have.
        partition=_partition(table.io, path, partition_by) if footer.num_rows else Record(),
        file_size_in_bytes=len(given),
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    return data_file, footer.schema.to_arrow_schema()


def _partition(io: FileIO, path: str, partition_by: tuple[str, ...]) -> Record:
    """The values that all rows of a file have in the columns of its partition: those of the first row."""
    if not partition_by:
        return Record()
    with io.new_input(path).open() as stream:
        first = next(pq.ParquetFile(stream).iter_batches(batch_size=1, columns=list(partition_by)))
        row = first.to_pylist()[0]
    return Record(*(_as_stored(row[each]) for each in partition_by))


def _as_stored(value: Any) -> Any:
    return date_to_days(value) if isinstance(value, date) else value


def _schema_of(arrow_schema: Any, mapping: NameMapping, name: str) -> Schema:
    try:
        return pyarrow_to_schema(arrow_schema, name_mapping=mapping)
    except ValueError as error:
        raise IcebergFailed(f"the name mapping of {name} does not fit the rows: {error}") from None


@contextmanager
def _settings(session: SparkSession) -> Iterator[None]:
    """Have these settings while files are written: other sinks of the session may need others."""
    before = {name: session.conf.get(name) for name in _SETTINGS}
    try:
        for name, text in _SETTINGS.items():
            session.conf.set(name, text)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is not None:
                session.conf.set(name, earlier)

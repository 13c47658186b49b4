"""`format("zhumq")`: the data source that PySpark registers by itself."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from zhumq.spark.columns import sql_schema
from zhumq.spark.exactly_once import (
    ExactlyOnceBatchWriter,
    ExactlyOnceStreamWriter,
    RepeatableExactlyOnceWriter,
    begin_exactly_once,
)
from zhumq.spark.ledger import ensure_ledger
from zhumq.spark.options import OptionInvalid, check_columns, read_options, write_options
from zhumq.spark.reader import BatchReader, FilteringReader
from zhumq.spark.rows import check_schema
from zhumq.spark.stream_reader import StreamReader
from zhumq.spark.writer import BatchWriter, RepeatableWriter, StreamWriter, check_settings


class ZhumqSource(DataSource):
    """Topics as tables and as streams, with the options and columns of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "zhumq"

    def schema(self) -> str:
        # The columns are the same in a batch and in a stream; the rest is checked by the reader.
        return sql_schema(read_options(self._column_options(), streaming=False).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, streaming=False)
        check_columns(schema.fieldNames(), options)
        return FilteringReader(options) if options.pushes_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = read_options(self.options, streaming=True)
        check_columns(schema.fieldNames(), options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = write_options(self.options)
        columns = check_schema(schema, options, overwrite=overwrite)
        if options.exactly_once:
            begin_exactly_once(options)
            if options.repeatable is not None:
                return RepeatableExactlyOnceWriter(options, columns, options.repeatable)
            return ExactlyOnceBatchWriter(options, columns)
        check_settings(options)
        if options.repeatable is not None:
            ensure_ledger(options.bootstrap, security=options.security.security())
            return RepeatableWriter(options, columns, options.repeatable)
        return BatchWriter(options, columns)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = write_options(self.options)
        if options.repeatable is not None:
            raise OptionInvalid(
                "txnAppId and txnVersion are for batch writes: a stream names its batches itself"
            )
        columns = check_schema(schema, options, overwrite=overwrite)
        if options.exactly_once:
            begin_exactly_once(options)
            return ExactlyOnceStreamWriter(options, columns)
        check_settings(options)
        ensure_ledger(options.bootstrap, security=options.security.security())
        return StreamWriter(options, columns)

    def _column_options(self) -> dict[str, str]:
        """The options that determine the schema, with a placeholder for the required `subscribe`."""
        names = ("columns", "includeHeaders")
        kept = {name: self.options[name] for name in names if name in self.options}
        return {"subscribe": "any", **kept}

"""The rows of a table or a query of a database: what is checked before they are read, and the reads themselves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DateType,
    IntegerType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from zhumq.pipelines.delta_table import column
from zhumq.pipelines.jdbc_connection import (
    Connection,
    JdbcFailed,
    Login,
    NoSuchTable,
    connected,
)
from zhumq.pipelines.jdbc_ranges import GROWTH_OF_TYPE, Growth, Rows, place_of, slices
from zhumq.pipelines.jdbc_statements import Database, TargetColumn
from zhumq.pipelines.spec import JdbcSource

TIME_LAG_MS: Final = 10_000  # if the file does not say it
_GROWTH_OF_SQLITE: Final = {"integer": Growth.NUMBER, "text": Growth.TIME_TEXT}


class Reading:
    """How the rows of a source are read. Every method raises JdbcFailed and RangeUnfit."""

    def __init__(self, session: SparkSession, source: JdbcSource) -> None:
        self.session = session
        self.source = source
        self._login = Login.of(source.options)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        with connected(self.session, self._login) as connection:
            yield connection

    def check(self, connection: Connection) -> None:
        """Find what keeps the source from being read. Raises SpecInvalid."""
        source = self.source
        found = self._columns(connection)
        if source.grows is not None:
            rows = self.rows(connection)
            if rows is not None:
                rows.checked(connection.texts(rows.last())[0])
                self.check_lag(rows)
                self._check_none(connection, rows)
        if source.partition_by is not None and _named(found, source.partition_by) is None:
            raise source.partition_mark.wrong(_no_column(source.partition_by, found))

    def rows(self, connection: Connection) -> Rows | None:
        """The rows with their growing column; None if there is no row that says what it is."""
        source = self.source
        assert source.grows is not None, "it is a stream"
        found = self._columns(connection)
        known = _named(found, source.grows)
        if known is None:
            raise source.grows_mark.wrong(_no_column(source.grows, found))
        growth = self._growth(connection, known)
        if growth is None:
            return None
        return Rows(
            database=source.database,
            what=source.what,
            is_query=source.is_query,
            column=known.name,
            growth=growth,
        )

    def lag_of(self, rows: Rows) -> int:
        """How far behind the newest value, or behind the clock in milliseconds, rows are read."""
        lag = self.source.lag
        if lag is None:
            return 0 if rows.growth is Growth.NUMBER else TIME_LAG_MS
        return lag.amount

    def check_lag(self, rows: Rows) -> None:
        lag = self.source.lag
        if lag is not None and lag.is_time == (rows.growth is Growth.NUMBER):
            like = "a number of values, as 1000" if lag.is_time else "a time, as 30s"
            raise self.source.grows_mark.wrong(
                f"the column {rows.column} holds {'numbers' if lag.is_time else 'times'}, so `lag` is {like}"
            )

    def newest(self, connection: Connection, rows: Rows) -> str | None:
        """The highest value that may be read by now."""
        self._check_none(connection, rows)
        lag = self.lag_of(rows)
        statement = rows.last() if not lag else rows.last_settled(lag=lag)
        return rows.checked(connection.texts(statement)[0])

    def frame(
        self, connection: Connection, condition: str, *, streaming: bool = False
    ) -> DataFrame:
        """The rows that fulfil a condition of the database's SQL, in parallel as the file says."""
        source = self.source
        options = {**self._login.options}
        url = options.pop("url")
        # Times without a zone are UTC, whatever zone the machines of Spark are in.
        options.setdefault("preferTimestampNTZ", "true")
        place = place_of(source.what, is_query=source.is_query)
        if source.database is Database.SQLITE:
            reader = self.session.read.format("jdbc").options(**options, url=url, dbtable=place)
            types = _types_of_sqlite(reader.load().schema)
            if types:
                options.setdefault("customSchema", types)
        parts = [f"({condition}) AND ({each})" for each in self._parts(connection, condition)]
        found = self.session.read.jdbc(url, place, predicates=parts, properties=options)
        frame = as_stream(found) if streaming else found
        return frame.select(
            *(
                column(each.name).cast(TimestampType()).alias(each.name)
                if isinstance(each.dataType, TimestampNTZType)
                else column(each.name)
                for each in found.schema.fields
            )
        )

    def _parts(self, connection: Connection, condition: str) -> Sequence[str]:
        source = self.source
        if source.partition_by is None:
            return ["1 = 1"]
        name = _named(self._columns(connection), source.partition_by)
        if name is None:
            raise JdbcFailed(_no_column(source.partition_by, self._columns(connection)))
        rows = Rows(
            database=source.database,
            what=source.what,
            is_query=source.is_query,
            column=name.name,
            growth=Growth.NUMBER,
        )
        low, high = connection.texts(rows.extent(name.name, condition))
        if low is None or high is None:
            return ["1 = 1"]
        try:
            return slices(name.name, int(low), int(high), source.partitions)
        except ValueError:
            raise JdbcFailed(
                f"partition_by: the column {name.name} holds {low!r}: it needs whole numbers"
            ) from None

    def _columns(self, connection: Connection) -> tuple[TargetColumn, ...]:
        source = self.source
        place = place_of(source.what, is_query=source.is_query)
        try:
            return connection.columns(place)
        except NoSuchTable as error:
            what = "the query needs a table that is not there" if source.is_query else "no table"
            name = "" if source.is_query else f" {source.what}"
            raise NoSuchTable(
                f"{what}{name}: {error}. Is the name right, and may the user see it?"
            ) from None

    def _growth(self, connection: Connection, known: TargetColumn) -> Growth | None:
        source = self.source
        kind = known.type_name.lower()
        if source.database is Database.POSTGRESQL:
            growth = GROWTH_OF_TYPE.get(kind)
        else:
            # Its columns hold values of any type, and texts are above numbers.
            place = place_of(source.what, is_query=source.is_query)
            (stored,) = connection.texts(f'SELECT typeof(MAX("{known.name}")) FROM {place}')
            kind = stored or ""
            if kind == "null":
                return None
            growth = _GROWTH_OF_SQLITE.get(kind)
        if growth is None:
            raise source.grows_mark.wrong(
                f"the column {known.name} is of the type {kind}: a column that grows holds whole numbers"
                " that are given in order, or times"
            )
        return growth

    def _check_none(self, connection: Connection, rows: Rows) -> None:
        if connection.number(rows.has_none()):
            raise JdbcFailed(
                f"{shown(self.source)} has rows without a value in {rows.column}, which would never be"
                f" read: make the column NOT NULL, or leave them out: jdbc: SELECT ... WHERE {rows.column}"
                " IS NOT NULL"
            )


def shown(source: JdbcSource) -> str:
    """The table, for people."""
    return "the query" if source.is_query else source.what


def as_stream(frame: DataFrame) -> DataFrame:
    """The rows of a database as those of a micro-batch: a plan of the same relation with Spark's mark for it."""
    session = frame.sparkSession
    plan = frame._jdf.queryExecution().analyzed()
    marked = plan.copy(plan.relation(), plan.output(), plan.catalogTable(), True, plan.stream())
    return frame_of(session, marked)


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """The frame of a plan of the JVM."""
    jvm: Any = session._jvm
    datasets = getattr(jvm.org.apache.spark.sql.classic, "Dataset$")
    return DataFrame(getattr(datasets, "MODULE$").ofRows(session._jsparkSession, plan), session)


def _named(columns: Sequence[TargetColumn], name: str) -> TargetColumn | None:
    """The column of a name, or the only one that is written like it."""
    same = [each for each in columns if each.name == name]
    like = same or [each for each in columns if each.name.lower() == name.lower()]
    return like[0] if len(like) == 1 else None


def _no_column(name: str, columns: Sequence[TargetColumn]) -> str:
    return f"there is no column {name!r}; there are {', '.join(each.name for each in columns)}"


def _types_of_sqlite(schema: StructType) -> str:
    """Its INTEGER has 64 bits, and its times are texts or numbers as they were written."""
    types = [
        f"`{each.name}` {'BIGINT' if isinstance(each.dataType, IntegerType | ShortType) else 'STRING'}"
        for each in schema.fields
        if isinstance(
            each.dataType, IntegerType | ShortType | DateType | TimestampType | TimestampNTZType
        )
    ]
    return ", ".join(types)

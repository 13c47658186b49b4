"""Tables and queries of databases as sources: all rows at once, or those that are added, as a stream."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.delta_table import column
from zhumq.pipelines.jdbc_connection import Connection, JdbcFailed, JdbcUnreachable
from zhumq.pipelines.jdbc_ranges import Growth, RangeUnfit, bound_in, offset_of
from zhumq.pipelines.jdbc_rows import Reading, frame_of, shown
from zhumq.pipelines.spec import JdbcSource
from zhumq.pipelines.spec_errors import spec_errors


class JdbcSourceFailed(ZhumqError):
    """A source in a database that cannot be read further."""


def read_database(session: SparkSession, source: JdbcSource, *, streaming: bool) -> DataFrame:
    """The rows of a source: a stream of those that are added, or all. Raises SpecInvalid, JdbcUnreachable."""
    try:
        reading = Reading(session, source)
        with reading.connected() as connection, spec_errors(source.mark):
            reading.check(connection)
            if streaming and source.grows is not None:
                return _stream(session, GrowingRows(reading))
            return reading.frame(connection, "1 = 1")
    except JdbcUnreachable as error:
        raise JdbcUnreachable(f"source {source.name}: {error}") from None
    except (JdbcFailed, RangeUnfit) as error:
        raise source.mark.wrong(str(error)) from None


class GrowingRows:
    """The stream of the rows behind those that were read. Spark's driver calls it, as one of its own sources.

    An offset is the highest value that a micro-batch reads, so that a repeated batch reads the same range.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._source = reading.source
        self._lock = (
            threading.Lock()
        )  # The last value of an available-now run is set by another thread.
        self._end: str | None = None
        self._is_bounded = False
        with reading.connected() as connection:
            self._schema = reading.frame(connection, "1 = 0").schema
        gateway: Any = reading.session.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._jvm: Any = gateway.jvm

    # The names of these methods are Spark's.

    def schema(self) -> Any:
        return self._reading.session._jsparkSession.parseDataType(self._schema.json())

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        limits = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        return limits.maxRows(self._source.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._named() as connection, self._lock:
            rows = self._reading.rows(connection)
            self._end = None if rows is None else self._reading.newest(connection, rows)
            self._is_bounded = True

    def latestOffset(self, start: Any, _limit: Any) -> Any:  # noqa: N802
        """The end of the next micro-batch: at most so many rows, but all rows of one value."""
        before = None if start is None else self._bound(start)
        with self._named() as connection:
            rows = self._reading.rows(connection)
            if rows is None:
                self._check_end(None, before)
                return start
            if rows.growth is Growth.NUMBER:
                self._check_end(rows.checked(connection.texts(rows.last())[0]), before)
            with self._lock:
                newest = self._end if self._is_bounded else self._reading.newest(connection, rows)
            if newest is None or (before is not None and not rows.is_behind(before, newest)):
                return start
            count = self._source.rows_per_batch
            (nth,) = connection.texts(rows.nth_behind(before, newest, count=count))
            return self._offset(rows.checked(nth) or newest)

    def reportLatestOffset(self) -> None:  # noqa: N802
        """The lag is not known: rows of a database have no numbers without a gap."""

    def getBatch(self, start: Any, end: Any) -> Any:  # noqa: N802
        """The rows behind `start`, up to `end` and with it."""
        before = self._bound(start.get()) if start.isDefined() else None
        with self._named() as connection:
            rows = self._reading.rows(connection)
            if rows is None:
                condition = "1 = 0"  # All of them are gone.
            else:
                condition = rows.between(before, self._bound(end))
            frame = self._reading.frame(connection, condition, streaming=True)
            self._check_columns(frame.schema)
            return frame.select(*(column(name) for name in self._schema.names))._jdf

    def getOffset(self) -> Any:  # noqa: N802
        raise JdbcSourceFailed(
            f"source {self._source.name}: Spark asks for an offset without a limit"
        )

    def initialOffset(self) -> Any:  # noqa: N802
        raise JdbcSourceFailed(f"source {self._source.name}: it has no first offset")

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802
        return self._serialized(text)

    def commit(self, _end: Any) -> None:
        """The database keeps its rows."""

    def stop(self) -> None:
        """No connection is open between two calls."""

    def toString(self) -> str:  # noqa: N802
        return f"jdbc {shown(self._source)} by {self._source.grows}"

    def hashCode(self) -> int:  # noqa: N802
        return hash(self._source.name) & 0x7FFFFFFF

    def equals(self, other: object) -> bool:
        return other is self

    class Java:
        implements: ClassVar[list[str]] = [
            "org.apache.spark.sql.execution.streaming.Source",
            "org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow",
        ]

    @contextmanager
    def _named(self) -> Iterator[Connection]:
        """A connection, with the name of the source in every error."""
        try:
            with self._reading.connected() as connection:
                yield connection
        except ZhumqError as error:
            words = str(error)
            name = f"source {self._source.name}: "
            raise JdbcSourceFailed(words if words.startswith(name) else name + words) from None

    def _check_columns(self, schema: StructType) -> None:
        """Fail if a column has gone or changed. A new one is read when the pipeline is started again."""
        types = {each.name: each.dataType for each in schema.fields}
        for each in self._schema.fields:
            now = types.get(each.name)
            if now != each.dataType:
                what = "is gone" if now is None else f"is {now.simpleString()} now"
                raise JdbcSourceFailed(
                    f"source {self._source.name}: the column {each.name} of {shown(self._source)} {what};"
                    f" it was {each.dataType.simpleString()}. Start the pipeline again when its steps fit"
                )

    def _check_end(self, last: str | None, before: str | None) -> None:
        """Numbers that begin anew would be behind what was read, and never read."""
        if before is None or self._source.may_shrink:
            return
        if last is None or Decimal(last) < Decimal(before):
            ends = "is empty" if last is None else f"ends at {self._source.grows} {last}"
            raise JdbcSourceFailed(
                f"source {self._source.name}: {shown(self._source)} {ends}, and rows up to {before} were"
                f" read: if it was emptied or restored, new rows up to {before} would be left out. Reset the"
                " pipeline to read it from its beginning, or set may_shrink: true to wait for rows"
                f" behind {before}"
            )

    def _bound(self, offset: Any) -> str:
        assert self._source.grows is not None, "it is a stream"
        try:
            return bound_in(str(offset.json()), self._source.grows)
        except RangeUnfit as error:
            raise JdbcSourceFailed(f"source {self._source.name}: {error}") from None

    def _offset(self, bound: str) -> Any:
        assert self._source.grows is not None, "it is a stream"
        return self._serialized(offset_of(self._source.grows, bound))

    def _serialized(self, text: str) -> Any:
        return self._jvm.org.apache.spark.sql.execution.streaming.runtime.SerializedOffset(text)


def _stream(session: SparkSession, rows: GrowingRows) -> DataFrame:
    """A source of Spark's first kind, whose micro-batches are frames: only such a one can read by a frame."""
    jvm: Any = session._jvm
    relations = jvm.org.apache.spark.sql.execution.streaming.runtime
    relation = getattr(relations, "StreamingExecutionRelation$")
    plan = getattr(relation, "MODULE$").apply(rows, session._jsparkSession)
    return frame_of(session, plan)

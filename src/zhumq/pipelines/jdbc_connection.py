"""Connections to databases from the driver, through the JDBC drivers that Spark has."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from zhumq.host.references import SystemReferences
from zhumq.model.errors import SettingInvalid, ZhumqError
from zhumq.model.secret_references import has_reference, resolve_references
from zhumq.pipelines.causes import one_line
from zhumq.pipelines.jdbc_statements import DRIVERS, PACKAGES, TargetColumn, database_of

_HIDDEN: Final = "***"
_NO_SUCH_TABLE: Final = "42P01"  # of PostgreSQL; SQLite has only words
_DRIVER_MISSING: Final = ("ClassNotFoundException", "No suitable driver")


class JdbcFailed(ZhumqError):
    """A database that refuses a statement."""


class JdbcUnreachable(JdbcFailed):
    """A database that does not answer, or refuses the login."""


class NoSuchTable(JdbcFailed):
    """A table that the database does not have."""


@dataclass(frozen=True, slots=True)
class Login:
    """The options of Spark's JDBC source, with what their references lead to. Never printed."""

    options: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @staticmethod
    def of(given: Mapping[str, str]) -> "Login":
        """Raises JdbcUnreachable if a reference leads nowhere."""
        try:
            texts = resolve_references(given, SystemReferences()).texts
        except SettingInvalid as error:
            raise JdbcUnreachable(f"options: {error}") from None
        database = database_of(texts["url"])
        if database is not None:
            # A driver that came with the session's settings registers itself only when it is named.
            texts.setdefault("driver", DRIVERS[database])
        secrets = (texts[name] for name, text in given.items() if has_reference(text))
        return Login(texts, tuple(each for each in secrets if each))

    def without_secrets(self, text: str) -> str:
        for each in self.secrets:
            text = text.replace(each, _HIDDEN)
        return one_line(text)


class Connection:
    """A connection of the driver. Every method raises JdbcFailed."""

    def __init__(self, connection: Any, login: Login) -> None:
        self._java = connection
        self._login = login

    def run(self, sql: str, *values: str | int) -> int:
        """Run a statement. Returns how many rows it has changed."""
        with self._failures():
            statement = self._prepared(sql, values)
            try:
                return int(statement.executeUpdate())
            finally:
                statement.close()

    def number(self, sql: str, *values: str | int) -> int | None:
        """The first column of the first row; None without a row."""
        with self._failures():
            statement = self._prepared(sql, values)
            try:
                rows = statement.executeQuery()
                return int(rows.getLong(1)) if rows.next() else None
            finally:
                statement.close()

    def texts(self, sql: str) -> tuple[str | None, ...]:
        """The columns of the first row as texts; without a row, as many times None."""
        with self._failures():
            statement = self._prepared(sql, ())
            try:
                rows = statement.executeQuery()
                places = range(1, rows.getMetaData().getColumnCount() + 1)
                found = [rows.getString(each) for each in places] if rows.next() else []
                return tuple(None if each is None else str(each) for each in found) or tuple(
                    None for _ in places
                )
            finally:
                statement.close()

    def columns(self, table: str) -> tuple[TargetColumn, ...]:
        """The columns of a table. Raises NoSuchTable."""
        with self._failures():
            statement = self._prepared(f"SELECT * FROM {table} WHERE 1 = 0", ())
            try:
                facts = statement.executeQuery().getMetaData()
                return tuple(
                    TargetColumn(
                        name=str(facts.getColumnName(each)),
                        type_name=str(facts.getColumnTypeName(each)),
                    )
                    for each in range(1, facts.getColumnCount() + 1)
                )
            finally:
                statement.close()

    def tables_like(self, prefix: str) -> Sequence[str]:
        """The names of the tables that begin so, in any schema."""
        with self._failures():
            found = self._java.getMetaData().getTables(None, None, f"{prefix}%", None)
            names = []
            while found.next():
                names.append(str(found.getString("TABLE_NAME")))
            found.close()
        return [name for name in names if name.startswith(prefix)]

    @contextmanager
    def transaction(self, *, commits: bool) -> Iterator[None]:
        """All statements of the block, or none; without `commits` none in any case."""
        with self._failures():
            self._java.setAutoCommit(False)
        is_done = False
        try:
            yield
            is_done = True
        finally:
            if is_done and commits:
                with self._failures():
                    self._java.commit()
            else:
                with suppress(Py4JError):
                    self._java.rollback()
            with suppress(Py4JError):
                self._java.setAutoCommit(True)

    def close(self) -> None:
        with suppress(Py4JError):
            self._java.close()

    def _prepared(self, sql: str, values: Sequence[str | int]) -> Any:
        statement = self._java.prepareStatement(sql)
        for index, each in enumerate(values, 1):
            if isinstance(each, int):
                statement.setLong(index, each)
            else:
                statement.setString(index, each)
        return statement

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            cause = error.java_exception
            words = self._login.without_secrets(str(cause.getMessage()))
            if _is_missing_table(cause, words):
                raise NoSuchTable(words) from None
            raise JdbcFailed(words) from None


@contextmanager
def connected(session: SparkSession, login: Login) -> Iterator[Connection]:
    """A connection of the driver. Raises JdbcUnreachable."""
    connection = Connection(_connect(session, login), login)
    try:
        yield connection
    finally:
        connection.close()


def _connect(session: SparkSession, login: Login) -> Any:
    jvm: Any = session._jvm
    given = jvm.java.util.HashMap()
    # The connection needs no table, but the class of the options does.
    for name, text in {"dbtable": "none", **login.options}.items():
        given.put(name, text)
    url = login.options["url"]
    try:
        scala = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(given)
        options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(scala)
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)
        return dialect.createConnectionFactory(options).apply(-1)
    except Py4JJavaError as error:
        words = login.without_secrets(str(error.java_exception))
        if any(each in words for each in _DRIVER_MISSING):
            raise JdbcUnreachable(_no_driver(url)) from None
        message = login.without_secrets(str(error.java_exception.getMessage()))
        raise JdbcUnreachable(f"the database does not let us in: {message}") from None


def _no_driver(url: str) -> str:
    kind = ":".join(url.split(":")[:2])
    database = database_of(url)
    package = PACKAGES[database] if database is not None else "GROUP:NAME:VERSION"
    return f"Spark has no driver for {kind}: set spark: {{spark.jars.packages: {package}}}"


def _is_missing_table(cause: Any, words: str) -> bool:
    try:
        state = cause.getSQLState()
    except Py4JError:
        state = None
    return state == _NO_SUCH_TABLE or "no such table" in words

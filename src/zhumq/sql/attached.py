"""`zhumq.spark.attach`: topics as views of a Spark session, and queries that see each offset once."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from zhumq.pipelines.archive import STATE_FOLDER, ArchiveTable
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import explain
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.sql_text import reads_each_once, views_in
from zhumq.spark.options import DEFAULT_BOOTSTRAP
from zhumq.spark.security_options import PREFIX, security_options
from zhumq.sql.boundary import ArchiveGap, PartitionSplit, split_partitions
from zhumq.sql.catalog import Archives, Catalog, Table
from zhumq.sql.rows import archive_rows, archived_offsets, topic_rows, with_fields
from zhumq.sql.statements import SqlFailed, check_reads_only, failure, unknown_table

VIEWS_MAX: Final = 200  # of one attach: each asks the brokers for offsets
ATTEMPTS_MAX: Final = 3  # of a query whose rows move from the topic to the archive meanwhile
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_TOPIC_SCAN: Final = "RelationV2["  # in Spark's plan
# In the error of a query: what it was going to read has moved or is deleted.
_MOVED: Final = ("DataLost", "FileNotFoundException", "FAILED_READ_FILE.FILE_NOT_EXIST")

Result = TypeVar("Result")


class TopicTables:
    """The topics of a cluster as tables of a Spark session.

    Each query decides once for each partition which offsets it reads from the archive and which from the topic.
    """

    def __init__(
        self,
        spark: SparkSession,
        brokers: Brokers,
        archives: Archives,
        *,
        allows_gaps: bool = False,
    ) -> None:
        self._spark = spark
        self._catalog = Catalog(brokers)
        self._archives = archives
        self._allows_gaps = allows_gaps
        self._known: dict[str, Table] = {}
        self._views: set[str] = set()  # those that the session has

    def tables(self) -> dict[str, Table]:
        """The topics as they are now, by name."""
        self._known = self._catalog.tables()
        return self._known

    def known(self) -> Mapping[str, Table]:
        """The topics as they were when they were last asked for."""
        return self._known

    def archive_of(self, topic: str) -> str | None:
        """The path of a topic's archive, as it was named, if there is one."""
        named = self._archives.path(topic)
        if named is None or not Folder(self._spark, named[0]).exists(STATE_FOLDER):
            return None
        return named[0]

    def frame(self, topic: str, *, pushes_filters: bool = False) -> DataFrame:
        """The rows of a topic and of its archive, as far as both go now.

        Raises ArchiveGap, ArchiveAhead, ArchiveUnusable, SqlFailed.
        """
        table = self._table(topic)
        named = self._archives.path(table.topic)
        archive = None if named is None else ArchiveTable(self._spark, named[0])
        must_exist = named is not None and named[1]
        splits = self._splits(table.topic, archive, must_exist=must_exist)
        rows = topic_rows(
            self._spark, self._catalog.brokers, table.topic, splits, pushes_filters=pushes_filters
        )
        if archive is not None and any(each.archived_until for each in splits.values()):
            rows = rows.unionByName(archive_rows(self._spark, archive.path, table.topic, splits))
        versions = [] if table.schema_type is None else self._catalog.schemas(table.topic)
        return with_fields(rows, table.topic, versions)

    def sql(self, query: str) -> DataFrame:
        """The result of a query over topics, as far as they go now.

        Raises SqlFailed for a mistake in it.
        """
        check_reads_only(query)
        self.tables()
        names = views_in(query, self._known)
        # PySpark keeps the filters of one scan of a DataFrame for the next one, so each has to be the only one.
        pushes = reads_each_once(query) and self._spark.conf.get(_PUSHDOWN, "false") == "true"
        rows = self._analyzed(query, names, pushes_filters=pushes)
        if pushes and _scans(rows) > len(names):
            rows = self._analyzed(query, names, pushes_filters=False)
        return rows

    def run(self, query: str, use: Callable[[DataFrame], Result]) -> Result:
        """What `use` makes of the result; again with a new decision if the rows have moved meanwhile.

        Raises SqlFailed.
        """
        attempt = 1
        while True:
            rows = self.sql(query)
            try:
                return use(rows)
            except (PySparkException, Py4JError) as error:
                if attempt == ATTEMPTS_MAX or not any(word in str(error) for word in _MOVED):
                    raise SqlFailed(explain(error)) from error
            attempt += 1

    def refresh(self, topics: Iterable[str] | None = None) -> list[str]:
        """Make a temporary view of each topic, as far as it goes now. The names of the views."""
        known = self.tables()
        names = sorted(known) if topics is None else list(topics)
        if len(names) > VIEWS_MAX:
            raise SqlFailed(
                f"there are {len(names)} topics, more than {VIEWS_MAX}: name those that you need,"
                " attach(spark, topics=[...])"
            )
        for name in names:
            self._view(name, pushes_filters=False)
            self._views.add(name)
        return names

    def _analyzed(self, query: str, names: Iterable[str], *, pushes_filters: bool) -> DataFrame:
        for name in names:
            self._view(name, pushes_filters=pushes_filters)
        try:
            return self._spark.sql(query)
        except (AnalysisException, ParseException) as error:
            raise failure(error, query, self._known) from None
        finally:
            # Other queries of the session read the views that it has, so these get no filters of this one.
            if pushes_filters:
                for name in self._views.intersection(names):
                    self._view(name, pushes_filters=False)

    def _view(self, topic: str, *, pushes_filters: bool) -> None:
        frame = self.frame(topic, pushes_filters=pushes_filters)
        frame.createOrReplaceTempView(f"`{topic}`")

    def _table(self, topic: str) -> Table:
        if not self._known:
            self.tables()
        if topic not in self._known:
            raise unknown_table(topic, self._known)
        same = sorted(each for each in self._known if each.lower() == topic.lower())
        if len(same) > 1:
            raise SqlFailed(
                f"the topics {' and '.join(same)} differ only in their case, and Spark's tables do not:"
                " read them with format('zhumq')"
            )
        return self._known[topic]

    def _splits(
        self, topic: str, archive: ArchiveTable | None, *, must_exist: bool
    ) -> Mapping[int, PartitionSplit]:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            # The archive first: what it holds then is behind the end of the topic.
            archived = (
                {} if archive is None else archived_offsets(archive, topic, must_exist=must_exist)
            )
            offsets = self._catalog.offsets(topic)
            # It may have gone on, and retention behind it: then there is no gap.
            last = attempt == ATTEMPTS_MAX
            with contextlib.nullcontext() if last else contextlib.suppress(ArchiveGap):
                return split_partitions(topic, offsets, archived, allows_gaps=self._allows_gaps)
        raise AssertionError  # The last attempt returns or raises.


def attach(
    spark: SparkSession,
    bootstrap: str = DEFAULT_BOOTSTRAP,
    *,
    topics: Iterable[str] | None = None,
    archives: str | Mapping[str, str] | None = None,
    security: Mapping[str, str] | None = None,
    allows_gaps: bool = False,
) -> TopicTables:
    """Make a view of each topic in a session. The views show what is there now; `refresh()` makes them anew.

    `archives` is a folder that has the archive of each topic under its name, or the path of each.
    `security` has Kafka's client settings; secrets may be references. `sql(query)` of the result sees the newest rows.

    Raises ClusterFailed, ArchiveGap and others.
    """
    given = security_options({f"{PREFIX}{name}": text for name, text in (security or {}).items()})
    named = (
        Archives(folder=archives)
        if isinstance(archives, str)
        else Archives(paths=dict(archives or {}))
    )
    brokers = Brokers(bootstrap=bootstrap, settings=given)
    tables = TopicTables(spark, brokers, named, allows_gaps=allows_gaps)
    tables.refresh(topics)
    return tables


def _scans(rows: DataFrame) -> int:
    """How many times the plan of a query reads topics."""
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    return str(plan).count(_TOPIC_SCAN)

"""What can be queried: the topics of a cluster, the schemas of their values, and the archives that were named."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused
from zhumq.admin.schemas import ReadableSchema, list_subjects, show_versions
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.pipelines.brokers import Brokers
from zhumq.spark.cluster_client import EARLIEST, LATEST, ClusterClient
from zhumq.spark.options import Subscription
from zhumq.sql.boundary import PartitionOffsets

REACH_SECONDS_MAX: Final = 10.0
SUBJECT_SUFFIX: Final = (
    "-value"  # of the subject of a topic's values, as Confluent's serializers name it
)
_READ_COMMITTED: Final = 1


class TableUnknown(ZhumqError):
    """There is no topic of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archives:
    """Where the archives of topics are: by name, or in a folder with one table for each topic."""

    paths: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None

    def path(self, topic: str) -> tuple[str, bool] | None:
        """The path of a topic's archive, and whether it must exist; None if none was named."""
        if topic in self.paths:
            return self.paths[topic], True
        if self.folder is not None:
            return f"{self.folder.rstrip('/')}/{topic}", False
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A topic as a table: the type of its schema, if it has one."""

    topic: str
    partitions: int
    schema_type: str | None


class Catalog:
    """Asks the brokers; each call sees them as they are now."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers

    def tables(self) -> dict[str, Table]:
        """All topics except internal ones, by name."""
        everything = Subscription(pattern="")
        with self._client() as client:
            found = client.partitions(None)
        types = self._schema_types()
        return {
            topic: Table(
                topic=topic,
                partitions=len(partitions),
                schema_type=types.get(f"{topic}{SUBJECT_SUFFIX}"),
            )
            for topic, partitions in sorted(found.items())
            if everything.names(topic)
        }

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]:
        """Where each partition begins and ends. Raises TableUnknown."""
        with self._client() as client:
            numbers = client.partitions([topic]).get(topic)
            if numbers is None:
                raise TableUnknown(f"the topic {topic!r} was deleted just now")
            places = [TopicPartition(topic, number) for number in numbers]
            # In this order, so that no bound is before another one that was asked for earlier.
            first = client.list_offsets(dict.fromkeys(places, EARLIEST))
            latest = dict.fromkeys(places, LATEST)
            stable = client.list_offsets(latest, isolation_level=_READ_COMMITTED)
            end = client.list_offsets(latest)
        return {
            place.partition: PartitionOffsets(
                first_offset=first[place], stable_offset=stable[place], end_offset=end[place]
            )
            for place in places
        }

    def schemas(self, topic: str) -> list[ReadableSchema]:
        """All versions of the schema of a topic's values, the oldest first."""
        with self._connection() as connection:
            return show_versions(connection, f"{topic}{SUBJECT_SUFFIX}")

    def _schema_types(self) -> dict[str, str]:
        try:
            with self._connection() as connection:
                return {each.subject: each.type for each in list_subjects(connection)}
        except Refused:
            # Who may not read the registry sees bytes, as without one.
            return {}

    def _client(self) -> ClusterClient:
        return ClusterClient(
            self.brokers.bootstrap,
            client_id="zhumq-sql",
            retry_seconds_max=REACH_SECONDS_MAX,
            security=self.brokers.security(),
        )

    def _connection(self) -> ClusterConnection:
        return ClusterConnection(
            self.brokers.bootstrap, client_id="zhumq-sql", security=self.brokers.security()
        )

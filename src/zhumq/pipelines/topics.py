"""Creates the topics that a pipeline writes to, and reads their retention."""

import contextlib
from collections.abc import Iterable

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AlreadyExists
from zhumq.admin.settings import topic_settings
from zhumq.admin.topics import create_topic, list_topics
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.spec import Pipeline, TopicSource
from zhumq.spark.cluster_client import ClusterClient

REACH_SECONDS_MAX = 10.0


def check_broker(brokers: Brokers) -> None:
    """Raise ClusterFailed early if no broker answers, SecurityFailed if none accepts the settings."""
    with ClusterClient(
        brokers.bootstrap, retry_seconds_max=REACH_SECONDS_MAX, security=brokers.security()
    ) as client:
        client.partitions([])


def reads_topics(pipeline: Pipeline) -> bool:
    """Whether a source of the pipeline needs a broker: not the files of a folder or of a log."""
    return any(
        isinstance(source, TopicSource) and "path" not in source.options
        for source in pipeline.sources
    )


def make_topics(brokers: Brokers, names: Iterable[str]) -> None:
    """Create those of the topics that do not exist."""
    targets = set(names)
    if not targets:
        return
    with ClusterConnection(brokers.bootstrap, security=brokers.security()) as connection:
        for name in sorted(targets - {each.topic for each in list_topics(connection)}):
            with contextlib.suppress(AlreadyExists):
                create_topic(connection, name)


def retention_ms_of(brokers: Brokers, topic: str) -> int | None:
    """How long a topic keeps a record after its timestamp; None if retention does not depend on it."""
    with ClusterConnection(brokers.bootstrap, security=brokers.security()) as connection:
        settings = topic_settings(connection, topic)
    values = {name: each.value for name, each in settings.items() if each.value is not None}
    deletes = "delete" in values.get("cleanup.policy", "delete").split(",")
    by_own_time = values.get("message.timestamp.type", "CreateTime") == "CreateTime"
    retention_ms = int(values.get("retention.ms", -1))
    return retention_ms if deletes and by_own_time and retention_ms >= 0 else None

"""The topics of a pipeline are made by the same operations as those of the commands."""

import pytest

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import NotFound, Refused
from zhumq.admin.settings import alter_topic_settings
from zhumq.admin.topics import create_topic, topic_partitions
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.topics import make_topics, retention_ms_of


def test_only_missing_topics_are_made(connection: ClusterConnection, topic: str) -> None:
    create_topic(connection, topic, partitions=3)
    make_topics(Brokers(bootstrap=connection.bootstrap), [topic, f"{topic}-new", f"{topic}-new"])
    assert topic_partitions(connection, topic) == [0, 1, 2]
    assert topic_partitions(connection, f"{topic}-new") == [0]
    with pytest.raises(Refused, match="cannot create 'a/b'"):
        make_topics(Brokers(bootstrap=connection.bootstrap), ["a/b"])


def test_a_pipeline_without_topics_asks_no_broker() -> None:
    make_topics(Brokers(bootstrap="127.0.0.1:1"), [])


def test_retention_is_known_where_it_depends_on_the_records_time(
    connection: ClusterConnection, topic: str
) -> None:
    create_topic(connection, topic, settings={"retention.ms": "5000"})
    assert retention_ms_of(Brokers(bootstrap=connection.bootstrap), topic) == 5000
    alter_topic_settings(connection, topic, {"message.timestamp.type": "LogAppendTime"})
    assert retention_ms_of(Brokers(bootstrap=connection.bootstrap), topic) is None
    with pytest.raises(NotFound):
        retention_ms_of(Brokers(bootstrap=connection.bootstrap), "absent")

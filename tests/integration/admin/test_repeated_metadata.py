"""A program that asks for the metadata again and again: the same answer while nothing changes, and never an old one."""

from collections.abc import Iterator

import pytest

from zhumq.admin import topics
from zhumq.admin.cluster import describe_cluster
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Unavailable


@pytest.fixture
def asking(connection: ClusterConnection) -> Iterator[ClusterConnection]:
    with ClusterConnection(connection.bootstrap, asks_often=True) as found:
        yield found


def test_what_has_not_changed_is_the_same_object_and_a_change_is_seen_at_once(
    connection: ClusterConnection, asking: ClusterConnection, topic: str
) -> None:
    before = asking.metadata()
    assert asking.metadata() is before
    topics.create_topic(connection, topic, partitions=3)
    after = asking.metadata()
    assert topic not in before.topics
    assert len(after.topics[topic].partitions) == 3
    topics.delete_topic(connection, topic)
    assert topic not in asking.metadata().topics


def test_it_is_what_kafkas_client_library_finds(
    connection: ClusterConnection, asking: ClusterConnection, topic: str
) -> None:
    topics.create_topic(connection, topic, partitions=2)
    assert topics.list_topics(asking) == topics.list_topics(connection)
    assert describe_cluster(asking) == describe_cluster(connection)


def test_a_cluster_that_does_not_answer_is_an_error_in_words() -> None:
    asking = ClusterConnection("127.0.0.1:1", asks_often=True, retry_seconds=0.1)
    with asking, pytest.raises(Unavailable, match="cannot list topics"):
        asking.metadata()

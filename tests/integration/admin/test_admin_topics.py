"""Operations on topics, settings, the cluster and its placement: typed results, typed errors."""

import pytest

from zhumq.admin import cluster, reassignment, settings, topics
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, AlreadyExists, NotFound, Refused, Unavailable
from zhumq.admin.offsets import Position, resolve_offsets
from zhumq.admin.reachability import check_reachable
from zhumq.admin.topic_figures import topic_figures
from zhumq.admin.topics import Partition, TopicSummary
from zhumq.client.errors import RequestFailed
from zhumq.client.producer import Producer
from zhumq.host.ports import free_ports


def test_a_topic_is_created_listed_described_grown_and_deleted(
    connection: ClusterConnection, topic: str
) -> None:
    topics.create_topic(connection, topic, partitions=2, settings={"retention.ms": "60000"})
    assert TopicSummary(topic=topic, partitions=2, replicas=1) in topics.list_topics(connection)
    with Producer(connection.bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, partition=0)
    found = topics.describe_topic(connection, topic)
    assert (found.topic, found.point_to_point, found.warning) == (topic, None, None)
    assert found.settings == {"retention.ms": "60000"}
    facts = {"leader": 0, "replicas": (0,), "in_sync": (0,), "mode": None, "wanted_mode": None}
    assert found.partitions == (
        Partition(partition=0, earliest=0, latest=3, messages=3, **facts),  # type: ignore[arg-type]
        Partition(partition=1, earliest=0, latest=0, messages=0, **facts),  # type: ignore[arg-type]
    )
    topics.add_partitions(connection, topic, 4)
    assert topics.topic_partitions(connection, topic) == [0, 1, 2, 3]
    topics.delete_topic(connection, topic)
    assert topic not in [each.topic for each in topics.list_topics(connection)]


def test_figures_of_many_topics_are_asked_for_together(
    connection: ClusterConnection, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        topics.create_topic(connection, name, partitions=2)
    with Producer(connection.bootstrap) as producer:
        for value in (b"1", b"2"):
            producer.send(names[2], value, partition=1)
    assert topic_figures(connection, []) == []
    found = topic_figures(connection, [names[2], "absent", names[0]])
    assert [(each.topic, each.messages, each.written) for each in found] == [
        (names[2], 2, 2),
        (names[0], 0, 0),
    ]
    full, empty = found
    assert full.size_bytes
    assert (empty.size_bytes, empty.leaderless, empty.underreplicated) == (0, 0, 0)


def test_errors_are_of_a_kind_and_say_what_failed_and_what_to_do(
    connection: ClusterConnection, topic: str
) -> None:
    topics.create_topic(connection, topic)
    with pytest.raises(AlreadyExists) as exists:
        topics.create_topic(connection, topic)
    assert exists.value.failure == f"cannot create {topic!r}: it exists already"
    assert exists.value.advice == "see `zhumq topic describe`"
    assert str(exists.value) == f"{exists.value.failure}: {exists.value.advice}"
    with pytest.raises(NotFound, match="there is no topic 'absent'"):
        topics.describe_topic(connection, "absent")
    with pytest.raises(NotFound, match="cannot delete 'absent'"):
        topics.delete_topic(connection, "absent")
    with pytest.raises(Refused, match=r"no\.such\.setting"):
        topics.create_topic(connection, f"{topic}-2", settings={"no.such.setting": "1"})
    with pytest.raises(Refused, match="add partitions"):
        topics.add_partitions(connection, topic, 1)
    with pytest.raises(Refused, match="cannot create ''"):
        topics.create_topic(connection, "")
    assert issubclass(AdminError, RequestFailed), "what zhumq.Admin raises has not changed"


def test_a_topics_own_settings_are_marked(connection: ClusterConnection, topic: str) -> None:
    topics.create_topic(connection, topic, settings={"retention.ms": "1000"})
    settings.alter_topic_settings(connection, topic, {"segment.bytes": "2000000"})
    found = settings.topic_settings(connection, topic)
    assert {name: each.value for name, each in found.items() if each.is_own} == {
        "retention.ms": "1000",
        "segment.bytes": "2000000",
    }
    settings.alter_topic_settings(connection, topic, {}, ["retention.ms"])
    assert not settings.topic_settings(connection, topic)["retention.ms"].is_own
    with pytest.raises(Refused, match="cannot unset"):
        settings.alter_topic_settings(connection, topic, {}, ["retention.mz"])


def test_a_setting_of_all_brokers_is_set_and_reset(connection: ClusterConnection) -> None:
    name = "leader.replication.throttled.rate"
    default = settings.broker_setting(connection, name)
    settings.alter_setting_of_all_brokers(connection, name, "70000")
    assert settings.broker_setting(connection, name) == "70000"
    settings.alter_setting_of_all_brokers(connection, name, None)
    assert settings.broker_setting(connection, name) == default
    with pytest.raises(Refused, match="cannot set listeners"):
        settings.alter_setting_of_all_brokers(connection, "listeners", "x")


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (Position(edge="earliest"), 0),
        (Position(edge="latest"), 4),
        (Position(offset=2), 2),
        (Position(offset=99), 4),
        (Position(timestamp_ms=1_500), 1),
        (Position(timestamp_ms=9_000), 4),
    ],
)
def test_a_position_is_an_offset_of_the_log(
    connection: ClusterConnection, position: Position, offset: int
) -> None:
    topic = "positions"
    if topic not in [each.topic for each in topics.list_topics(connection)]:
        # Kept: retention would delete messages of 1970.
        topics.create_topic(connection, topic, settings={"retention.ms": "-1"})
        with Producer(connection.bootstrap) as producer:
            for number in range(4):
                producer.send(topic, b"x", timestamp_ms=1_000 * (number + 1))
    assert resolve_offsets(connection, topic, [0], position) == {0: offset}


def test_a_cluster_of_one_broker_is_well_and_needs_no_moves(
    connection: ClusterConnection, topic: str
) -> None:
    topics.create_topic(connection, topic, partitions=2)
    state = cluster.describe_cluster(connection)
    (broker,) = state.brokers
    assert (broker.broker, broker.address, broker.controller) == (0, connection.bootstrap, True)
    assert broker.leads == broker.replicas == state.partitions >= 2
    assert (state.leaderless, state.underreplicated, state.unwell) == (0, 0, ())
    plan = reassignment.plan_rebalancing(connection)
    assert plan.moves == ()
    (share,) = plan.brokers
    assert (share.before, share.after, share.fetches) == (broker.replicas, broker.replicas, 0)
    with pytest.raises(NotFound, match="broker 7 is not alive"):
        reassignment.plan_rebalancing(connection, [7])
    with pytest.raises(Refused):
        reassignment.plan_rebalancing(connection, [0])


def test_a_broker_that_is_not_there_is_unavailable() -> None:
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(Unavailable, match=f"no broker at {nowhere}"):
        check_reachable(nowhere)
    with ClusterConnection(nowhere, retry_seconds=0.5) as connection:
        with pytest.raises(Unavailable, match="cannot list topics"):
            topics.list_topics(connection)
        with pytest.raises(Unavailable, match="did not answer list partition reassignments"):
            reassignment.moving_partitions(connection)
    with pytest.raises(Refused, match="HOST:PORT"):
        check_reachable("a:")

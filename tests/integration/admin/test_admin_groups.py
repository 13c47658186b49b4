"""Operations on groups, subscriptions, sessions and dead letters: typed results, typed errors."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

import confluent_kafka
import pytest

from zhumq import Admin, Consumer
from zhumq.admin import dead_letters, groups, sessions, subscriptions
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.dead_letters import DeadLetterCount, ReasonCount
from zhumq.admin.errors import InUse, NotFound
from zhumq.admin.group_lags import GroupLag, group_lags, lag_of
from zhumq.admin.groups import GroupOffset, GroupSummary, OffsetChange, committed_offsets
from zhumq.admin.offsets import Position
from zhumq.admin.topic_groups import names_of_topic_groups, topic_groups
from zhumq.admin.topics import create_topic, delete_topic, describe_topic
from zhumq.client.message import Message
from zhumq.client.producer import Producer

SECONDS_MAX = 60.0
MESSAGES = 4


def fill(connection: ClusterConnection, topic: str) -> None:
    create_topic(connection, topic)
    with Producer(connection.bootstrap) as producer:
        for number in range(MESSAGES):
            producer.send(topic, b"%d" % number)


def take(consumer: Consumer, count: int) -> list[Message]:
    """The first messages, without an answer to any."""
    found: list[Message] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline
        found += consumer.poll(1.0)
    return found


@contextlib.contextmanager
def reading(connection: ClusterConnection, topic: str, mode: str | None) -> Iterator[list[Message]]:
    """A consumer of the group with the topic's name that has received all messages."""
    bootstrap = connection.bootstrap
    with Consumer(topic, group=topic, mode=mode, bootstrap=bootstrap, auto_ack=False) as consumer:  # type: ignore[arg-type]
        yield take(consumer, MESSAGES)


def test_a_kafka_group_is_listed_described_reset_and_deleted(
    connection: ClusterConnection, topic: str
) -> None:
    fill(connection, topic)
    with reading(connection, topic, None) as messages:
        messages[0].ack()
        with pytest.raises(InUse, match="has members"):
            groups.reset_offsets(connection, topic, topic, Position(offset=0))
        with pytest.raises(InUse, match="has members"):
            groups.delete_group(connection, topic)
        (member,) = groups.describe_group(connection, topic).members
        assert (member.partitions, member.static_id) == (1, None)
    facts = GroupSummary(group=topic, state="Empty", type="Consumer")
    assert facts in groups.list_groups(connection).groups
    described = groups.describe_group(connection, topic)
    assert (described.state, described.mode, described.members) == ("Empty", None, ())
    offset = GroupOffset(topic=topic, partition=0, committed=1, latest=MESSAGES, lag=MESSAGES - 1)
    assert described.offsets == (offset,)
    move = OffsetChange(topic=topic, partition=0, before=1, after=3)
    for dry_run, after in ((True, 1), (False, 3)):
        changes = groups.reset_offsets(
            connection, topic, topic, Position(offset=3), dry_run=dry_run
        )
        assert changes == [move]
        assert committed_offsets(connection, topic) == {(topic, 0): after}
    with pytest.raises(NotFound, match="has no partition 7"):
        groups.reset_offsets(connection, topic, topic, Position(offset=3), partition=7)
    groups.delete_group(connection, topic)
    for operation in (groups.describe_group, groups.delete_group):
        with pytest.raises(NotFound, match="there is no"):
            operation(connection, topic)


def test_a_group_forgets_a_topic_that_no_member_reads(
    connection: ClusterConnection, topic: str
) -> None:
    fill(connection, topic)
    other = f"{topic}-other"
    create_topic(connection, other, partitions=2)
    for name in (topic, other):
        groups.reset_offsets(connection, topic, name, Position(offset=0))
    with (
        reading(connection, topic, None),
        pytest.raises(InUse, match="members of the group read the topic"),
    ):
        groups.delete_offsets(connection, topic, topic)
    assert set(committed_offsets(connection, topic)) == {(topic, 0), (other, 0), (other, 1)}
    # Also of a topic that is gone.
    delete_topic(connection, other)
    assert groups.delete_offsets(connection, topic, topic) == [0]
    with pytest.raises(NotFound, match="has no offsets in"):
        groups.delete_offsets(connection, topic, topic)
    with pytest.raises(NotFound, match="there is no"):
        groups.delete_offsets(connection, f"{topic}-none", topic)


def test_a_subscription_group_has_a_mode_a_claim_and_a_session(
    connection: ClusterConnection, topic: str
) -> None:
    fill(connection, topic)
    with reading(connection, topic, "ptp-shared") as messages:
        for message in messages[:2]:
            message.ack()
        deadline = time.monotonic() + SECONDS_MAX
        while (described := groups.describe_group(connection, topic)).offsets[0].in_flight != 2:
            assert time.monotonic() < deadline, described
        assert (described.mode, described.claims) == ("ptp-shared", (topic,))
        assert (described.state, described.offsets[0].lag) == ("Stable", MESSAGES - 2)
        (session,) = sessions.list_sessions(connection, topic)
        assert (session.group, session.state, session.topics) == (topic, "active", (topic,))
        with pytest.raises(InUse, match="has 1 consumers"):
            subscriptions.release_topic(connection, topic)
    claim = describe_topic(connection, topic).point_to_point
    assert claim is not None
    assert (claim.group, claim.mode) == (topic, "ptp-shared")
    (listed,) = [each for each in groups.list_groups(connection).groups if each.group == topic]
    assert (listed.type, listed.mode, listed.claims) == ("Share", "ptp-shared", (topic,))
    assert subscriptions.release_topic(connection, topic) == topic
    with pytest.raises(NotFound, match="read point-to-point by no group"):
        subscriptions.release_topic(connection, topic)
    with pytest.raises(NotFound, match="no session 'a/b'"):
        sessions.resume_session(connection, "a/b")


def commit_as_classic(connection: ClusterConnection, topic: str) -> None:
    """A classic group with the topic's name that is done with one message."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": connection.bootstrap,
            "group.id": topic,
            "group.protocol": "classic",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + SECONDS_MAX
    while (message := consumer.poll(1.0)) is None or message.error() is not None:
        assert time.monotonic() < deadline
    consumer.commit(message, asynchronous=False)
    consumer.close()


@pytest.mark.slow
def test_the_lags_of_groups_of_all_kinds_are_those_that_each_is_described_with(
    connection: ClusterConnection, topic: str
) -> None:
    classic, consumer, share = names = [
        f"{topic}-{kind}" for kind in ("classic", "consumer", "share")
    ]
    for name in names:
        fill(connection, name)
    commit_as_classic(connection, classic)
    with (
        reading(connection, consumer, None) as taken,
        reading(connection, share, "ptp-shared") as shared,
    ):
        for message in (*taken[:2], *shared[:3]):
            message.ack()
        expected = {
            classic: GroupLag(group=classic, members=0, lag=3, lag_seconds=None, idle_partitions=1),
            consumer: GroupLag(
                group=consumer, members=1, lag=2, lag_seconds=None, idle_partitions=0
            ),
            share: GroupLag(group=share, members=1, lag=1, lag_seconds=None, idle_partitions=0),
        }
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            found = group_lags(connection, [*names, "absent", classic])
            # The brokers may have sampled the lag in time, or not yet.
            if {each.group: replace(each, lag_seconds=None) for each in found.lags} == expected:
                break
            assert time.monotonic() < deadline, found
        kinds = {each.group: each.type for each in groups.list_groups(connection).groups}
        assert [kinds[name] for name in names] == ["Classic", "Consumer", "Share"]
        described = [lag_of(groups.describe_group(connection, name)) for name in names]
        assert {each.group: replace(each, lag_seconds=None) for each in described} == expected
        (absent,) = found.left_out
        assert (absent.group, absent.reason) == ("absent", "there is no group 'absent'")
        for name in names:  # Each group reads the topic of its name.
            (reader,) = topic_groups(connection, name, names_of_topic_groups(connection, name))
            assert (reader.group, reader.partitions) == (name, 1)
            assert (reader.members, reader.lag, reader.idle_partitions) == (
                expected[name].members,
                expected[name].lag,
                expected[name].idle_partitions,
            )
        with pytest.raises(NotFound, match="there is no topic 'absent'"):
            names_of_topic_groups(connection, "absent")


def test_dead_letters_are_counted_read_and_replayed_once(
    connection: ClusterConnection, topic: str
) -> None:
    fill(connection, topic)
    name = f"{topic}.dlq"
    with reading(connection, topic, "ptp") as messages:
        for number, message in enumerate(messages):
            message.reject(f"bad {number % 2}")
    # They are written behind the answers: the last may not be there when the consumer has left.
    deadline = time.monotonic() + SECONDS_MAX
    while dead_letters.count_dead_letters(connection).get(name) != DeadLetterCount(
        left=MESSAGES, replayed=0
    ):
        assert time.monotonic() < deadline
    assert dead_letters.count_reasons(connection, topic) == [
        ReasonCount(group=topic, reason=f"bad {number}", left=2, replayed=0) for number in range(2)
    ]
    read = list(dead_letters.read_dead_letters(connection, topic, limit=3))
    assert [each.value for each in read] == [b"0", b"1", b"2"]
    assert [each.story.offset for each in read] == [0, 1, 2]
    progress: list[tuple[int, int]] = []
    count = dead_letters.replay_dead_letters(
        connection, topic, progress=lambda done, total: progress.append((done, total))
    )
    assert (count, progress[-1]) == (4, (4, 4))
    assert dead_letters.replay_dead_letters(connection, topic) == 0
    assert dead_letters.count_dead_letters(connection)[name] == DeadLetterCount(left=0, replayed=4)
    with pytest.raises(NotFound, match="there is no dead-letter topic"):
        dead_letters.replay_dead_letters(connection, "absent")


def test_the_librarys_admin_is_the_connection_of_every_operation(
    connection: ClusterConnection, topic: str
) -> None:
    with Admin(connection.bootstrap) as admin:
        admin.create_topic(topic, partitions=3)
        assert admin.topics()[topic] == len(describe_topic(admin, topic).partitions) == 3
        admin.delete_topic(topic)
        assert topic not in admin.topics()

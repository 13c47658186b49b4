"""Half messages through a real broker: prepare, decide, be checked, be refused."""

import threading
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from half_support import (
    SECONDS_MAX,
    SETTINGS,
    listed,
    read_committed,
    wait_for,
    wait_for_values,
)

import zhumq
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.half_messages import commit_half_message
from zhumq.admin.schemas import register_schema
from zhumq.client.errors import HalfMessageDecided, HalfMessageRefused, OutcomeUnknown
from zhumq.records.partitioner import partition_of
from zhumq.testing.broker import RunningBroker, broker


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS | {"half.message.check.max": "100"}) as broker_:
        yield broker_


@pytest.fixture
def topic(running: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = f"t-{request.node.name[:80].translate(str.maketrans('[] ', '---'))}"
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


@pytest.fixture(scope="module")
def producer(running: RunningBroker) -> Iterator[zhumq.HalfMessageProducer]:
    """A producer that is asked nothing."""
    with zhumq.HalfMessageProducer(running.bootstrap, group="g", check=None) as made:
        yield made


def test_a_message_appears_once_it_is_committed(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    half = producer.prepare(topic, "kept")
    other = producer.prepare(topic, "dropped")
    assert not read_committed(running.bootstrap, topic)
    other.rollback()
    other.rollback()
    half.commit()
    half.commit()
    wait_for_values(running.bootstrap, topic, {b"kept": 1})
    with pytest.raises(HalfMessageDecided, match="it was rolled back"):
        other.commit()
    with pytest.raises(HalfMessageDecided, match="it was committed"):
        half.rollback()


def test_key_headers_and_partition_are_the_producers(
    running: RunningBroker, producer: zhumq.HalfMessageProducer
) -> None:
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("wide", partitions=5)
    headers = {"a": b"1", "none": None}
    producer.prepare("wide", "keyed", key="customer-7", headers=headers).commit()
    producer.prepare("wide", None, key="tombstone", partition=4).commit()
    found = {}
    with zhumq.Consumer("wide", group="c", bootstrap=running.bootstrap) as consumer:
        for message in consumer:
            found[message.key] = message
            if len(found) == 2:
                break
    keyed = found[b"customer-7"]
    assert (keyed.value, keyed.partition) == (b"keyed", partition_of(b"customer-7", 5))
    assert dict(keyed.headers) == headers
    assert (found[b"tombstone"].value, found[b"tombstone"].partition) == (None, 4)


def test_many_threads_share_a_producer(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    def send(thread: int) -> None:
        for number in range(25):
            half = producer.prepare(topic, f"{thread}-{number}")
            if number % 5:
                half.commit()
            else:
                half.rollback()

    threads = [threading.Thread(target=send, args=(each,)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {
        f"{thread}-{number}".encode(): 1
        for thread in range(8)
        for number in range(25)
        if number % 5
    }
    wait_for_values(running.bootstrap, topic, expected)


def test_one_call_runs_the_transaction_and_decides(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    seen = []
    producer.send_with(lambda half: seen.append(half.id), topic, "committed")
    producer.send_with(lambda _: False, topic, "rolled back")
    with pytest.raises(ZeroDivisionError):
        producer.send_with(lambda _: bool(1 // 0), topic, "not known")
    wait_for_values(running.bootstrap, topic, {b"committed": 1})
    assert len(seen) == 1
    (left,) = (each for each in listed(running.bootstrap).values() if each.topic == topic)
    assert left.state == "pending"


@pytest.mark.parametrize("answer", [True, False])
def test_a_producer_of_the_group_is_asked_about_a_message_that_another_one_left(
    running: RunningBroker, topic: str, answer: bool
) -> None:
    group = f"checked-{answer}"
    with zhumq.HalfMessageProducer(running.bootstrap, group=group, check=None) as leaving:
        half = leaving.prepare(topic, "left", key="k", headers={"h": b"x"})
    asked: list[zhumq.HalfMessage] = []

    def check(message: zhumq.HalfMessage) -> bool | None:
        asked.append(message)
        if len(asked) == 1:
            raise ValueError("a check that fails is repeated")
        return None if len(asked) == 2 else answer

    with zhumq.HalfMessageProducer(running.bootstrap, group=group, check=check):
        wait_for(lambda: half.id not in listed(running.bootstrap), "it is decided")
    assert [each.check for each in asked] == [1, 2, 3]
    first = asked[0]
    assert (first.id, first.topic, first.value, first.key) == (half.id, topic, b"left", b"k")
    assert first.headers == (("h", b"x"),)
    assert first.prepared_ms > 0
    wait_for_values(running.bootstrap, topic, {b"left": 1} if answer else {})


def test_what_a_topic_would_not_take_is_refused_when_it_is_prepared(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("compacted", partitions=1, settings={"cleanup.policy": "compact"})
        admin.create_topic("with-schema", partitions=1, settings={"schema.validation": "value"})
    for refusal, name, value, more in (
        ("UNKNOWN_TOPIC", "absent", b"x", {}),
        ("UNKNOWN_TOPIC", "__half_messages", b"x", {}),
        ("UNKNOWN_TOPIC", topic, b"x", {"partition": 1}),
        ("UNKNOWN_TOPIC", topic, b"x", {"partition": -1}),
        ("INVALID", topic, bytes(1_000_001), {}),
        ("INVALID", topic, b"x", {"id": "x" * 65}),
        ("INVALID", topic, b"x", {"headers": {str(each): b"" for each in range(1_001)}}),
        ("INVALID", "compacted", b"x", {}),
        ("INVALID", "with-schema", b"x", {}),
        ("INVALID", "with-schema", b"\0\0\0\0\1x", {}),
    ):
        with pytest.raises(HalfMessageRefused) as refused:
            producer.prepare(name, value, **more)  # type: ignore[arg-type]
        assert refused.value.code == refusal, (name, more)
    producer.prepare("compacted", b"x", key="k").commit()
    wait_for_values(running.bootstrap, "compacted", {b"x": 1})
    schema = '{"type": "record", "name": "Order", "fields": []}'
    connection = ClusterConnection(running.bootstrap)
    id_ = register_schema(connection, "with-schema-value", schema).id
    framed = b"\0" + id_.to_bytes(4, "big")

    def is_taken() -> bool | None:
        try:
            producer.prepare("with-schema", framed).commit()
        except HalfMessageRefused:
            return None  # The id was refused a moment ago, before it was registered.
        return True

    wait_for(is_taken, "the schema is known", 30)
    wait_for_values(running.bootstrap, "with-schema", {framed: 1})


def test_only_the_group_of_a_message_decides_on_it(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    half = producer.prepare(topic, "mine")
    with (
        zhumq.HalfMessageProducer(running.bootstrap, group="others", check=None) as others,
        pytest.raises(HalfMessageRefused) as refused,
    ):
        others.decide(half.id, is_commit=True)
    assert refused.value.code == "UNKNOWN_HALF_MESSAGE"
    with pytest.raises(HalfMessageRefused):
        producer.decide("never-prepared", is_commit=True)
    half.rollback()


def test_a_message_whose_topic_was_deleted_is_kept_and_listed(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    half = producer.prepare(topic, "homeless")
    with zhumq.Admin(running.bootstrap) as admin:
        admin.delete_topic(topic)
        wait_for(lambda: topic not in admin.topics(), "the topic is deleted")
        half.commit()
        wait_for(lambda: listed(running.bootstrap)[half.id].state == "failed", "it failed")
        assert topic in listed(running.bootstrap)[half.id].reason
        admin.create_topic(topic, partitions=1)
        commit_half_message(admin, half.id)
    wait_for_values(running.bootstrap, topic, {b"homeless": 1})


def test_a_message_that_its_topic_refuses_later_does_not_hold_up_the_others(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    halves = [producer.prepare(topic, value) for value in (b"a", bytes(50_000), b"b")]
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    smaller = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[smaller])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(SECONDS_MAX)
    for half in halves:
        half.commit()
    wait_for_values(running.bootstrap, topic, {b"a": 1, b"b": 1})
    large = halves[1].id
    wait_for(lambda: listed(running.bootstrap)[large].state == "failed", "the large one fails")
    assert "refuses it" in listed(running.bootstrap)[large].reason


def test_metrics_count_half_messages(
    running: RunningBroker, topic: str, producer: zhumq.HalfMessageProducer
) -> None:
    def value(name: str) -> float:
        with urllib.request.urlopen(f"http://{running.http}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = (each for each in lines if each.startswith(f"{name} "))
        return float(line.split()[1])

    moved, pending = value("zhumq_half_messages_moved_total"), value("zhumq_half_messages_pending")
    producer.prepare(topic, "x").commit()
    half = producer.prepare(topic, "y")
    wait_for(lambda: value("zhumq_half_messages_moved_total") == moved + 1, "one is moved")
    wait_for(lambda: value("zhumq_half_messages_pending") == pending + 1, "one is pending")
    half.rollback()
    wait_for(lambda: value("zhumq_half_messages_pending") == pending, "none is pending")
    for name in ("committed", "failed", "given_up"):
        assert value(f"zhumq_half_messages_{name}") >= 0
    assert value("zhumq_half_message_producers") >= 0
    assert value("zhumq_half_message_checks_total") >= 0


def test_more_than_the_limit_are_refused_until_some_are_decided() -> None:
    limits = SETTINGS | {"half.message.pending.max": "2", "half.message.topic.num.partitions": "1"}
    with broker(settings=limits) as small:
        with zhumq.Admin(small.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        with zhumq.HalfMessageProducer(small.bootstrap, group="g", check=None) as producer:
            first = producer.prepare("t", "1")
            producer.prepare("t", "2")
            with pytest.raises(HalfMessageRefused, match=r"half\.message\.pending\.max") as refused:
                producer.prepare("t", "3")
            assert refused.value.code == "TOO_MANY_HALF_MESSAGES"
            first.commit()
            wait_for_values(small.bootstrap, "t", {b"1": 1})
            producer.prepare("t", "3")


def test_without_a_broker_the_outcome_is_not_known() -> None:
    with (
        zhumq.HalfMessageProducer(
            "127.0.0.1:1", push="127.0.0.1:1", group="g", check=None, timeout=0.5
        ) as producer,
        pytest.raises(OutcomeUnknown, match=r"within 0\.5 s"),
    ):
        producer.prepare("t", "x")
    with pytest.raises(Exception, match="closed"):
        producer.prepare("t", "x")

"""Delayed messages on one broker: clients of two languages' libraries that only set headers, and our own."""

import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka
import pytest
from delay_support import (
    SETTINGS,
    TOPIC,
    create_topic,
    now_ms,
    read_all,
    wait_for,
    wait_for_messages,
)
from kafka import KafkaProducer

import zhumq
from zhumq.admin.settings import alter_topic_settings
from zhumq.client.errors import RequestFailed
from zhumq.testing.broker import RunningBroker, broker

EARLY_MS_MAX = 5  # the clocks of the client and of the broker are the same; this is rounding
LATE_MS_MAX = 5_000  # on a busy machine


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as started:
        create_topic(started.bootstrap)
        yield started


def test_any_client_delays_a_message_by_a_header(running: RunningBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
    sent_ms = now_ms()
    for name, value in (
        ("zhumq-delay-ms", "700"),
        ("zhumq-deliver-at", str(sent_ms + 400)),
        ("zhumq-delay-level", "1s"),
        ("other", "1000"),
    ):
        producer.produce(TOPIC, name, headers={name: value, "kept": "yes"})
    assert producer.flush(30) == 0
    seen = wait_for_messages(running.bootstrap, 4)
    assert [each.value for each in seen] == [
        b"other",
        b"zhumq-deliver-at",
        b"zhumq-delay-ms",
        b"zhumq-delay-level",
    ]
    for each, delay_ms in zip(seen[1:], (400, 700, 1_000), strict=True):
        assert each.due_ms is not None
        assert each.due_ms >= sent_ms + delay_ms
        assert -EARLY_MS_MAX <= each.timestamp_ms - each.due_ms < LATE_MS_MAX
        # The delay is replaced by the time at which it was due: the message is not delayed again.
        assert each.headers.keys() == {"kept", "zhumq-deliver-at"}


def test_kafka_python_delays_a_message_by_a_header(running: RunningBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=running.bootstrap, compression_type="gzip")
    sent_ms = now_ms()
    futures = [
        producer.send(TOPIC, b"%d" % number, headers=[("zhumq-delay-ms", b"%d" % delay_ms)])
        for number, delay_ms in enumerate((600, 300))
    ]
    producer.flush()
    assert [each.get(30).offset for each in futures] == sorted(
        {each.get().offset for each in futures}
    )
    producer.close()
    seen = wait_for_messages(running.bootstrap, 2)
    assert [each.value for each in seen] == [b"1", b"0"]
    assert all(each.timestamp_ms >= sent_ms + 300 - EARLY_MS_MAX for each in seen)


@pytest.mark.thorough
def test_the_client_takes_seconds_names_and_times(running: RunningBroker) -> None:
    sent: dict[bytes, tuple[int, int]] = {}

    def remember(value: bytes) -> Any:
        return lambda partition, offset: sent.__setitem__(value, (partition, offset))

    with zhumq.Producer(running.bootstrap) as producer:
        producer.send(TOPIC, b"first")
        producer.flush()  # It is connected from here on.
        for value, given in (
            (b"seconds", {"delay": 4.0}),
            (b"timedelta", {"delay": timedelta(seconds=3)}),
            (b"name", {"delay": "5s"}),
            (b"datetime", {"deliver_at": datetime.now(UTC) + timedelta(seconds=2)}),
            (b"ms", {"deliver_at": now_ms() + 1_000}),
            (b"past", {"deliver_at": now_ms() - 60_000}),
            (b"zero", {"delay": 0}),
            (b"plain", {}),
        ):
            producer.send(TOPIC, value, on_sent=remember(value), **given)
    assert len({offset for _, offset in sent.values()}) == 8
    seen = wait_for_messages(running.bootstrap, 9)
    assert [each.value for each in seen] == [
        b"first",
        b"past",
        b"zero",
        b"plain",
        b"ms",
        b"datetime",
        b"timedelta",
        b"seconds",
        b"name",
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"delay": -1}, "from 0 on"),
        ({"delay": float("nan")}, "from 0 on"),
        ({"delay": "17m"}, "none of 1s 5s"),
        ({"deliver_at": 17}, "since 1970"),
        ({"deliver_at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"delay": 1, "deliver_at": 10**12}, "not both"),
    ],
)
def test_the_client_refuses_what_is_no_delay(
    running: RunningBroker, given: dict[str, Any], reason: str
) -> None:
    with zhumq.Producer(running.bootstrap) as producer, pytest.raises(ValueError, match=reason):
        producer.send(TOPIC, b"x", **given)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("zhumq-delay-ms", b"-1")], "below zero"),
        ([("zhumq-delay-ms", b"soon")], "decimal digits"),
        ([("zhumq-delay-ms", b"")], "decimal digits"),
        ([("zhumq-delay-ms", b"9" * 30)], "decimal digits"),
        ([("zhumq-delay-ms", b"%d" % (41 * 24 * 3_600_000))], "delayed.message.delay.max.ms"),
        ([("zhumq-deliver-at", b"-5")], "below zero"),
        ([("zhumq-delay-level", b"17m")], "one of 1s 5s"),
        ([("zhumq-delay-level", b"\xff")], "one of 1s 5s"),
        ([("zhumq-delay-ms", b"1"), ("zhumq-delay-ms", b"2")], "one delay header"),
    ],
)
def test_a_wrong_header_refuses_the_message_with_a_reason(
    running: RunningBroker, headers: list[tuple[str, bytes]], reason: str
) -> None:
    del reason  # librdkafka shows the code only; the unit tests check the text
    producer = zhumq.Producer(running.bootstrap)
    producer.send(TOPIC, b"x", headers=headers)
    with pytest.raises(RequestFailed, match="Broker failed to validate record"):
        producer.flush()
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send(TOPIC, b"after")
    assert [each.value for each in read_all(running.bootstrap)] == [b"after"]


def test_on_a_topic_without_the_setting_the_headers_mean_nothing(running: RunningBroker) -> None:
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("plain", partitions=1)
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send("plain", b"now", delay=3600)
        producer.send("plain", b"soon", headers={"zhumq-delay-ms": "no number"})
    seen = read_all(running.bootstrap, topic="plain")
    assert [each.value for each in seen] == [b"now", b"soon"]
    assert seen[0].headers == {"zhumq-delay-ms": b"3600000"}


def test_a_message_in_a_transaction_cannot_be_delayed(running: RunningBroker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "transactional.id": "t"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    outcomes: list[Any] = []
    producer.produce(
        TOPIC,
        b"x",
        headers={"zhumq-delay-ms": "1000"},
        on_delivery=lambda error, _: outcomes.append(error),
    )
    producer.flush(30)
    producer.abort_transaction(30)
    assert [each.name() for each in outcomes] == ["INVALID_RECORD"]
    assert not read_all(running.bootstrap)


@pytest.mark.thorough
def test_the_setting_can_be_changed_while_messages_are_delayed(running: RunningBroker) -> None:
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send(TOPIC, b"delayed", delay=5.0)
    with zhumq.Admin(running.bootstrap) as admin:
        alter_topic_settings(admin, TOPIC, {"delay.enable": "false"})
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send(TOPIC, b"at once", delay=1.0)
    seen = wait_for_messages(running.bootstrap, 2)
    assert [each.value for each in seen] == [b"at once", b"delayed"]


def test_the_setting_may_be_the_default_of_all_topics() -> None:
    """Also of internal ones, which stay as they are."""
    with broker(settings=SETTINGS | {"log.delay.enable": "true"}) as running:
        with zhumq.Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        with zhumq.Producer(running.bootstrap) as producer:
            producer.send(TOPIC, b"delayed", delay=1.0)
            producer.send(TOPIC, b"at once")
        seen = wait_for_messages(running.bootstrap, 2)
        assert [each.value for each in seen] == [b"at once", b"delayed"]


@pytest.mark.thorough
def test_messages_of_a_deleted_topic_are_dropped(running: RunningBroker) -> None:
    """Also if a topic of the same name is created again."""
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send(TOPIC, b"lost", delay=4.0)
    with zhumq.Admin(running.bootstrap) as admin:
        wait_for(lambda: len(admin.scheduled(TOPIC).messages) == 1, "it is pending")
        admin.delete_topic(TOPIC)
    create_topic(running.bootstrap)
    dropped = b"\nzhumq_delayed_messages_dropped_total 1\n"

    def is_dropped() -> bool:
        with urllib.request.urlopen(f"http://{running.http}/metrics") as answer:
            return dropped in answer.read()

    wait_for(is_dropped, "it is dropped")
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send(TOPIC, b"new", delay=0.1)
    assert [each.value for each in wait_for_messages(running.bootstrap, 1)] == [b"new"]

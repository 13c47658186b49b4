"""A filter of a share group: librdkafka's share consumer gets only what passes, without knowing of filters."""

import contextlib
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from zhumq import Admin, Producer
from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 30.0
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.auto.offset.reset": "earliest",
}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as each:
        yield each


def new_topic(running: RunningBroker) -> str:
    topic = f"t-{uuid.uuid4()}"
    with Admin(running.bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
    return topic


def send(running: RunningBroker, topic: str, numbers: range, *, compression: str = "none") -> None:
    """Every third message has the tag `third`, all have the header `n`."""
    settings = {"enable.idempotence": False, "compression.type": compression, "linger.ms": 20}
    with Producer(running.bootstrap, settings=settings) as producer:
        for number in numbers:
            producer.send(
                topic,
                b'{"n": %d}' % number,
                key=b"k-%d" % number,
                headers={"n": str(number)},
                tags=["third", "x"] if number % 3 == 0 else "other",
            )


def set_filter(running: RunningBroker, group: str, text: str | None) -> None:
    operation = AlterConfigOpType.DELETE if text is None else AlterConfigOpType.SET
    entry = ConfigEntry("zhumq.filter", text, incremental_operation=operation)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def described_filter(running: RunningBroker, group: str) -> str:
    resource = ConfigResource(ResourceType.GROUP, group)
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    settings = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    return str(settings["zhumq.filter"].value)


@contextlib.contextmanager
def consumer(running: RunningBroker, group: str, topic: str) -> Iterator[ShareConsumer]:
    each = ShareConsumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": group,
            "log_level": 0,
            "share.acknowledgement.mode": "explicit",
        }
    )
    each.subscribe([topic])
    try:
        yield each
    finally:
        each.close()


def take(each: ShareConsumer, last: int) -> list[int]:
    """Accept messages until the one with this number has arrived; their numbers."""
    numbers: list[int] = []
    deadline = time.monotonic() + SECONDS_MAX
    while last not in numbers:
        assert time.monotonic() < deadline, numbers
        for message in each.poll(0.5):
            assert message.error() is None
            numbers.append(int(dict(message.headers())["n"]))
            each.acknowledge(message, AcknowledgeType.ACCEPT)
        each.commit_sync(SECONDS_MAX)
    return numbers


def metric(running: RunningBroker, name: str, group: str) -> int:
    text = urllib.request.urlopen(f"http://{running.http}/metrics").read().decode()
    found = [line for line in text.splitlines() if line.startswith(name) and group in line]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in found)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_a_share_consumer_gets_only_what_passes_and_the_rest_is_done(
    running: RunningBroker, compression: str
) -> None:
    topic, group = new_topic(running), f"g-{uuid.uuid4()}"
    set_filter(running, group, "third")
    send(running, topic, range(300), compression=compression)
    with consumer(running, group, topic) as each:
        assert take(each, 297) == list(range(0, 300, 3))
        send(running, topic, range(300, 301))
        assert take(each, 300) == [300]
    assert metric(running, "zhumq_subscription_filtered_total", group) == 200
    assert metric(running, "zhumq_subscription_delivered_total", group) == 101
    assert metric(running, "zhumq_subscription_lag", group) == 0


def test_a_changed_filter_applies_to_the_next_messages(running: RunningBroker) -> None:
    topic, group = new_topic(running), f"g-{uuid.uuid4()}"
    set_filter(running, group, "n >= 90 AND key LIKE 'k-9%'")
    send(running, topic, range(100))
    with consumer(running, group, topic) as each:
        assert take(each, 99) == list(range(90, 100))
        set_filter(running, group, "value.n % 50 = 0")
        send(running, topic, range(100, 201))
        assert take(each, 200) == [100, 150, 200]
        set_filter(running, group, None)
        send(running, topic, range(201, 211))
        assert take(each, 210) == list(range(201, 211))


def test_a_filter_is_kept_over_a_restart(tmp_path: Path) -> None:
    group = "kept"
    with broker(data_dir=tmp_path, settings=SETTINGS) as running:
        topic = new_topic(running)
        set_filter(running, group, "tags = 'third'")
        send(running, topic, range(30))
        with consumer(running, group, topic) as each:
            assert take(each, 27) == list(range(0, 30, 3))
    with broker(data_dir=tmp_path, settings=SETTINGS) as running:
        assert described_filter(running, group) == "tags = 'third'"
        send(running, topic, range(30, 61))
        with consumer(running, group, topic) as each:
            assert take(each, 60) == list(range(30, 61, 3))


def test_a_filter_with_an_error_is_refused_and_the_old_one_stays(running: RunningBroker) -> None:
    group = f"g-{uuid.uuid4()}"
    set_filter(running, group, "third")
    for wrong, character in (("n > > 5", 5), ("t||" * 9_999 + "t", 8_193)):
        with pytest.raises(KafkaException) as raised:
            set_filter(running, group, wrong)
        error = raised.value.args[0]
        assert error.name() == "INVALID_CONFIG"
        assert f"character {character}: " in error.str()
        assert error.str().endswith("^")
    assert described_filter(running, group) == "third"

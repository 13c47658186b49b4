"""Quotas with real clients: librdkafka and kafka-python are throttled, and others are not."""

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError
from zhumq.admin.quotas import ClientQuota, alter_quotas, list_quotas
from zhumq.client.wire import Connection
from zhumq.model.address import Address
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest
from zhumq.testing.broker import RunningBroker, broker

pytestmark = pytest.mark.slow

SECONDS_MAX = 60.0
# Two samples: the rate follows the quota within a second or two, and the first burst is one second long.
SETTINGS = {"quota.window.num": "2"}
QUOTA = 50_000
VALUE = b"x" * 5_000
MESSAGES = 50
# 250 KB at 50 KB/s are five seconds, of which the first burst is one or two.
SECONDS_MIN = 2.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker(data_dir=tmp_path_factory.mktemp("quotas"), settings=SETTINGS) as one:
        yield one


@pytest.fixture
def admin(running: RunningBroker) -> Iterator[ClusterConnection]:
    with ClusterConnection(running.bootstrap, client_id="the-admin") as connection:
        yield connection
        for each in list_quotas(connection):
            alter_quotas(connection, each.entity, dict.fromkeys(each.quotas))


@pytest.fixture
def topic(running: RunningBroker) -> str:
    name = f"topic-{uuid.uuid4()}"
    client = AdminClient({"bootstrap.servers": running.bootstrap})
    client.create_topics([NewTopic(name, num_partitions=1)])[name].result(SECONDS_MAX)
    return name


class Throttled:
    """The throttle times that librdkafka reports."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, event: ThrottleEvent) -> None:
        self.seconds.append(event.throttle_time)


def produce(running: RunningBroker, topic: str, client_id: str) -> tuple[float, list[float]]:
    """Produce messages one by one; returns how long it took, and the throttle times."""
    throttled = Throttled()
    producer = Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "client.id": client_id,
            "throttle_cb": throttled,
            "linger.ms": 0,
            "batch.num.messages": 1,
            # Requests that arrive together are counted, and answered, together: the pause is behind all of them.
            "max.in.flight": 1,
        }
    )
    begun = time.monotonic()
    for _ in range(MESSAGES):
        producer.produce(topic, VALUE)
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    return time.monotonic() - begun, throttled.seconds


def fill(running: RunningBroker, topic: str) -> None:
    seconds, throttled = produce(running, topic, "filler")
    assert throttled == [], f"not throttled, in {seconds:.1f} s"


@pytest.mark.thorough
def test_a_producer_of_librdkafka_stays_at_its_quota_and_others_are_unaffected(
    running: RunningBroker, admin: ClusterConnection, topic: str
) -> None:
    alter_quotas(admin, {"client-id": "slow"}, {"producer_byte_rate": QUOTA})
    seconds, throttled = produce(running, topic, "slow")
    assert seconds >= SECONDS_MIN
    assert max(throttled) > 0
    _, throttled = produce(running, topic, "fast")
    assert throttled == []


@pytest.mark.thorough
def test_a_consumer_of_librdkafka_stays_at_its_quota_and_gets_every_message(
    running: RunningBroker, admin: ClusterConnection, topic: str
) -> None:
    fill(running, topic)
    alter_quotas(admin, {"client-id": "slow"}, {"consumer_byte_rate": QUOTA})
    throttled = Throttled()
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "client.id": "slow",
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "throttle_cb": throttled,
            "fetch.message.max.bytes": 20_000,
        }
    )
    consumer.subscribe([topic])
    offsets: list[int | None] = []
    begun: float | None = None
    deadline = time.monotonic() + SECONDS_MAX
    while len(offsets) < MESSAGES and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            begun = begun or time.monotonic()
            offsets.append(message.offset())
    consumer.close()
    assert offsets == list(range(MESSAGES))
    assert begun is not None
    assert time.monotonic() - begun >= SECONDS_MIN
    assert max(throttled.seconds) > 0


@pytest.mark.thorough
def test_clients_of_kafka_python_stay_at_their_quotas(
    running: RunningBroker, admin: ClusterConnection, topic: str
) -> None:
    alter_quotas(
        admin,
        {"client-id": "python"},
        {"producer_byte_rate": QUOTA, "consumer_byte_rate": QUOTA},
    )
    producer = KafkaProducer(
        bootstrap_servers=running.bootstrap, client_id="python", batch_size=0, acks=1
    )
    begun = time.monotonic()
    for future in [producer.send(topic, VALUE) for _ in range(MESSAGES)]:
        future.get(SECONDS_MAX)
    assert time.monotonic() - begun >= SECONDS_MIN
    assert _metric(producer.metrics(), "throttle-time-max") > 0
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=running.bootstrap,
        client_id="python",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=20_000,
        consumer_timeout_ms=20_000,
    )
    begun = time.monotonic()
    offsets = [message.offset for _, message in zip(range(MESSAGES), consumer, strict=False)]
    assert offsets == list(range(MESSAGES))
    assert time.monotonic() - begun >= SECONDS_MIN
    assert _metric(consumer.metrics(), "throttle-time-max") > 0
    consumer.close()


def _metric(metrics: Any, name: str) -> float:
    return max(values[name] for values in metrics.values() if name in values)


@pytest.mark.thorough
def test_a_change_takes_effect_at_once(
    running: RunningBroker, admin: ClusterConnection, topic: str
) -> None:
    alter_quotas(admin, {"client-id": None}, {"producer_byte_rate": QUOTA})
    assert produce(running, topic, "any")[1] != []
    alter_quotas(admin, {"client-id": "any"}, {"producer_byte_rate": 10**9})
    assert produce(running, topic, "any")[1] == [], "its own quota counts before the default"
    alter_quotas(admin, {"client-id": "any"}, {"producer_byte_rate": None})
    assert produce(running, topic, "any")[1] != []
    # The user of a connection without authentication is ANONYMOUS: its quotas are more specific.
    alter_quotas(admin, {"user": "ANONYMOUS"}, {"producer_byte_rate": 10**9})
    assert produce(running, topic, "any")[1] == []


def test_the_time_of_requests_is_limited(running: RunningBroker, admin: ClusterConnection) -> None:
    alter_quotas(admin, {"client-id": "busy"}, {"request_percentage": 0.01})
    host, _, port = running.bootstrap.rpartition(":")

    def longest_wait(client_id: str, *, requests: int) -> int:
        """The longest throttle time, of at most so many requests: it ends with the first that is throttled."""
        with Connection.open(
            [Address(host, int(port))], client_id=client_id, request_seconds=SECONDS_MAX
        ) as client:
            for _ in range(requests):
                response = client.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
                if response.throttle_time_ms:
                    return response.throttle_time_ms
        return 0

    # A hundredth of a percent of two seconds is used up by a few requests, of a fast machine by more of them.
    assert 0 < longest_wait("busy", requests=200) <= 1_000
    assert longest_wait("idle", requests=200) == 0


def test_an_address_opens_connections_at_its_rate(
    running: RunningBroker, admin: ClusterConnection
) -> None:
    list_quotas(admin)  # the connection that deletes the quota is open
    alter_quotas(admin, {"ip": "127.0.0.1"}, {"connection_creation_rate": 2})
    host, _, port = running.bootstrap.rpartition(":")
    refused = 0
    for _ in range(10):
        with socket.create_connection((host, int(port)), SECONDS_MAX) as client:
            client.settimeout(SECONDS_MAX)
            # ApiVersions, version 0, without a client id.
            client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
            try:
                refused += client.recv(4) == b""
            except ConnectionResetError:
                refused += 1
    assert 0 < refused < 10
    alter_quotas(admin, {"ip": "127.0.0.1"}, {"connection_creation_rate": None})
    with socket.create_connection((host, int(port)), SECONDS_MAX) as client:
        client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        assert client.recv(4) != b""


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with (
            broker(data_dir=tmp_path, settings=SETTINGS) as one,
            ClusterConnection(one.bootstrap) as connection,
        ):
            alter_quotas(
                connection, {"user": "alice", "client-id": None}, {"request_percentage": 12.5}
            )
            assert list_quotas(connection) == [
                ClientQuota(
                    entity={"client-id": None, "user": "alice"}, quotas={"request_percentage": 12.5}
                )
            ]


def test_a_wrong_quota_is_refused_with_the_reason(admin: ClusterConnection) -> None:
    with pytest.raises(AdminError, match="controller_mutation_rate is not enforced"):
        alter_quotas(admin, {"user": "a"}, {"controller_mutation_rate": 1})
    with pytest.raises(AdminError, match="'nowhere' is not an IP address"):
        alter_quotas(admin, {"ip": "nowhere"}, {"connection_creation_rate": 1})


def quota_command(running: RunningBroker, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "zhumq", "quota", *arguments, "--bootstrap", running.bootstrap],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def quotas_of_alice(admin: ClusterConnection) -> dict[str, float]:
    (found,) = [each.quotas for each in list_quotas(admin) if "user" in each.entity]
    return found


@pytest.mark.thorough
def test_the_command_sets_lists_and_deletes_quotas(
    running: RunningBroker, admin: ClusterConnection
) -> None:
    entity = ("--user", "alice", "--default-client-id")
    assert quota_command(running, "set", *entity, "--produce", "1000", "--request", "12.5")[0] == 0
    assert quota_command(running, "set", "--default-ip", "--connections", "1000")[0] == 0
    code, table = quota_command(running, "list")
    assert code == 0
    assert "default client-id, user alice" in table
    assert "12.5" in table
    assert quotas_of_alice(admin) == {"producer_byte_rate": 1000, "request_percentage": 12.5}
    assert quota_command(running, "delete", *entity, "--quota", "request")[0] == 0
    assert quotas_of_alice(admin) == {"producer_byte_rate": 1000}
    assert quota_command(running, "delete", *entity)[0] == 0
    assert quota_command(running, "delete", "--default-ip")[0] == 0
    assert list_quotas(admin) == []
    for arguments, reason in (
        (("set", "--produce", "1"), "of whom?"),
        (("set", "--user", "a"), "no quota is given"),
        (("set", "--user", "a", "--default-user", "--fetch", "1"), "exclude each other"),
        (("set", "--user", "a", "--connections", "1"), "connection_creation_rate"),
        (("delete", "--user", "a"), "has no such quota"),
        (("delete", "--user", "a", "--quota", "x"), "there is no quota 'x'"),
    ):
        code, output = quota_command(running, *arguments)
        assert code == 1
        assert reason in output
        assert len(output.splitlines()) == 1

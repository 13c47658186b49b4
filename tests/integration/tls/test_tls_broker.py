"""A broker with TLS and plain listeners: third-party clients, and clients that break the rules."""

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaConsumer, KafkaProducer
from tls_brokers import Secured, consume, listeners, produce

from zhumq.broker.authorizer_settings import OURS
from zhumq.model.address import parse_address
from zhumq.testing.process import BrokerProcess, broker_process

SECONDS_MAX = 30.0
# A client hello of TLS 1.2 up to the middle of its random bytes.
HALF_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(16)


class Running:
    """A broker with the listeners PLAINTEXT, SSL (no client certificates) and MUTUAL (required)."""

    def __init__(self, process: BrokerProcess, secured: Secured, at: dict[str, str]) -> None:
        self.process = process
        self.secured = secured
        self.at = at

    @property
    def tls_address(self) -> tuple[str, int]:
        address = parse_address(self.at["SSL"])
        return address.host, address.port


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tls")
    secured = Secured(folder)
    text, addresses = listeners("SSL", "PLAINTEXT", "MUTUAL")
    settings = {
        **secured.stores,
        "listeners": text,
        "listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT,MUTUAL:SSL",
        "advertised.listeners": f"SSL://localhost:{addresses['SSL'].rpartition(':')[2]},"
        f"PLAINTEXT://{addresses['PLAINTEXT']},MUTUAL://{addresses['MUTUAL']}",
        "listener.name.mutual.ssl.client.auth": "required",
        "http.security.protocol": "SSL",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
        "offsets.topic.num.partitions": "4",
    }
    with broker_process(folder / "data", settings=settings) as process:
        yield Running(process, secured, addresses)
    assert "Traceback" not in process.log


def test_clients_of_each_listener_get_its_own_endpoints(running: Running) -> None:
    secured, at = running.secured, running.at
    port = at["SSL"].rpartition(":")[2]
    for settings, expected in (
        (secured.librdkafka(at["SSL"]), f"localhost:{port}"),
        (secured.librdkafka(at["MUTUAL"], secured.alice), at["MUTUAL"]),
        ({"bootstrap.servers": at["PLAINTEXT"]}, at["PLAINTEXT"]),
    ):
        admin = AdminClient(settings)
        (broker,) = admin.list_topics(timeout=SECONDS_MAX).brokers.values()
        assert f"{broker.host}:{broker.port}" == expected
        described = admin.describe_cluster().result(SECONDS_MAX)
        assert f"{described.nodes[0].host}:{described.nodes[0].port}" == expected
        resource = ConfigResource(ResourceType.BROKER, "0")
        configs = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
        assert configs["listeners"].value.startswith("SSL://")
        assert configs["ssl.key.password"].value is None


def test_the_ready_line_has_the_first_listener(running: Running) -> None:
    assert running.process.bootstrap == running.at["SSL"]


def test_librdkafka_reads_by_one_listener_what_it_wrote_by_another(running: Running) -> None:
    secured, at = running.secured, running.at
    everyone = [
        secured.librdkafka(at["SSL"]),
        secured.librdkafka(at["MUTUAL"], secured.alice),
        {"bootstrap.servers": at["PLAINTEXT"]},
    ]
    values = [f"{number}".encode() * 100 for number in range(1_000)]
    for index, settings in enumerate(everyone):
        produce(settings, f"mixed-{index}", values)
        for other, reader in enumerate(everyone):
            assert consume(reader, f"mixed-{index}", 1_000, f"g-{index}-{other}") == values


def test_a_large_topic_is_read_over_tls_by_librdkafka_and_kafka_python(running: Running) -> None:
    secured, at = running.secured, running.at
    values = [os.urandom(900_000) for _ in range(40)]
    produce(secured.librdkafka(at["SSL"]), "large", values)
    fetches = {"fetch.max.bytes": "50000000", "max.partition.fetch.bytes": "50000000"}
    settings = {**secured.librdkafka(at["SSL"]), **fetches}
    assert consume(settings, "large", len(values), "large-readers") == values
    consumer = KafkaConsumer(
        "large",
        **secured.kafka_python(at["MUTUAL"], secured.alice),
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(SECONDS_MAX * 1000),
        max_partition_fetch_bytes=50_000_000,
    )
    read = []
    for message in consumer:
        read.append(message.value)
        if len(read) == len(values):
            break
    consumer.close()
    assert read == values


def test_kafka_python_produces_over_tls(running: Running) -> None:
    producer = KafkaProducer(**running.secured.kafka_python(running.at["SSL"]))
    sent = [producer.send("by-python", b"%d" % number) for number in range(100)]
    assert {each.get(SECONDS_MAX).offset for each in sent} == set(range(100))
    producer.close()


@pytest.mark.parametrize("kind", ["none", "other CA", "no rule"])
def test_a_client_without_the_right_certificate_gets_nothing(
    running: Running, kind: str, tmp_path: Path
) -> None:
    shown = None
    if kind == "other CA":
        shown = Secured(tmp_path).alice
    elif kind == "no rule":
        shown = running.secured.authority.issue("Alice 2")
    admin = AdminClient(running.secured.librdkafka(running.at["MUTUAL"], shown))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_tls_before_1_2_is_refused(running: Running) -> None:
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        context = running.secured.context()
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection(running.tls_address, SECONDS_MAX) as plain,
            pytest.raises(ssl.SSLError),
        ):
            context.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_renegotiation_is_refused(running: Running) -> None:
    arguments = ["openssl", "s_client", "-tls1_2", "-connect", running.at["SSL"]]
    done = subprocess.run(
        arguments, input=b"R\n", capture_output=True, timeout=SECONDS_MAX, check=False
    )
    output = done.stdout + done.stderr
    assert b"RENEGOTIATING" in output
    assert b"no renegotiation" in output.lower()


def test_plain_bytes_on_the_tls_port_and_tls_on_the_plain_port_are_refused(
    running: Running,
) -> None:
    with socket.create_connection(running.tls_address, SECONDS_MAX) as plain:
        plain.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00")
        data = plain.recv(1_000)
        while data[-1:] and (more := plain.recv(1_000)):
            data += more
    assert data == b"" or data[0] == 0x15, "an alert of TLS, if anything"
    where = parse_address(running.at["PLAINTEXT"])
    with (
        socket.create_connection((where.host, where.port), SECONDS_MAX) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        running.secured.context().wrap_socket(raw, server_hostname="localhost")


def test_https_serves_health_and_metrics(running: Running) -> None:
    context = running.secured.context()
    for path, text in (("/healthz", b"ok"), ("/metrics", b"zhumq_tls_handshakes_failed_total")):
        connection = http.client.HTTPSConnection(
            running.process.http, context=context, timeout=SECONDS_MAX
        )
        connection.request("GET", path)
        assert text in connection.getresponse().read()
        connection.close()
    host, _, port = running.process.http.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS_MAX) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert b"ok" not in plain.recv(1_000)


def test_an_honest_client_is_served_beside_half_hellos_and_a_flood_of_handshakes(
    running: Running,
) -> None:
    address = running.tls_address
    stalled = [socket.create_connection(address, SECONDS_MAX) for _ in range(200)]
    for each in stalled:
        each.sendall(HALF_HELLO)
    stop = threading.Event()
    context = running.secured.context()

    def flood() -> None:
        while not stop.is_set():
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            hello = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            with contextlib.suppress(ssl.SSLWantReadError):
                hello.do_handshake()
            try:
                with socket.create_connection(address, SECONDS_MAX) as attacker:
                    attacker.sendall(outgoing.read())
                    attacker.recv(100)  # the broker has done its work
            except OSError:
                pass

    attackers = [threading.Thread(target=flood) for _ in range(4)]
    for each in attackers:
        each.start()
    try:
        values = [b"%d" % number for number in range(500)]
        settings = running.secured.librdkafka(running.at["SSL"])
        produce(settings, "beside", values)
        assert consume(settings, "beside", 500, "beside") == values
    finally:
        stop.set()
        for each in attackers:
            each.join()
        for stalling in stalled:
            stalling.close()


def test_a_replaced_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    file = tmp_path / "current.pem"
    file.write_bytes(secured.broker.combined_file.read_bytes())
    text, addresses = listeners("SSL")
    settings = {"listeners": text, "ssl.keystore.location": str(file)}
    address = parse_address(addresses["SSL"])

    def shown() -> str:
        with (
            socket.create_connection((address.host, address.port), SECONDS_MAX) as plain,
            secured.context().wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            found = encrypted.getpeercert()
            assert found is not None
            return str(found["subject"][0][0][1])

    def wait_until_shown(name: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while shown() != name:
            assert time.monotonic() < deadline, f"{name} is never shown"

    with broker_process(tmp_path / "data", settings=settings) as process:
        assert shown() == "broker"
        fresh = tmp_path / "fresh.pem"
        fresh.write_bytes(secured.authority.issue("renewed").combined_file.read_bytes())
        fresh.replace(file)
        wait_until_shown("renewed")
        fresh.write_text("broken")
        fresh.replace(file)
        deadline = time.monotonic() + SECONDS_MAX
        while "the earlier ones stay" not in process.log:
            assert shown() == "renewed"
            assert time.monotonic() < deadline
        assert shown() == "renewed"
        assert process.log.count("the earlier ones stay") == 1


def test_the_authorizer_and_the_audit_log_know_a_client_by_its_certificate(
    tmp_path: Path,
) -> None:
    secured = Secured(tmp_path)
    text, addresses = listeners("SSL")
    settings = {
        **secured.stores,
        "listeners": text,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
        "authorizer.class.name": OURS,
        "super.users": "User:alice",
    }
    bob = secured.authority.issue("bob")
    with broker_process(tmp_path / "data", settings=settings) as process:
        topic = NewTopic("hers", 1, 1)
        of_bob = AdminClient(secured.librdkafka(addresses["SSL"], bob))
        with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
            of_bob.create_topics([topic])["hers"].result(SECONDS_MAX)
        of_alice = AdminClient(secured.librdkafka(addresses["SSL"], secured.alice))
        of_alice.create_topics([topic])["hers"].result(SECONDS_MAX)
        process.stop()
        audit = (process.data_dir / "audit.log").read_text()
        assert "User:bob" in audit
        assert "User:alice" in audit


def test_a_client_without_tls_gets_nothing_from_a_tls_listener(running: Running) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": running.at["SSL"], "log_level": 0}).list_topics(timeout=2)

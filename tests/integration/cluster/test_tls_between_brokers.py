"""Three brokers with TLS between them, the way there from plaintext, and peers that do not belong."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_support import create_topic
from confluent_kafka import Consumer, Producer
from tests.certificates import Authority, make_authority

from zhumq.host.ports import HOST, free_ports
from zhumq.model.address import parse_address
from zhumq.testing.cluster import ClusterProcesses, wait_for

SECONDS_MAX = 60.0
BROKERS = (1, 2, 3)


class Settings:
    """Settings of brokers that change from one restart to the next."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        ports = free_ports(2 * len(BROKERS))
        self.clients = {each: f"{HOST}:{ports[each - 1]}" for each in BROKERS}
        self.peers = {each: f"{HOST}:{ports[each + 2]}" for each in BROKERS}
        self.protocols = dict.fromkeys(BROKERS, "SSL")
        self.has_stores = dict.fromkeys(BROKERS, True)
        self.certificates = {
            each: authority.issue(f"broker-{each}", hosts=(HOST,)).combined_file for each in BROKERS
        }

    def of(self, broker_id: int) -> dict[str, str]:
        clients, peers = self.clients[broker_id], self.peers[broker_id]
        settings = {
            "inter.broker.listener": "",
            "listeners": f"PLAINTEXT://{clients},BROKERS://{peers}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,BROKERS:{self.protocols[broker_id]}",
            "inter.broker.listener.name": "BROKERS",
        }
        if self.has_stores[broker_id]:
            settings |= {
                "ssl.keystore.location": str(self.certificates[broker_id]),
                "ssl.truststore.location": str(self._authority.certificate_file),
                "listener.name.brokers.ssl.client.auth": "required",
            }
        return settings


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ca")


@pytest.fixture
def settings(authority: Authority) -> Settings:
    return Settings(authority)


@pytest.fixture
def tls_cluster(tmp_path: Path, settings: Settings) -> Iterator[ClusterProcesses]:
    cluster = ClusterProcesses(tmp_path / "cluster", settings_of=settings.of)
    try:
        yield cluster
    finally:
        cluster.stop()


def write(cluster: ClusterProcesses, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "-1", "log_level": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: errors.append(error) if error else None
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not errors


def read(cluster: ClusterProcesses, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"readers-{count}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            # No more than there are: it waits for as many as it is asked for.
            messages = consumer.consume(min(1_000, count - len(values)), SECONDS_MAX)
            assert messages, f"{len(values)} of {count} messages"
            values += [each.value() or b"" for each in messages if each.error() is None]
    finally:
        consumer.close()
    return values


def speaks_tls(address: str, context: ssl.SSLContext) -> bool:
    where = parse_address(address)
    with socket.create_connection((where.host, where.port), SECONDS_MAX) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=where.host) as encrypted:
                encrypted.settimeout(SECONDS_MAX)
                return True
        except (ssl.SSLError, ConnectionError):
            return False


@pytest.mark.thorough
def test_brokers_replicate_over_mutual_tls_and_refuse_peers_without_a_certificate(
    tls_cluster: ClusterProcesses, settings: Settings, authority: Authority, tmp_path: Path
) -> None:
    tls_cluster.start()
    values = [b"%d" % number for number in range(2_000)]
    for mode in ("raft", "fetch"):
        create_topic(tls_cluster, mode, partitions=3, replication_mode=mode)
        write(tls_cluster, mode, values)
    tls_cluster.kill(1)
    for mode in ("raft", "fetch"):
        wait_for(
            lambda mode=mode: tls_cluster.leader_of(mode) not in (None, 1) or None,
            f"another leader of {mode}",
        )
    write(tls_cluster, "raft", values)
    assert sorted(read(tls_cluster, "raft", 4_000)) == sorted(values * 2)
    tls_cluster.restart(1)

    peer = settings.peers[2]
    with_certificate = ssl.create_default_context(cafile=str(authority.certificate_file))
    with_certificate.load_cert_chain(settings.certificates[1])
    assert speaks_tls(peer, with_certificate)
    # A client without a certificate, or with one of another CA, is refused with TLS 1.2 at once.
    without = ssl.create_default_context(cafile=str(authority.certificate_file))
    other = ssl.create_default_context(cafile=str(authority.certificate_file))
    foreign = make_authority(tmp_path / "other").issue("broker-1", hosts=(HOST,))
    other.load_cert_chain(foreign.combined_file)
    for context in (without, other):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert not speaks_tls(peer, context)
    asyncio.run(_a_certificate_alone_is_not_enough(peer, with_certificate))
    for broker in tls_cluster.brokers.values():
        assert "Traceback" not in broker.log


async def _a_certificate_alone_is_not_enough(peer: str, context: ssl.SSLContext) -> None:
    """A holder of a certificate that does not know the cluster's secret is disconnected."""
    where = parse_address(peer)
    reader, writer = await asyncio.open_connection(
        where.host, where.port, ssl=context, server_hostname=where.host
    )
    writer.write(b"\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
    async with asyncio.timeout(SECONDS_MAX):
        assert await reader.read() == b""
    writer.transport.abort()


@pytest.mark.thorough
def test_a_cluster_changes_from_plaintext_to_tls_broker_by_broker(
    tls_cluster: ClusterProcesses, settings: Settings, authority: Authority
) -> None:
    settings.protocols = dict.fromkeys(BROKERS, "PLAINTEXT")
    settings.has_stores = dict.fromkeys(BROKERS, False)
    tls_cluster.start()
    create_topic(tls_cluster, "rolled", partitions=3)
    context = ssl.create_default_context(cafile=str(authority.certificate_file))
    context.load_cert_chain(settings.certificates[1])
    written: list[bytes] = []

    def restart_with(broker_id: int, step: str) -> None:
        assert tls_cluster.brokers[broker_id].stop() == 0
        tls_cluster.add(broker_id).start()
        tls_cluster.wait_for_brokers(BROKERS)
        # acks=-1 with two in sync: replication works between brokers of both kinds.
        values = [f"{step}-{broker_id}-{number}".encode() for number in range(300)]
        write(tls_cluster, "rolled", values)
        written.extend(values)
        _wait_until_in_sync(tls_cluster, "rolled")

    for broker_id in BROKERS:
        settings.has_stores[broker_id] = True
        restart_with(broker_id, "stores")
    assert not any(speaks_tls(peer, context) for peer in settings.peers.values())
    for broker_id in BROKERS:
        settings.protocols[broker_id] = "SSL"
        restart_with(broker_id, "tls")
    assert all(speaks_tls(peer, context) for peer in settings.peers.values())
    assert sorted(read(tls_cluster, "rolled", len(written))) == sorted(written)


def _wait_until_in_sync(cluster: ClusterProcesses, topic: str) -> None:
    def all_in_sync() -> bool | None:
        metadata = cluster.admin().list_topics(topic, timeout=SECONDS_MAX)
        partitions = metadata.topics[topic].partitions.values()
        return all(len(each.isrs) == len(BROKERS) for each in partitions) or None

    wait_for(all_in_sync, "all replicas in sync")


@pytest.mark.thorough
def test_a_broker_with_the_wrong_certificate_takes_no_part(
    tls_cluster: ClusterProcesses, settings: Settings, tmp_path: Path
) -> None:
    foreign = make_authority(tmp_path / "other").issue("broker-3", hosts=(HOST,))
    settings.certificates[3] = foreign.combined_file
    tls_cluster.start()
    create_topic(tls_cluster, "t", partitions=1, replication_mode="fetch")
    write(tls_cluster, "t", [b"%d" % number for number in range(100)])

    def without_3() -> bool | None:
        metadata = tls_cluster.admin().list_topics("t", timeout=SECONDS_MAX)
        return 3 not in metadata.topics["t"].partitions[0].isrs or None

    wait_for(without_3, "an in-sync set without broker 3", seconds=SECONDS_MAX)
    assert "certificate" in tls_cluster.brokers[1].log + tls_cluster.brokers[2].log

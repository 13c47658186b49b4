"""A cluster in use goes from PLAINTEXT to SASL_SSL with ACLs, one broker at a time, in the steps of docs/security.md."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster_support import Traffic, read_numbers
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.certificates import Authority, make_authority

from zhumq.host.ports import HOST, free_ports
from zhumq.testing.cluster import SETTINGS, ClusterProcesses, wait_for
from zhumq.testing.process import BrokerProcess

IDS = (1, 2, 3)
SECONDS_MAX = 60.0
TOPIC = "orders"
PASSWORDS = {"admin": "admin-password", "alice": "alice-password"}

Settings = Mapping[str, str]


class RollingCluster:
    """Three brokers whose settings change with a restart of each."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.processes = ClusterProcesses(folder)
        self.processes.start_zookeeper()
        self._authority = authority
        certificate = authority.issue("broker")
        self._tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate.combined_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate_file),
        }
        ports = free_ports(9)
        self._ports = dict(
            zip(
                ("PLAINTEXT", "SASL_SSL", "BROKERS"),
                (ports[:3], ports[3:6], ports[6:]),
                strict=True,
            )
        )

    def settings(self, broker_id: int, *listeners: str, **others: str) -> Settings:
        """The settings with these listeners. Names have _ for a dot."""
        addresses = [f"{each}://{self._address(each, broker_id)}" for each in listeners]
        found = {**SETTINGS, "listeners": ",".join(addresses)}
        if "BROKERS" in listeners:
            found["inter.broker.listener.name"] = "BROKERS"
            found["listener.security.protocol.map"] = (
                "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,BROKERS:SSL"
            )
        else:
            found["inter.broker.listener"] = self._address("BROKERS", broker_id)
        if "SASL_SSL" in listeners:
            found |= {**self._tls, "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
        return found | {name.replace("_", "."): value for name, value in others.items()}

    def start(self, *listeners: str) -> None:
        for broker_id in IDS:
            self._launch(broker_id, self.settings(broker_id, *listeners))
        for broker in self.processes.brokers.values():
            broker.wait_until_ready()

    def roll(self, client: Mapping[str, Any], *listeners: str, **others: str) -> None:
        """Restart the brokers one by one, the next one when all replicas are in sync again."""
        for broker_id in IDS:
            assert self.processes.brokers[broker_id].stop() == 0
            self._launch(broker_id, self.settings(broker_id, *listeners, **others))
            self.processes.brokers[broker_id].wait_until_ready()
            wait_for(lambda: _is_in_sync(client), f"replicas in sync after broker {broker_id}")

    def client(self, listener: str, user: str | None = None) -> dict[str, Any]:
        """librdkafka's settings for a client of this listener."""
        addresses = ",".join(self._address(listener, each) for each in IDS)
        found: dict[str, Any] = {"bootstrap.servers": addresses, "log_level": 0}
        if user is None:
            return found
        return found | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": str(self._authority.certificate_file),
        }

    def _address(self, listener: str, broker_id: int) -> str:
        return f"{HOST}:{self._ports[listener][broker_id - 1]}"

    def _launch(self, broker_id: int, settings: Settings) -> None:
        broker = BrokerProcess(
            self.processes.folder / f"broker-{broker_id}",
            settings=settings,
            broker_id=broker_id,
            zookeeper=self.processes.zookeeper.connect,
        )
        self.processes.brokers[broker_id] = broker
        broker.launch()


def _is_in_sync(client: Mapping[str, Any]) -> bool | None:
    with contextlib.suppress(KafkaException):
        topics = AdminClient(client).list_topics(timeout=5.0).topics
        states = [each for topic in topics.values() for each in topic.partitions.values()]
        return all(len(each.isrs) == len(IDS) and each.leader > 0 for each in states) or None
    return None


@pytest.fixture
def rolling(tmp_path: Path) -> Iterator[RollingCluster]:
    cluster = RollingCluster(tmp_path, make_authority(tmp_path / "certificates"))
    try:
        yield cluster
    finally:
        cluster.processes.stop()


def add_users(admin: AdminClient) -> None:
    changes = [
        UserScramCredentialUpsertion(
            user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), password.encode()
        )
        for user, password in PASSWORDS.items()
    ]
    for done in admin.alter_user_scram_credentials(changes).values():
        done.result(SECONDS_MAX)


def allow_alice(admin: AdminClient) -> None:
    needed = (
        (ResourceType.TOPIC, TOPIC, AclOperation.READ),
        (ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
        (ResourceType.GROUP, "reader", AclOperation.READ),
    )
    for kind, name, operation in needed:
        acl = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([acl])[acl].result(SECONDS_MAX)


def refusal_of(client: Mapping[str, Any]) -> int | None:
    """The error code of a client that asks for the topic; None if it gets an answer."""
    consumer = Consumer({**client, "group.id": "other"})
    try:
        found = consumer.list_topics(TOPIC, timeout=5.0).topics[TOPIC].error
        return None if found is None else int(found.code())
    except KafkaException as error:
        return int(error.args[0].code())
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_in_use_becomes_secure_broker_by_broker(rolling: RollingCluster) -> None:
    plain, alice, admin = (
        rolling.client("PLAINTEXT"),
        rolling.client("SASL_SSL", "alice"),
        rolling.client("SASL_SSL", "admin"),
    )
    both = ("PLAINTEXT", "SASL_SSL")
    rolling.start("PLAINTEXT")
    topic = NewTopic(TOPIC, num_partitions=6, replication_factor=3)
    plain_admin, admin_client = AdminClient(plain), AdminClient(admin)
    plain_admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
    old, new = Traffic(plain, TOPIC), Traffic(alice, TOPIC, first=1_000_000_000)
    old.start()
    try:
        old.wait_for_more()
        # 1: a second listener, and certificates for later.
        add_users(plain_admin)
        rolling.roll(plain, *both)
        # 2: TLS between the brokers, which all have certificates now.
        rolling.roll(plain, *both, "BROKERS")
        # 3: ACLs. Clients of the old listener, who have no name, may still do everything.
        rolling.roll(
            plain,
            *both,
            "BROKERS",
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:admin;User:ANONYMOUS",
        )
        allow_alice(admin_client)
        # 4: the clients move to the new listener, one by one.
        new.start()
        new.wait_for_more()
        old.wait_for_more()
        old.stop()
        # 5: the old listener is closed.
        rolling.roll(
            admin,
            "SASL_SSL",
            "BROKERS",
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:admin",
        )
        new.wait_for_more()
    finally:
        old.stop()
        new.stop()
    assert [*old.failed, *new.failed] == []
    found = read_numbers(alice, TOPIC)
    assert len(found) == len(set(found)), "a message is there twice"
    assert set(found) == {*old.acknowledged, *new.acknowledged}
    assert refusal_of(alice) is None
    PASSWORDS["alice"] = "another"
    assert refusal_of(rolling.client("SASL_SSL", "alice")) is not None
    assert refusal_of({**plain, "socket.timeout.ms": 2_000}) in {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
    }

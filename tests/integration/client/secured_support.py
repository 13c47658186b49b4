"""A broker with one listener of each security protocol: ours, or Apache Kafka beside it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.secured_kafka import USERS, SecuredCluster, secured_kafka
from tests.certificates import STORE_PASSWORD, make_authority

from zhumq import Admin
from zhumq.admin.users import create_user
from zhumq.client.security import ClientSecurity
from zhumq.host.ports import free_ports
from zhumq.model.password import Password
from zhumq.testing.broker import broker

PEER_VARIABLE = "ZHUMQ_SECURED_PEER"  # kafka: the tests run against Apache Kafka
ADMIN, ALICE = USERS.items()
SESSION_MS = 5_000


@contextmanager
def secured_cluster(folder: Path) -> Iterator[SecuredCluster]:
    if os.environ.get(PEER_VARIABLE) == "kafka":
        with secured_kafka(folder) as cluster:
            yield cluster
        return
    authority = make_authority(folder / "certificates")
    server = authority.issue("broker")
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    settings = {
        "ssl.keystore.location": str(server.keystore_file),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.location": str(authority.certificate_file),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.unsecured.allowed": "true",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    listen = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    with broker(data_dir=folder / "data", settings=settings, listen=listen, admin=ADMIN):
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        cluster = SecuredCluster(
            plaintext=addresses["PLAINTEXT"],
            ssl=addresses["SSL"],
            sasl_plaintext=addresses["SASL_PLAINTEXT"],
            sasl_ssl=addresses["SASL_SSL"],
            authority=authority,
        )
        with Admin(cluster.sasl_ssl, security=login(cluster, user=ADMIN[0])) as admin:
            create_user(admin, ALICE[0], Password(ALICE[1]))
        yield cluster


def login(
    cluster: SecuredCluster,
    mechanism: str = "SCRAM-SHA-512",
    *,
    user: str = ALICE[0],
    password: str | None = None,
) -> dict[str, str]:
    """The settings of a client over SASL_SSL."""
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "ssl.truststore.location": str(cluster.authority.certificate_file),
    }
    if mechanism == "OAUTHBEARER":
        module = f'x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
        return settings | {"sasl.jaas.config": module}
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    password = USERS.get(user, "") if password is None else password
    jaas = f'org.apache.kafka.{module} required username="{user}" password="{password}";'
    return settings | {"sasl.jaas.config": jaas}


def certificate(cluster: SecuredCluster, name: str = "alice") -> dict[str, str]:
    """The settings of a client with a certificate."""
    issued = cluster.authority.issue(name, hosts=())
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(cluster.authority.truststore_file),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.location": str(issued.keystore_file),
        "ssl.keystore.password": STORE_PASSWORD,
    }


def write_properties(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    path.chmod(0o600)
    assert ClientSecurity.read(path) == ClientSecurity.of(settings)
    return str(path)

"""Apache Kafka with secured listeners beside a plain one: what our clients have to work with, and ours to match."""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka_peer import LOG4J, install, new_cluster_id, settings_of
from benchmarks.server import Prepared, Server, free_ports
from tests.certificates import STORE_PASSWORD, Authority, make_authority

USERS = {"admin": "admin-secret", "alice": "wonder land"}
JVM_OPTIONS = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredCluster:
    """A running broker: its addresses by the protocol of the listener, and the CA of its certificate."""

    plaintext: str
    ssl: str  # wants a client certificate
    sasl_plaintext: str
    sasl_ssl: str
    authority: Authority
    server: Server | None = None  # None: it runs in this process


@contextmanager
def secured_kafka(
    directory: Path, extra: Mapping[str, str] | None = None
) -> Iterator[SecuredCluster]:
    """Run one node below `directory` until the end of the block; `extra` overrides its settings."""
    authority = make_authority(directory / "certificates")
    server = authority.issue("broker")
    ports = free_ports(5)
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=False)}
    endpoints = ",".join(f"{name}://{address}" for name, address in addresses.items())
    plain = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    settings = {
        "listeners": f"{endpoints},CONTROLLER://127.0.0.1:{ports[4]}",
        "advertised.listeners": endpoints,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:{name}" for name in names),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(server.keystore_file),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.location": str(authority.truststore_file),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": STORE_PASSWORD,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connections.max.reauth.ms": "3000",
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{name}"
        settings |= {
            f"{prefix}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {plain};",
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required"
            ' unsecuredLoginStringClaim_sub="broker";',
        }
    node = _prepare(directory, ports, settings | dict(extra or {}))
    with node.start() as server:
        yield SecuredCluster(
            plaintext=addresses["PLAINTEXT"],
            ssl=addresses["SSL"],
            sasl_plaintext=addresses["SASL_PLAINTEXT"],
            sasl_ssl=addresses["SASL_SSL"],
            authority=authority,
            server=server,
        )


def _prepare(directory: Path, ports: list[int], settings: dict[str, str]) -> Prepared:
    data, log = directory / "kafka-data", directory / "kafka.log"
    values = settings_of(port=ports[0], controller_ports=[ports[4]], data=data, extra=settings)
    properties = directory / "server.properties"
    properties.write_text(
        "".join(f"{key}={value.replace('=', chr(92) + '=')}\n" for key, value in values.items())
    )
    log4j = directory / "log4j2.yaml"
    log4j.write_text(LOG4J)
    java = ("java", *JVM_OPTIONS, f"-Dlog4j2.configurationFile={log4j}", "-cp", install())
    scram = [
        f'{mechanism}=[name="{user}",password="{password}"]'
        for user, password in USERS.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    with log.open("ab") as output:
        subprocess.run(
            [
                *java, "kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", properties,
                *(part for each in scram for part in ("--add-scram", each)),
            ],
            check=True, stdout=output, stderr=output,
        )  # fmt: skip
    return Prepared(
        name="kafka",
        command=(*java, "kafka.Kafka", str(properties)),
        bootstrap=f"127.0.0.1:{ports[0]}",
        data=data,
        log=log,
        output=directory / "kafka.out",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one secured Apache Kafka node until Ctrl-C.")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kafka-secured-") as temporary:
        directory = arguments.data_dir or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with secured_kafka(directory) as cluster, suppress(KeyboardInterrupt):
            sys.stdout.write(
                f"kafka ready plaintext={cluster.plaintext} ssl={cluster.ssl}"
                f" sasl_plaintext={cluster.sasl_plaintext} sasl_ssl={cluster.sasl_ssl}\n"
            )
            sys.stdout.flush()
            signal.pause()


if __name__ == "__main__":
    main()

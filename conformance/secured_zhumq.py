"""zhumq with the same secured listeners as the Apache Kafka that it is compared with."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.server import REPOSITORY, Prepared, free_ports
from tests.certificates import STORE_PASSWORD, make_authority

from conformance.secured_kafka import USERS, SecuredCluster

ADMIN = "admin"


@contextmanager
def secured_zhumq(
    directory: Path, extra: Mapping[str, str] | None = None
) -> Iterator[SecuredCluster]:
    """Run one broker below `directory` until the end of the block; it has one user, who may do everything."""
    authority = make_authority(directory / "certificates")
    server = authority.issue("broker")
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ports = free_ports(len(names))
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
    secrets = {"store": STORE_PASSWORD, ADMIN: USERS[ADMIN]}
    for name, secret in secrets.items():
        file = directory / f"{name}.password"
        file.touch(mode=0o600)
        file.write_text(secret)
    settings = {
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        "ssl.keystore.location": str(server.keystore_file),
        "ssl.keystore.password": f"${{file:{directory / 'store.password'}}}",
        "ssl.truststore.location": str(authority.certificate_file),
        "listener.name.ssl.ssl.client.auth": "required",
        **(extra or {}),
    }
    prepared = Prepared(
        name="zhumq",
        command=(
            str(REPOSITORY / ".venv" / "bin" / "zhumq"), "start", "--http", "127.0.0.1:0", "--broker-id", "0",
            "--data-dir", str(directory / "zhumq-data"),
            "--admin-user", ADMIN, "--admin-password-file", str(directory / f"{ADMIN}.password"),
            *(f"--set={key}={value}" for key, value in settings.items()),
        ),
        bootstrap=addresses["PLAINTEXT"],
        data=directory / "zhumq-data",
        log=directory / "zhumq.log",
        output=directory / "zhumq.out",
    )  # fmt: skip
    with prepared.start() as running:
        yield SecuredCluster(
            plaintext=addresses["PLAINTEXT"],
            ssl=addresses["SSL"],
            sasl_plaintext=addresses["SASL_PLAINTEXT"],
            sasl_ssl=addresses["SASL_SSL"],
            authority=authority,
            server=running,
        )

"""A broker that only lets in users with a password, over TLS, with the client settings to reach it."""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.users import create_user
from zhumq.cli.dev_certificates import make_dev_certificates
from zhumq.client.security import ClientSecurity
from zhumq.testing.broker import broker

ADMIN: Final = "admin"
USER: Final = "alice"
MECHANISM: Final = "SCRAM-SHA-512"
_PASSWORD_BYTES: Final = 12
_FILE_MODE: Final = 0o600
_LISTEN: Final = "SASL_SSL://127.0.0.1:0"
_DAYS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredBroker:
    """The addresses of the broker, and how its two users connect: `security` is alice's."""

    bootstrap: str
    http: str
    push: str
    data_dir: Path
    authority: Path  # the certificate of the CA, PEM
    security: ClientSecurity
    client_properties: Path
    admin_security: ClientSecurity
    admin_properties: Path


@contextlib.contextmanager
def secured_broker(
    folder: Path, *, settings: Mapping[str, str] | None = None
) -> Iterator[SecuredBroker]:
    """Run a broker with SASL_SSL on a free port until the end of the block, with the users admin and alice.

    The folder is new; it gets the data, the certificates and the client settings. For ACLs, add the
    settings `authorizer.class.name=zhumq` and `super.users=User:admin`.
    """
    certificates = make_dev_certificates(
        folder / "certificates", client=USER, more_hosts=(), days=_DAYS
    )
    authority = certificates.authority
    passwords = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (ADMIN, USER)}
    files = {
        name: _write_properties(folder / f"{name}.properties", name, password, authority)
        for name, password in passwords.items()
    }
    secured = {name: ClientSecurity.read(file) for name, file in files.items()}
    given = {
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.location": str(authority),
        **(settings or {}),
    }
    with broker(
        data_dir=folder / "data", settings=given, listen=_LISTEN, admin=(ADMIN, passwords[ADMIN])
    ) as running:
        with ClusterConnection(running.bootstrap, security=secured[ADMIN]) as connection:
            create_user(connection, USER, secured[USER].password)
        yield SecuredBroker(
            bootstrap=running.bootstrap,
            http=running.http,
            push=running.push,
            data_dir=running.data_dir,
            authority=authority,
            security=secured[USER],
            client_properties=files[USER],
            admin_security=secured[ADMIN],
            admin_properties=files[ADMIN],
        )


def _write_properties(path: Path, user: str, password: str, authority: Path) -> Path:
    path.touch(mode=_FILE_MODE)
    path.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.location={authority}\n"
        "ssl.truststore.type=PEM\n"
        f"sasl.mechanism={MECHANISM}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{user}" password="{password}";\n'
    )
    return path

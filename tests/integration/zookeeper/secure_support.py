"""An ensemble with TLS and SASL users, the identities of its brokers, and clients without any."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from tests.certificates import Authority, Certificate, make_authority

from zhumq.cluster.dev_zookeeper import DevSecurity, DevZookeeper, dev_zookeeper
from zhumq.cluster.ensemble_security import (
    AuthScheme,
    EnsembleCredentials,
    EnsembleSecurity,
    EnsembleTls,
)
from zhumq.model.password import Password

USER = "zhumq"
PASSWORD = "zookeeper-s3cr3t"
DIGEST = EnsembleCredentials(scheme=AuthScheme.DIGEST, username=USER, password=Password(PASSWORD))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureEnsemble:
    zookeeper: DevZookeeper
    authority: Authority
    certificate: Certificate  # of a broker

    @property
    def tls(self) -> EnsembleTls:
        return EnsembleTls(truststore=self.authority.certificate_file)

    def identified(self, by: str, *, sets_acl: bool = True) -> EnsembleSecurity:
        """The security of a broker over TLS that authenticates by `digest`, `sasl` or `certificate`."""
        if by == "certificate":
            tls = EnsembleTls(
                truststore=self.authority.certificate_file, keystore=self.certificate.combined_file
            )
            return EnsembleSecurity(tls=tls, sets_acl=sets_acl)
        credentials = replace(DIGEST, scheme=AuthScheme(by))
        return EnsembleSecurity(tls=self.tls, credentials=credentials, sets_acl=sets_acl)


@contextlib.contextmanager
def secure_ensemble(folder: Path) -> Iterator[SecureEnsemble]:
    authority = make_authority(folder / "ca")
    security = DevSecurity(
        keystore=authority.issue("zookeeper").combined_file,
        truststore=authority.certificate_file,
        users={USER: PASSWORD},
    )
    with dev_zookeeper(security=security) as zookeeper:
        yield SecureEnsemble(
            zookeeper=zookeeper, authority=authority, certificate=authority.issue("broker")
        )


@contextlib.contextmanager
def outsider(zookeeper: DevZookeeper, **options: Any) -> Iterator[KazooClient]:
    """A client of the plain port; without options it has no credentials."""
    client = KazooClient(zookeeper.connect, **options)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def open_nodes(zookeeper: DevZookeeper, path: str) -> list[str]:
    """The nodes from this path on that a client without credentials can read or list."""
    with outsider(zookeeper) as client:
        found: list[str] = []
        waiting = [path]
        while waiting:
            path = waiting.pop()
            with contextlib.suppress(NoAuthError, NoNodeError):
                client.get(path)
                found.append(path)
                waiting += [f"{path}/{name}" for name in client.get_children(path)]
        return sorted(found)


def all_nodes(zookeeper: DevZookeeper, path: str) -> dict[str, bytes]:
    """Every node from this path on with its content, as a client with the brokers' digest reads them."""
    with outsider(zookeeper, auth_data=[("digest", f"{USER}:{PASSWORD}")]) as client:
        found: dict[str, bytes] = {}
        waiting = [path]
        while waiting:
            path = waiting.pop()
            with contextlib.suppress(NoNodeError):
                found[path] = client.get(path)[0]
                waiting += [f"{path}/{name}" for name in client.get_children(path)]
        return found

"""How a broker connects to ZooKeeper: TLS, credentials, and whether it restricts its nodes by ACLs."""

import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from zhumq.cluster.store import StoreUnusable
from zhumq.model.password import Password


class AuthScheme(StrEnum):
    """How a broker proves to ZooKeeper who it is."""

    DIGEST = "digest"  # user and password, which every ensemble accepts
    SASL = "sasl"  # DIGEST-MD5 against the users that the ensemble is configured with


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleCredentials:
    scheme: AuthScheme
    username: str
    password: Password


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleTls:
    """Files in PEM. Without a trust store the CAs of the system are trusted."""

    truststore: Path | None = None
    keystore: Path | None = None  # the certificate of this broker, its chain, and its key
    key_password: Password = Password("")  # noqa: RUF009 (it does not change)
    checks_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Reads the files, for every connection: new certificates are taken up without a restart.

        Raises StoreUnusable.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.checks_host
        if self.truststore is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(self.truststore)
            except OSError as reason:
                raise _unusable("truststore", self.truststore, reason, "certificate") from None
        if self.keystore is not None:
            # Without a password OpenSSL would ask for it at the terminal.
            password = self.key_password.reveal() or "\0"
            try:
                context.load_cert_chain(self.keystore, password=password)
            except OSError as reason:
                raise _unusable(
                    "keystore", self.keystore, reason, "certificate with its key"
                ) from None
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSecurity:
    tls: EnsembleTls | None = None
    credentials: EnsembleCredentials | None = None
    # Whether only this broker's identities may use the nodes that it creates.
    sets_acl: bool = False

    @property
    def sends_password_in_the_clear(self) -> bool:
        """SASL proves that the broker knows the password; digest sends it."""
        return (
            self.tls is None
            and self.credentials is not None
            and self.credentials.scheme is AuthScheme.DIGEST
        )


OPEN = EnsembleSecurity()


def _unusable(store: str, path: Path, reason: OSError, expected: str) -> StoreUnusable:
    what = f"zookeeper.ssl.{store}.location={path}"
    if not isinstance(reason, ssl.SSLError):
        return StoreUnusable(f"{what} cannot be read: {reason.strerror}")
    if reason.reason == "KEY_VALUES_MISMATCH":
        return StoreUnusable(f"{what} has a key that does not belong to its certificate")
    if store == "keystore":
        expected += ", or zookeeper.ssl.keystore.password is wrong"
    return StoreUnusable(f"{what} is not usable: it holds no PEM {expected}")

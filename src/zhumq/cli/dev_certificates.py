"""Certificates for trying TLS: a CA, a broker and a client, as PEM files and PKCS#12 stores."""

import datetime as dt
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zhumq.cli.options import CommandFailed

if TYPE_CHECKING:
    from cryptography import x509

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
PASSWORD_BYTES: Final = 16
# A certificate is valid a little earlier than now, for machines whose clocks are behind.
EARLIER: Final = dt.timedelta(hours=1)
NEEDS_EXTRA: Final = "certificates need the package cryptography: pip install 'zhumq[security]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevCertificates:
    """The files that were written."""

    folder: Path
    authority: Path  # the certificate that both sides trust
    broker: Path  # PEM: key and certificate
    client: Path
    hosts: tuple[str, ...]  # that the broker's certificate is valid for
    user: str  # the subject of the client's certificate


def make_dev_certificates(
    folder: Path, *, client: str, more_hosts: Iterable[str], days: int
) -> DevCertificates:
    """Write a CA and what it signed into the folder. Raises CommandFailed, OSError."""
    maker = _Maker(folder, days)
    hosts = ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn(), *more_hosts)
    names = tuple(dict.fromkeys(hosts))
    maker.write_authority()
    broker = maker.issue("broker", "broker", names)
    maker.issue("client", client, ())
    maker.write("stores.password", maker.password)
    return DevCertificates(
        folder=maker.folder,
        authority=maker.folder / "ca.crt",
        broker=broker,
        client=maker.folder / "client.pem",
        hosts=names,
        user=f"CN={client}",
    )


class _Maker:
    """Makes keys and certificates, and writes them for their owner alone."""

    def __init__(self, folder: Path, days: int) -> None:
        try:
            # Imported here: cryptography is an extra.
            from cryptography import x509  # noqa: PLC0415
            from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
            from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
            from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
        except ModuleNotFoundError:
            raise CommandFailed(NEEDS_EXTRA) from None
        self._x509, self._hashes, self._ec = x509, hashes, ec
        self._serialization, self._pkcs12 = serialization, pkcs12
        self.folder = folder.resolve()
        if self.folder.exists() and any(self.folder.iterdir()):
            raise CommandFailed(f"{folder} is not empty: name a new folder, `zhumq tls dev DIR`")
        self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self.folder.chmod(FOLDER_MODE)
        self.password = secrets.token_urlsafe(PASSWORD_BYTES).encode()
        self._until = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
        self._authority_key = ec.generate_private_key(ec.SECP256R1())
        self._authority = self._sign_authority()

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with open(descriptor, "wb") as file:
            file.write(content)
        return path

    def write_authority(self) -> None:
        x509_pem = self._serialization.Encoding.PEM
        self.write("ca.crt", self._authority.public_bytes(x509_pem))
        self.write("ca.key", self._key_pem(self._authority_key))
        trusted = [self._pkcs12.PKCS12Certificate(self._authority, b"ca")]
        self.write(
            "truststore.p12", self._pkcs12.serialize_java_truststore(trusted, self._encryption())
        )

    def issue(self, file: str, name: str, hosts: Iterable[str]) -> Path:
        """A key and its certificate as NAME.key, NAME.crt, NAME.pem (both) and NAME.p12."""
        x509 = self._x509
        key = self._ec.generate_private_key(self._ec.SECP256R1())
        builder = self._builder(name, key).issuer_name(self._authority.subject)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        usages = x509.oid.ExtendedKeyUsageOID
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([usages.SERVER_AUTH, usages.CLIENT_AUTH]), critical=False
        )
        if names := [self._general_name(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self._authority_key.public_key()
        )
        certificate = builder.add_extension(authority_id, critical=False).sign(
            self._authority_key, self._hashes.SHA256()
        )
        chain = certificate.public_bytes(self._serialization.Encoding.PEM)
        self.write(f"{file}.crt", chain)
        self.write(f"{file}.key", self._key_pem(key))
        store = self._pkcs12.serialize_key_and_certificates(
            file.encode(), key, certificate, [self._authority], self._encryption()
        )
        self.write(f"{file}.p12", store)
        return self.write(f"{file}.pem", self._key_pem(key) + chain)

    def _sign_authority(self) -> "x509.Certificate":
        x509, key = self._x509, self._authority_key
        builder = self._builder("zhumq development CA", key)
        builder = builder.issuer_name(self._name("zhumq development CA"))
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(
            x509.KeyUsage(
                key_cert_sign=True,
                crl_sign=True,
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return builder.add_extension(own_id, critical=False).sign(key, self._hashes.SHA256())

    def _builder(self, name: str, key: Any) -> "x509.CertificateBuilder":
        builder: x509.CertificateBuilder = (
            self._x509.CertificateBuilder()
            .subject_name(self._name(name))
            .public_key(key.public_key())
            .serial_number(self._x509.random_serial_number())
            .not_valid_before(dt.datetime.now(dt.UTC) - EARLIER)
            .not_valid_after(self._until)
        )
        return builder

    def _name(self, name: str) -> "x509.Name":
        common_name = self._x509.oid.NameOID.COMMON_NAME
        subject: x509.Name = self._x509.Name([self._x509.NameAttribute(common_name, name)])
        return subject

    def _general_name(self, host: str) -> "x509.GeneralName":
        try:
            return self._x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            pass
        try:
            return self._x509.DNSName(host)
        except ValueError:
            raise CommandFailed(f"--host {host!r} is neither a host name nor an address") from None

    def _key_pem(self, key: Any) -> bytes:
        pem = key.private_bytes(
            self._serialization.Encoding.PEM,
            self._serialization.PrivateFormat.PKCS8,
            self._serialization.NoEncryption(),
        )
        assert isinstance(pem, bytes)
        return pem

    def _encryption(self) -> Any:
        return self._serialization.BestAvailableEncryption(self.password)

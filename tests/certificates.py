"""Certificates for tests: a CA, and certificates that it signs, as PEM files and PKCS#12 stores in a folder."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

STORE_PASSWORD = "store-password"
KEY_PASSWORD = "key-password"
DAY = dt.timedelta(days=1)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate with its key, and the files that hold them."""

    certificate: x509.Certificate
    key: PrivateKey
    certificate_file: Path  # PEM
    key_file: Path  # PEM, PKCS#8, not encrypted
    encrypted_key_file: Path  # PEM, PKCS#8, encrypted with KEY_PASSWORD
    combined_file: Path  # PEM: the key, and the certificate after it
    keystore_file: Path  # PKCS#12 with the certificate, its key and the CA; STORE_PASSWORD


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority in a folder."""

    folder: Path
    certificate: x509.Certificate
    key: PrivateKey
    certificate_file: Path  # PEM
    truststore_file: Path  # PKCS#12 that Java takes as a trust store; STORE_PASSWORD

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        valid_from_days: int = -1,
        valid_days: int = 30,
        organization: str | None = None,
        is_rsa: bool = False,
    ) -> Certificate:
        """A certificate for a server or a client, with the subject CN=`name`, in files named after it."""
        key: PrivateKey = (
            rsa.generate_private_key(public_exponent=65_537, key_size=2048)
            if is_rsa
            else ec.generate_private_key(ec.SECP256R1())
        )
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        builder = _builder(
            _subject(name, organization), key, self.certificate.subject, valid_from_days, valid_days
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        issued = Certificate(
            certificate=certificate,
            key=key,
            certificate_file=self.folder / f"{name}.crt",
            key_file=self.folder / f"{name}.key",
            encrypted_key_file=self.folder / f"{name}.encrypted.key",
            combined_file=self.folder / f"{name}.pem",
            keystore_file=self.folder / f"{name}.p12",
        )
        chain = certificate.public_bytes(serialization.Encoding.PEM)
        plain = _key_pem(key, serialization.NoEncryption())
        issued.certificate_file.write_bytes(chain)
        issued.key_file.write_bytes(plain)
        issued.encrypted_key_file.write_bytes(
            _key_pem(key, serialization.BestAvailableEncryption(KEY_PASSWORD.encode()))
        )
        issued.combined_file.write_bytes(plain + chain)
        issued.keystore_file.write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(),
                key,
                certificate,
                [self.certificate],
                serialization.BestAvailableEncryption(STORE_PASSWORD.encode()),
            )
        )
        return issued


def make_authority(folder: Path, name: str = "ca") -> Authority:
    """A new certificate authority, whose files are in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, None)
    certificate = (
        _builder(subject, key, subject, -1, 30)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    authority = Authority(
        folder=folder,
        certificate=certificate,
        key=key,
        certificate_file=folder / f"{name}.crt",
        truststore_file=folder / f"{name}.truststore.p12",
    )
    authority.certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    authority.truststore_file.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(certificate, name.encode())],
            serialization.BestAvailableEncryption(STORE_PASSWORD.encode()),
        )
    )
    return authority


def _subject(name: str, organization: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _builder(
    subject: x509.Name, key: PrivateKey, issuer: x509.Name, valid_from_days: int, valid_days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid_from_days * DAY)
        .not_valid_after(now + valid_days * DAY)
    )


def _key_pem(key: PrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )

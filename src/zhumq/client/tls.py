"""TLS of a client: certificates and keys from PEM and PKCS#12, and the context of its connections."""

import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from zhumq.client.errors import SecurityInvalid
from zhumq.client.security import ClientSecurity, KeyStore, TrustStore
from zhumq.model.password import Password

STORE_BYTES_MAX: Final = 4 * 1024 * 1024
PEM_BEGIN: Final = "-----BEGIN "
CERTIFICATE_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_ENCRYPTED: Final = ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED")
_KEPT_MAX: Final = 8  # settings whose material is kept in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The certificate of a client with its chain, and the key; all PEM."""

    chain: str
    key: Password
    key_password: Password
    # The files of both, if they are PEM files: librdkafka takes a chain only from a file.
    chain_location: str = ""
    key_location: str = ""

    @property
    def has_encrypted_key(self) -> bool:
        return any(mark in self.key.reveal() for mark in _ENCRYPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """The certificates of a client. Without CAs, it trusts those of the system."""

    authorities: str | None  # PEM
    identity: Identity | None


def tls_material(security: ClientSecurity) -> TlsMaterial:
    """The certificates that the settings name. Raises SecurityInvalid.

    Files that were replaced since are read again.
    """
    return _load(security.trust_store, security.key_store, _stamps(security))


def tls_context(security: ClientSecurity) -> ssl.SSLContext:
    """The context of the client's TLS connections. Raises SecurityInvalid."""
    material = tls_material(security)
    return _context(material, security.checks_host)


def plain_key(identity: Identity) -> str:
    """The key as PEM that is not encrypted. Raises SecurityInvalid."""
    if not identity.has_encrypted_key:
        return identity.key.reveal()
    cryptography = _cryptography("an encrypted key")
    try:
        key = cryptography.serialization.load_pem_private_key(
            identity.key.reveal().encode(), identity.key_password.reveal().encode()
        )
    except (ValueError, TypeError):
        raise SecurityInvalid(
            "the client's key cannot be read: is ssl.key.password right?"
        ) from None
    return cryptography.key_pem(key)


@lru_cache(maxsize=_KEPT_MAX)
def _context(material: TlsMaterial, checks_host: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = checks_host
    if material.authorities is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=material.authorities)
        except (ssl.SSLError, ValueError):
            raise SecurityInvalid("the trust store holds no certificate that can be read") from None
    if material.identity is not None:
        _load_identity(context, material.identity)
    return context


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    # Python's ssl reads a key from a file only. The folder has mode 0700, and is gone after this.
    with tempfile.TemporaryDirectory(prefix="zhumq-tls-") as folder:
        file = Path(folder) / "identity.pem"
        file.touch(mode=0o600)
        file.write_text(f"{identity.key.reveal()}\n{identity.chain}\n")
        try:
            # A password is always given: without one, OpenSSL would ask at the terminal.
            context.load_cert_chain(file, password=identity.key_password.reveal() or "\0")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise SecurityInvalid(
                    "the client's key does not belong to its certificate"
                ) from None
            advice = ": is ssl.key.password right?" if identity.has_encrypted_key else ""
            raise SecurityInvalid(
                f"the client's certificate and key cannot be read{advice}"
            ) from None


def _stamps(security: ClientSecurity) -> tuple[tuple[int, int], ...]:
    """When the files were changed, so that replaced files are read again."""
    locations = (
        security.trust_store.location,
        security.key_store.location,
        security.key_store.key_location,
    )
    stamps = []
    for location in filter(None, locations):
        try:
            found = Path(location).stat()
        except OSError as error:
            raise SecurityInvalid(f"cannot read {location}: {error.strerror}") from None
        stamps.append((found.st_mtime_ns, found.st_ino))
    return tuple(stamps)


@lru_cache(maxsize=_KEPT_MAX)
def _load(
    trust_store: TrustStore, key_store: KeyStore, _stamps: tuple[tuple[int, int], ...]
) -> TlsMaterial:
    return TlsMaterial(
        authorities=_authorities(trust_store), identity=_identity(key_store) if key_store else None
    )


def _authorities(store: TrustStore) -> str | None:
    if store.certificates:
        return _certificates(store.certificates, "ssl.truststore.certificates")
    if not store.location:
        return None
    content = _read(store.location, store.password, "ssl.truststore.password")
    if isinstance(content, str):
        return _certificates(content, store.location)
    # Java's trust stores hold the CAs beside no key.
    certificates = [content.cert, *content.additional_certs]
    return _pem_of(each.certificate for each in certificates if each is not None)


def _identity(store: KeyStore) -> Identity:
    if store.chain:
        return Identity(
            chain=_certificates(store.chain, "ssl.keystore.certificate.chain"),
            key=store.key,
            key_password=store.key_password,
        )
    content = _read(store.location, store.password, "ssl.keystore.password")
    if not isinstance(content, str):
        if content.key is None or content.cert is None:
            raise SecurityInvalid(f"{store.location} holds no key with its certificate")
        chain = [content.cert.certificate]
        # The CA at the end of the chain is what the broker trusts already.
        chain += [
            each.certificate
            for each in content.additional_certs
            if each.certificate.subject != each.certificate.issuer
        ]
        key = _cryptography("PKCS#12").key_pem(content.key)
        return Identity(chain=_pem_of(chain), key=Password(key), key_password=Password(""))
    key_location = store.key_location or store.location
    key = _text(key_location)
    if "PRIVATE KEY-----" not in key:
        raise SecurityInvalid(
            f"{key_location} holds no key: add it to the file, or set ssl.key.location"
        )
    return Identity(
        chain=_certificates(content, store.location),
        key=Password(_block(key, "PRIVATE KEY-----")),
        key_password=store.key_password,
        chain_location=store.location,
        key_location=key_location,
    )


def _read(location: str, password: Password, setting: str) -> Any:
    """The content of a store: the text of a PEM file, or the PKCS#12 object."""
    content = _bytes(location)
    if content.startswith(_JKS_MAGIC):
        raise SecurityInvalid(
            f"{location} is a JKS store: convert it with `keytool -importkeystore -srckeystore {location}"
            " -destkeystore STORE.p12 -deststoretype PKCS12`"
        )
    if PEM_BEGIN.encode() in content:
        return _text(location)
    pkcs12 = _cryptography(f"{location} (PKCS#12)").pkcs12
    try:
        return pkcs12.load_pkcs12(content, password.reveal().encode() or None)
    except ValueError:
        raise SecurityInvalid(
            f"cannot read {location}: it is neither PEM nor PKCS#12, or {setting} is wrong"
        ) from None


def _bytes(location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise SecurityInvalid(f"cannot read {location}: {error.strerror}") from None
    if len(content) > STORE_BYTES_MAX:
        raise SecurityInvalid(f"{location} is too large for certificates")
    return content


def _text(location: str) -> str:
    return _bytes(location).decode(errors="replace")


def _certificates(text: str, place: str) -> str:
    """The certificates of a PEM text, without the key that may be beside them."""
    parts = [
        f"{CERTIFICATE_BEGIN}{part.partition('-----END CERTIFICATE-----')[0]}-----END CERTIFICATE-----\n"
        for part in text.split(CERTIFICATE_BEGIN)[1:]
    ]
    if not parts:
        raise SecurityInvalid(f"{place} holds no certificate")
    return "".join(parts)


def _block(text: str, label: str) -> str:
    """The first block of a PEM text whose label ends so."""
    begin = text.rfind("-----BEGIN ", 0, text.index(label))
    end = text.find("-----END ", begin)
    return f"{text[begin:end]}{text[end:].splitlines()[0]}\n" if end >= 0 else text[begin:]


def _pem_of(certificates: Iterable[Any]) -> str:
    encoding = _cryptography("PKCS#12").serialization.Encoding.PEM
    text = "".join(each.public_bytes(encoding).decode() for each in certificates)
    if not text:
        raise SecurityInvalid("the PKCS#12 trust store holds no certificate")
    return text


class _Cryptography:
    """The parts of the `cryptography` package that this module needs."""

    def __init__(self) -> None:
        # Imported here: PEM files without an encrypted key need the standard library only.
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415

        self.serialization = serialization
        self.pkcs12 = pkcs12

    def key_pem(self, key: Any) -> str:
        form = self.serialization
        encoded: bytes = key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        return encoded.decode()


def _cryptography(what: str) -> _Cryptography:
    try:
        return _Cryptography()
    except ImportError:
        raise SecurityInvalid(
            f"{what} needs the cryptography package: pip install 'zhumq[security]'"
        ) from None

"""Reads key stores and trust stores: PEM by the standard library, PKCS#12 by cryptography."""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from zhumq.model.errors import SettingInvalid
from zhumq.net.tls_config import Store, StoreType, TlsConfig
from zhumq.security.certificate import Certificate, CertificateUnreadable, read_certificate

STORE_BYTES_MAX: Final = 16 << 20
_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)
_ENCRYPTED: Final = b"ENCRYPTED"
NEEDS_EXTRA: Final = "needs the package cryptography: pip install 'zhumq[security]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """The content of the stores, in PEM."""

    certificate_chain: bytes
    # May be encrypted; an empty password then never fits.
    key: bytes = field(repr=False)
    key_password: str = field(repr=False)
    trusted: bytes
    leaf: Certificate


def read_material(config: TlsConfig) -> TlsMaterial:
    """Read the stores. Raises SettingInvalid that names the setting and what is wrong."""
    chain, key, key_password = _read_key_store(config)
    name = _place(config.key_store)
    first = _CERTIFICATE.search(chain)
    assert first is not None
    try:
        leaf = read_certificate(ssl.PEM_cert_to_DER_cert(first[0].decode()))
    except (CertificateUnreadable, ValueError) as reason:
        raise SettingInvalid(f"{name}: {reason}") from None
    return TlsMaterial(
        certificate_chain=chain,
        key=key,
        key_password=key_password,
        trusted=_read_trust_store(config.trust_store) if config.trust_store else b"",
        leaf=leaf,
    )


def stores_of(config: TlsConfig) -> list[Path]:
    """The files whose change makes a new context."""
    return [
        Path(store.location) for store in (config.key_store, config.trust_store) if store.location
    ]


def decrypted_key(material: TlsMaterial) -> bytes:
    """The key in PEM for a library that takes no password. Raises SettingInvalid."""
    if _ENCRYPTED not in material.key:
        return material.key
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        raise SettingInvalid(f"an encrypted key of the push listener {NEEDS_EXTRA}") from None
    key = serialization.load_pem_private_key(material.key, material.key_password.encode())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read_key_store(config: TlsConfig) -> tuple[bytes, bytes, str]:
    """Certificate chain, key and the key's password."""
    store = config.key_store
    name = _place(store)
    if not store.location:
        chain, key = store.certificates.encode(), store.key.encode()
        name_of_key = "ssl.keystore.key"
    else:
        content = _read_file(store)
        if _type_of(store, content) is StoreType.PKCS12:
            return _read_pkcs12(store, content)
        if store.password:
            raise SettingInvalid(
                f"{name} is PEM, which has no password of its own: use ssl.key.password for the key"
            )
        chain = key = content
        name_of_key = name
    certificates = _CERTIFICATE.findall(chain)
    if not certificates:
        raise SettingInvalid(f"{name} has no certificate in PEM (BEGIN CERTIFICATE)")
    found = _KEY.search(key)
    if found is None:
        raise SettingInvalid(f"{name_of_key} has no private key in PEM (BEGIN PRIVATE KEY)")
    is_encrypted = _ENCRYPTED in found[0]
    if is_encrypted and not config.key_password:
        raise SettingInvalid(f"{name_of_key} has an encrypted key: set ssl.key.password")
    return b"\n".join(certificates), found[0] + b"\n", config.key_password


def _read_trust_store(store: Store) -> bytes:
    name = _place(store)
    if not store.location:
        content = store.certificates.encode()
    else:
        content = _read_file(store)
        if _type_of(store, content) is StoreType.PKCS12:
            content = _trusted_in_pkcs12(store, content)
    certificates = _CERTIFICATE.findall(content)
    if not certificates:
        raise SettingInvalid(f"{name} has no certificate to trust")
    return b"\n".join(certificates)


def _read_file(store: Store) -> bytes:
    try:
        with open(store.location, "rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as reason:
        raise SettingInvalid(
            f"{store.setting}: cannot read {store.location}: {reason.strerror or reason}"
        ) from None
    if len(content) > STORE_BYTES_MAX:
        raise SettingInvalid(f"{_place(store)} is larger than {STORE_BYTES_MAX} bytes")
    if not content.strip():
        raise SettingInvalid(f"{_place(store)} is empty")
    return content


def _type_of(store: Store, content: bytes) -> StoreType:
    if content.startswith(_JKS_MAGICS):
        raise SettingInvalid(
            f"{_place(store)} is a Java key store (JKS), which cannot be read here. Convert it: keytool"
            f" -importkeystore -srckeystore {store.location} -destkeystore {store.location}.p12"
            " -deststoretype PKCS12"
        )
    is_pem = b"-----BEGIN " in content
    if store.type is None:
        return StoreType.PEM if is_pem else StoreType.PKCS12
    if is_pem is not (store.type is StoreType.PEM):
        found = StoreType.PEM if is_pem else "not PEM"
        raise SettingInvalid(f"{_place(store)} is {found}, and its type is set to {store.type}")
    return store.type


def _read_pkcs12(store: Store, content: bytes) -> tuple[bytes, bytes, str]:
    name = _place(store)
    pkcs12 = _load_pkcs12(store, content)
    if pkcs12.key is None or pkcs12.cert is None:
        raise SettingInvalid(f"{name} has no private key with its certificate")
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (an extra)

    pem = serialization.Encoding.PEM
    chain = [pkcs12.cert.certificate, *(each.certificate for each in pkcs12.additional_certs)]
    key = pkcs12.key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return b"".join(each.public_bytes(pem) for each in chain), key, ""


def _trusted_in_pkcs12(store: Store, content: bytes) -> bytes:
    pkcs12 = _load_pkcs12(store, content)
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (an extra)

    found = [pkcs12.cert] if pkcs12.cert is not None else []
    return b"".join(
        each.certificate.public_bytes(serialization.Encoding.PEM)
        for each in (*found, *pkcs12.additional_certs)
    )


def _load_pkcs12(store: Store, content: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        raise SettingInvalid(f"{_place(store)} is PKCS#12, which {NEEDS_EXTRA}") from None
    try:
        return pkcs12.load_pkcs12(content, store.password.encode() or None)
    except (ValueError, TypeError):
        setting = store.setting.replace(".location", ".password")
        raise SettingInvalid(
            f"{_place(store)} is no PKCS#12 store that opens with the password in {setting}"
        ) from None


def _place(store: Store) -> str:
    """How a message names a store."""
    return f"{store.setting}={store.location}" if store.location else store.setting

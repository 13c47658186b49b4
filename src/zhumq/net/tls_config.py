"""TLS of one listener as configured: key store, trust store, client certificates, protocols."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from zhumq.model.errors import SettingInvalid
from zhumq.security.principal_mapping import PrincipalMapping

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
# The suites of TLS 1.3. OpenSSL has the same names, and all of them are always on.
TLS_1_3_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
# Kafka's names of the suites of TLS 1.2 with forward secrecy, and OpenSSL's.
TLS_1_2_SUITES: Final = {
    f"TLS_{exchange}_WITH_{kafka}": f"{exchange.replace('_', '-')}-{openssl}"
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
    for kafka, openssl in (
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}


class ClientAuth(StrEnum):
    """`ssl.client.auth`: whether a client has to show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class StoreType(StrEnum):
    """The format of a key store or trust store."""

    PEM = "PEM"
    PKCS12 = "PKCS12"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A key store or a trust store: a file, or PEM text in the settings."""

    # How messages name it: the setting with the file or the text.
    setting: str
    location: str = ""
    type: StoreType | None = None  # None: by the content of the file
    password: str = field(default="", repr=False)
    # PEM text in place of a file: certificates, and in a key store the key.
    certificates: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.location or self.certificates)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Everything that a TLS context is made from."""

    key_store: Store
    key_password: str = field(default="", repr=False)
    trust_store: Store
    client_auth: ClientAuth = ClientAuth.NONE
    protocols: tuple[str, ...] = (TLS_1_2, TLS_1_3)
    cipher_suites: tuple[str, ...] = ()  # empty: all with forward secrecy
    mapping: PrincipalMapping = field(default_factory=PrincipalMapping)
    # Whether the name in the certificate of another broker has to be the one that it registered.
    checks_host_names: bool = True

    def __post_init__(self) -> None:
        for suite in self.cipher_suites:
            if suite not in TLS_1_2_SUITES and suite not in TLS_1_3_SUITES:
                known = ", ".join((*TLS_1_3_SUITES, *TLS_1_2_SUITES))
                raise SettingInvalid(f"ssl.cipher.suites: there is no {suite!r} here, but {known}")
        if not self.usable_protocols:
            raise SettingInvalid(
                "ssl.cipher.suites names no suite of the versions in ssl.enabled.protocols,"
                f" {', '.join(self.protocols)}"
            )

    @property
    def usable_protocols(self) -> tuple[str, ...]:
        """The enabled versions that have one of the named suites."""
        named = self.cipher_suites
        if not named:
            return self.protocols
        suites_of = {TLS_1_2: tuple(TLS_1_2_SUITES), TLS_1_3: TLS_1_3_SUITES}
        return tuple(
            each for each in self.protocols if any(suite in suites_of[each] for suite in named)
        )

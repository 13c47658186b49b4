"""Settings of TLS under Kafka's names, and the TLS configuration of a listener made from them."""

from typing import Final

from zhumq.model.errors import SettingInvalid
from zhumq.model.settings import Setting, Settings, SettingType
from zhumq.net.tls_config import TLS_1_2, TLS_1_3, ClientAuth, Store, StoreType, TlsConfig
from zhumq.security.principal_mapping import DEFAULT_RULES, MappingRuleInvalid, PrincipalMapping

_JKS: Final = "JKS"
_STORE_TYPES: Final = ("", StoreType.PEM, StoreType.PKCS12, _JKS)
_CHECKS_HOST_NAMES: Final = "https"


def _text(
    name: str, documentation: str, *, default: str = "", allowed: tuple[str, ...] = ()
) -> Setting:
    return Setting(
        name=name,
        type=SettingType.STRING,
        default=default,
        documentation=documentation,
        allowed=allowed,
        is_per_listener=True,
    )


def _password(name: str, documentation: str) -> Setting:
    return Setting(
        name=name,
        type=SettingType.PASSWORD,
        default="",
        documentation=documentation,
        is_per_listener=True,
    )


TLS_SETTINGS: Final = (
    _text(
        "ssl.keystore.location",
        "The file with the broker's key and its certificate chain.",
    ),
    _text(
        "ssl.keystore.type",
        "PEM or PKCS12; empty: by the content of the file. A JKS store has to be converted.",
        allowed=_STORE_TYPES,
    ),
    _password("ssl.keystore.password", "The password of a PKCS#12 key store."),
    _password("ssl.keystore.key", "The broker's key in PEM, in place of ssl.keystore.location."),
    _text(
        "ssl.keystore.certificate.chain",
        "The certificate of ssl.keystore.key in PEM, and the certificates that sign it.",
    ),
    _password("ssl.key.password", "The password of an encrypted key in PEM."),
    _text(
        "ssl.truststore.location",
        "The file with the certificates that sign those of clients and of other brokers.",
    ),
    _text(
        "ssl.truststore.type",
        "PEM or PKCS12; empty: by the content of the file.",
        allowed=_STORE_TYPES,
    ),
    _password("ssl.truststore.password", "The password of a PKCS#12 trust store."),
    _text(
        "ssl.truststore.certificates",
        "The trusted certificates in PEM, in place of ssl.truststore.location.",
    ),
    _text(
        "ssl.client.auth",
        "Whether clients show a certificate: none, requested or required.",
        default=ClientAuth.NONE,
        allowed=tuple(ClientAuth),
    ),
    Setting(
        name="ssl.enabled.protocols",
        type=SettingType.LIST,
        default=f"{TLS_1_2},{TLS_1_3}",
        documentation="The versions of TLS that are spoken.",
        allowed=(TLS_1_2, TLS_1_3),
        is_per_listener=True,
    ),
    Setting(
        name="ssl.cipher.suites",
        type=SettingType.LIST,
        default="",
        documentation="The cipher suites, by Kafka's names; empty: all that have forward secrecy."
        " Those of TLS 1.3 can only be had or left out together.",
        is_per_listener=True,
    ),
    _text(
        "ssl.principal.mapping.rules",
        "RULE:pattern/replacement/[LU] and DEFAULT, separated by commas: from the subject of a client"
        " certificate to a user name.",
        default=DEFAULT_RULES,
    ),
    _text(
        "ssl.endpoint.identification.algorithm",
        "https: another broker's certificate has to name its host; empty: it need not.",
        default=_CHECKS_HOST_NAMES,
        allowed=(_CHECKS_HOST_NAMES, ""),
    ),
)


def tls_config(settings: Settings, listener: str) -> TlsConfig:
    """The TLS of a listener. Raises SettingInvalid."""
    own = settings.of_listener(listener)
    try:
        return _tls_config(own)
    except (SettingInvalid, MappingRuleInvalid) as reason:
        raise SettingInvalid(f"TLS of listener {listener}: {reason}") from None


def has_key_store(settings: Settings, listener: str) -> bool:
    own = settings.of_listener(listener)
    return bool(own.text("ssl.keystore.location") or own.text("ssl.keystore.certificate.chain"))


def has_trust_store(settings: Settings, listener: str) -> bool:
    own = settings.of_listener(listener)
    return bool(own.text("ssl.truststore.location") or own.text("ssl.truststore.certificates"))


def _tls_config(settings: Settings) -> TlsConfig:
    key_store = Store(
        setting="ssl.keystore.location",
        location=settings.text("ssl.keystore.location"),
        type=_store_type(settings, "ssl.keystore"),
        password=settings.password("ssl.keystore.password").reveal(),
    )
    key = settings.password("ssl.keystore.key").reveal()
    chain = settings.text("ssl.keystore.certificate.chain")
    if key or chain:
        if key_store.location:
            raise SettingInvalid("give ssl.keystore.location or ssl.keystore.key, not both")
        if not (key and chain):
            raise SettingInvalid(
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together"
            )
        key_store = Store(setting="ssl.keystore.certificate.chain", certificates=chain, key=key)
    if not key_store:
        raise SettingInvalid(
            "it needs a key and a certificate: set ssl.keystore.location, or try it with"
            " `zhumq tls dev`"
        )
    trust_store = Store(
        setting="ssl.truststore.location",
        location=settings.text("ssl.truststore.location"),
        type=_store_type(settings, "ssl.truststore"),
        password=settings.password("ssl.truststore.password").reveal(),
    )
    if trusted := settings.text("ssl.truststore.certificates"):
        if trust_store.location:
            raise SettingInvalid(
                "give ssl.truststore.location or ssl.truststore.certificates, not both"
            )
        trust_store = Store(setting="ssl.truststore.certificates", certificates=trusted)
    try:
        mapping = PrincipalMapping(settings.text("ssl.principal.mapping.rules"))
    except MappingRuleInvalid as reason:
        raise SettingInvalid(f"ssl.principal.mapping.rules: {reason}") from None
    return TlsConfig(
        key_store=key_store,
        key_password=settings.password("ssl.key.password").reveal(),
        trust_store=trust_store,
        client_auth=ClientAuth(settings.text("ssl.client.auth")),
        protocols=settings.elements("ssl.enabled.protocols"),
        cipher_suites=settings.elements("ssl.cipher.suites"),
        mapping=mapping,
        checks_host_names=bool(settings.text("ssl.endpoint.identification.algorithm")),
    )


def _store_type(settings: Settings, store: str) -> StoreType | None:
    text = settings.text(f"{store}.type")
    if text == _JKS:
        location = settings.text(f"{store}.location")
        raise SettingInvalid(
            f"{store}.type=JKS cannot be read here. Convert it: keytool -importkeystore -srckeystore"
            f" {location} -destkeystore {location}.p12 -deststoretype PKCS12"
        )
    return StoreType(text) if text else None

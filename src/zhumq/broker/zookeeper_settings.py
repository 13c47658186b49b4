"""Settings of the connection to ZooKeeper: TLS, credentials and ACLs, under Kafka's names where it has them."""

from pathlib import Path
from typing import Final

from zhumq.cluster.ensemble_security import (
    AuthScheme,
    EnsembleCredentials,
    EnsembleSecurity,
    EnsembleTls,
)
from zhumq.model.errors import SettingInvalid
from zhumq.model.settings import Setting, Settings, SettingType

_PEM: Final = "PEM"
_CHECKS_HOST: Final = "HTTPS"


def _text(name: str, documentation: str, default: str = "", *allowed: str) -> Setting:
    return Setting(
        name=name,
        type=SettingType.STRING,
        default=default,
        documentation=documentation,
        allowed=allowed,
    )


def _boolean(name: str, documentation: str) -> Setting:
    return Setting(
        name=name, type=SettingType.BOOLEAN, default="false", documentation=documentation
    )


def _password(name: str, documentation: str) -> Setting:
    return Setting(name=name, type=SettingType.PASSWORD, default="", documentation=documentation)


ZOOKEEPER_SETTINGS: Final = (
    _boolean(
        "zookeeper.set.acl",
        "Whether only brokers with the same credentials may read and write the cluster's nodes. At start, nodes"
        " that are open are restricted, too.",
    ),
    _text(
        "zookeeper.auth.scheme",
        "How the broker proves its identity to ZooKeeper: digest, or sasl (DIGEST-MD5, with a user that the"
        " ensemble is configured with).",
        AuthScheme.DIGEST,
        *AuthScheme,
    ),
    _text("zookeeper.auth.username", "The user of zookeeper.auth.scheme; empty: no credentials."),
    _password("zookeeper.auth.password", "The password of zookeeper.auth.username."),
    _boolean("zookeeper.ssl.client.enable", "Whether --zookeeper names TLS ports."),
    _text(
        "zookeeper.ssl.truststore.location",
        "PEM file with the CAs that sign the certificates of ZooKeeper; empty: the CAs of the system.",
    ),
    _text("zookeeper.ssl.truststore.type", "The format of the trust store.", _PEM, _PEM),
    _text(
        "zookeeper.ssl.keystore.location",
        "PEM file with the certificate of this broker for ZooKeeper, its chain and its key; empty: none.",
    ),
    _password("zookeeper.ssl.keystore.password", "The password of the key in the keystore."),
    _text("zookeeper.ssl.keystore.type", "The format of the keystore.", _PEM, _PEM),
    _text(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS: ZooKeeper's certificate has to name the host in --zookeeper; empty: any host.",
        _CHECKS_HOST,
        _CHECKS_HOST,
        "",
    ),
)


def ensemble_security(settings: Settings) -> EnsembleSecurity:
    """Raises SettingInvalid if the settings contradict each other."""
    tls = _tls(settings)
    credentials = _credentials(settings)
    sets_acl = settings.boolean("zookeeper.set.acl")
    if sets_acl and credentials is None and (tls is None or tls.keystore is None):
        raise SettingInvalid(
            "zookeeper.set.acl=true needs an identity: set zookeeper.auth.username and"
            " zookeeper.auth.password, or zookeeper.ssl.keystore.location"
        )
    return EnsembleSecurity(tls=tls, credentials=credentials, sets_acl=sets_acl)


def _credentials(settings: Settings) -> EnsembleCredentials | None:
    username = settings.text("zookeeper.auth.username")
    password = settings.password("zookeeper.auth.password")
    if not username and not password:
        return None
    if not username or not password:
        missing = "password" if username else "username"
        raise SettingInvalid(f"zookeeper.auth.{missing} is missing: set both, or none")
    if ":" in username:
        raise SettingInvalid(f"zookeeper.auth.username={username!r} has a colon")
    scheme = AuthScheme(settings.text("zookeeper.auth.scheme"))
    return EnsembleCredentials(scheme=scheme, username=username, password=password)


def _tls(settings: Settings) -> EnsembleTls | None:
    truststore = settings.text("zookeeper.ssl.truststore.location")
    keystore = settings.text("zookeeper.ssl.keystore.location")
    if not settings.boolean("zookeeper.ssl.client.enable"):
        if truststore or keystore:
            raise SettingInvalid(
                "zookeeper.ssl.* is set, and zookeeper.ssl.client.enable is not: the connection to"
                " ZooKeeper would not be encrypted; set zookeeper.ssl.client.enable=true"
            )
        return None
    return EnsembleTls(
        truststore=Path(truststore) if truststore else None,
        keystore=Path(keystore) if keystore else None,
        key_password=settings.password("zookeeper.ssl.keystore.password"),
        checks_host=settings.text("zookeeper.ssl.endpoint.identification.algorithm") != "",
    )

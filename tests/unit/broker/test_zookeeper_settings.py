from pathlib import Path

import pytest

from zhumq.broker.config import BrokerConfig
from zhumq.broker.given_settings import read_settings
from zhumq.broker.zookeeper_settings import ensemble_security
from zhumq.cluster.ensemble_security import OPEN, AuthScheme, EnsembleSecurity
from zhumq.model.errors import SettingInvalid
from zhumq.model.password import Password

SECRET = "s3cr3t-hunter2"
CREDENTIALS = {"zookeeper.auth.username": "zhumq", "zookeeper.auth.password": SECRET}


def security(**settings: str) -> EnsembleSecurity:
    return ensemble_security(read_settings(None, settings)[0])


def test_without_settings_the_connection_is_open() -> None:
    assert security() == OPEN


def test_credentials_and_tls_are_taken_from_the_settings() -> None:
    found = security(
        **CREDENTIALS,
        **{
            "zookeeper.auth.scheme": "sasl",
            "zookeeper.set.acl": "true",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/trust.pem",
            "zookeeper.ssl.keystore.location": "/key.pem",
            "zookeeper.ssl.keystore.password": "other",
        },
    )
    assert found.sets_acl
    assert found.credentials is not None
    assert found.credentials.scheme is AuthScheme.SASL
    assert found.credentials.password == Password(SECRET)
    assert found.tls is not None
    assert found.tls.truststore == Path("/trust.pem")
    assert found.tls.keystore == Path("/key.pem")
    assert found.tls.key_password == Password("other")
    assert found.tls.checks_host
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("settings", "sends"),
    [
        ({}, False),
        (CREDENTIALS, True),
        ({**CREDENTIALS, "zookeeper.auth.scheme": "sasl"}, False),
        ({**CREDENTIALS, "zookeeper.ssl.client.enable": "true"}, False),
    ],
)
def test_digest_without_tls_sends_the_password_in_the_clear(
    settings: dict[str, str], sends: bool
) -> None:
    assert security(**settings).sends_password_in_the_clear is sends


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper.auth.username": "zhumq"}, "zookeeper.auth.password is missing"),
        ({"zookeeper.auth.password": SECRET}, "zookeeper.auth.username is missing"),
        ({**CREDENTIALS, "zookeeper.auth.username": "a:b"}, "has a colon"),
        ({"zookeeper.set.acl": "true"}, "needs an identity"),
        (
            {"zookeeper.set.acl": "true", "zookeeper.ssl.client.enable": "true"},
            "needs an identity",
        ),
        ({"zookeeper.ssl.keystore.location": "/key.pem"}, "would not be encrypted"),
        ({"zookeeper.ssl.truststore.location": "/trust.pem"}, "would not be encrypted"),
        ({"zookeeper.ssl.keystore.type": "JKS"}, "it takes one of PEM"),
        ({"zookeeper.auth.scheme": "kerberos"}, "it takes one of digest, sasl"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(SettingInvalid) as refused:
        security(**settings)
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_password_in_a_flag_or_in_an_open_file_is_warned_of(tmp_path: Path) -> None:
    toml = tmp_path / "zhumq.toml"
    toml.write_text(f"zookeeper.auth.password = '{SECRET}'\n")
    toml.chmod(0o644)
    (warning,) = BrokerConfig.load(config_file=toml).warnings
    assert "is open to other users of this machine" in warning
    toml.chmod(0o600)
    config = BrokerConfig.load(config_file=toml)
    assert config.warnings == ()
    assert SECRET not in repr(config)
    (warning,) = BrokerConfig.load(settings={"zookeeper.auth.password": SECRET}).warnings
    assert "shows a password to everyone who can list processes" in warning
    assert SECRET not in warning

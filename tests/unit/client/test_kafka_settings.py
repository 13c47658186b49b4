"""The security of a client as librdkafka's settings, which librdkafka itself accepts."""

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.certificates import KEY_PASSWORD, STORE_PASSWORD, make_authority

from zhumq.client.errors import SecurityInvalid
from zhumq.client.kafka_settings import security_settings
from zhumq.client.security import ClientSecurity

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def settings_of(given: dict[str, str]) -> dict[str, Any]:
    """The settings, after librdkafka has accepted them."""
    settings = security_settings(ClientSecurity.of(given))
    confluent_kafka.Producer(NOWHERE | settings)
    return settings


def test_plain_text_changes_nothing() -> None:
    assert settings_of({}) == {}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_is_passed_on(mechanism: str) -> None:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "wonderland",
    }
    assert settings_of(given) == given


def test_certificates_of_every_store_are_passed_on(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    alice = authority.issue("alice")
    base = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(authority.truststore_file),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    common = {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.pem": authority.certificate_file.read_text(),
    }
    assert settings_of(base) == common
    assert settings_of(base | {"ssl.endpoint.identification.algorithm": ""}) == common | {
        "ssl.endpoint.identification.algorithm": "none"
    }
    files = {
        "ssl.certificate.location": str(alice.certificate_file),
        "ssl.key.location": str(alice.encrypted_key_file),
        "ssl.key.password": KEY_PASSWORD,
    }
    assert settings_of(base | files) == common | files
    combined = {"ssl.keystore.location": str(alice.combined_file)}
    assert settings_of(base | combined) == common | {
        "ssl.certificate.location": str(alice.combined_file),
        "ssl.key.location": str(alice.combined_file),
    }
    store = {
        "ssl.keystore.location": str(alice.keystore_file),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    assert settings_of(base | store) == common | {
        "ssl.certificate.pem": alice.certificate_file.read_text(),
        "ssl.key.pem": alice.key_file.read_text(),
    }


def test_a_chain_that_librdkafka_would_cut_is_refused(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    alice = authority.issue("alice")
    chain = alice.certificate_file.read_text() + authority.certificate_file.read_text()
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(authority.certificate_file),
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": alice.key_file.read_text(),
    }
    with pytest.raises(SecurityInvalid, match=r"set ssl.certificate.location and ssl.key.location"):
        settings_of(given)


def test_tokens_are_given_by_a_callback(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("opaque")
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
        "sasl.oauthbearer.extensions": "pool=a,cluster=b",
    }
    settings = settings_of(given)
    callback = settings.pop("oauth_cb")
    assert settings == {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    text, _, subject, extensions = callback("")
    assert (text, subject, extensions) == ("opaque", "", {"pool": "a", "cluster": "b"})

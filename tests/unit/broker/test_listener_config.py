"""Listeners in Kafka's syntax: what is understood, and what is refused with which line."""

from pathlib import Path

import pytest
from tests.certificates import make_authority

from zhumq.broker.config import BrokerConfig
from zhumq.model.address import Address
from zhumq.model.errors import SettingInvalid
from zhumq.model.security_protocol import SecurityProtocol
from zhumq.net.tls_config import ClientAuth

STORES = {"ssl.keystore.location": "/k.pem", "ssl.truststore.location": "/t.pem"}


def load(settings: dict[str, str], **flags: object) -> BrokerConfig:
    return BrokerConfig.load(settings=settings, push="off", **flags)  # type: ignore[arg-type]


def test_several_listeners_have_names_protocols_and_advertised_addresses() -> None:
    config = load(
        {
            **STORES,
            "listeners": "inside://127.0.0.1:1, OUTSIDE://localhost:2,BROKERS://127.0.0.1:3",
            "advertised.listeners": "OUTSIDE://kafka.example:443",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:sasl_ssl,BROKERS:SSL",
            "inter.broker.listener.name": "brokers",
            "listener.name.brokers.ssl.client.auth": "required",
        }
    )
    inside, outside = config.listeners
    assert (inside.name, inside.protocol) == ("INSIDE", SecurityProtocol.PLAINTEXT)
    assert inside.advertised == inside.bind == Address("127.0.0.1", 1)
    assert (outside.name, outside.protocol) == ("OUTSIDE", SecurityProtocol.SASL_SSL)
    assert outside.advertised == Address("kafka.example", 443)
    assert outside.tls is not None
    assert outside.tls.client_auth is ClientAuth.NONE
    assert config.inter_broker.name == "BROKERS"
    assert config.inter_broker.bind == Address("127.0.0.1", 3)
    assert config.inter_broker.tls is not None
    assert config.inter_broker.tls.client_auth is ClientAuth.REQUIRED


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"listeners": "PLAINTEXT://h"}, "listeners 'PLAINTEXT://h': 'h' is not HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:x"}, "is not HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:-1"}, "is not HOST:PORT"),
        ({"listeners": "://127.0.0.1:1"}, "has no name"),
        ({"listeners": "A B://127.0.0.1:1"}, "has no name"),
        ({"listeners": ","}, "is not HOST:PORT"),
        ({"listeners": "127.0.0.1:1,127.0.0.1:2"}, "needs a name beside the others"),
        ({"listeners": "OTHER://127.0.0.1:1"}, "has no protocol for OTHER"),
        (
            {"listeners": "SSL://127.0.0.1:1,ssl://127.0.0.1:2"},
            "two listeners named SSL",
        ),
        (
            {"listeners": "SSL://127.0.0.1:1,PLAINTEXT://127.0.0.2:1"},
            "SSL and PLAINTEXT are both on port 1",
        ),
        (
            {"listeners": "SSL://localhost:1,PLAINTEXT://[::1]:1"},
            "SSL and PLAINTEXT are both on port 1",
        ),
        ({"listener.security.protocol.map": "A:TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        ({"listener.security.protocol.map": "A"}, "'A' is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:SSL,a:SSL"}, "has A twice"),
        ({"inter.broker.listener.name": "X"}, "there is no such listener, but PLAINTEXT"),
        ({"inter.broker.listener.name": "PLAINTEXT"}, "no listener for clients"),
        (
            {
                "listeners": "SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
                "inter.broker.listener.name": "PLAINTEXT",
                "inter.broker.listener": "127.0.0.1:3",
            },
            "not both",
        ),
        ({"advertised.listeners": "SSL://h:1"}, "there is no listener SSL, but PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "has PLAINTEXT twice"),
        (
            {
                "listeners": "SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
                "advertised.listeners": "h:1",
            },
            "needs a name",
        ),
        ({"listener.name.ssl.ssl.client.auth": "none"}, "there is no listener 'ssl'"),
        ({"listener.name.plaintext.num.partitions": "1"}, "there is no setting named"),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.client.auth": "always"}, "one of none"),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.enabled.protocols": "TLSv1.1"}, "a list of"),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.cipher.suites": "RC4"}, "there is no 'RC4'"),
        (
            {
                "listeners": "SSL://127.0.0.1:1",
                "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
                "ssl.enabled.protocols": "TLSv1.2",
            },
            "names no suite",
        ),
        (
            {"listeners": "SSL://127.0.0.1:1", "ssl.principal.mapping.rules": "RULE:x"},
            "ssl.principal.mapping.rules: 'RULE:x' is neither",
        ),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.keystore.type": "JKS"}, "keytool -importkeystore"),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.keystore.key": "x"}, "not both"),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.truststore.certificates": "x"}, "not both"),
    ],
)
def test_a_typing_error_is_one_line_that_names_it(settings: dict[str, str], line: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        load({**STORES, **settings})
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_listeners_share_a_port_on_different_ip_versions() -> None:
    config = load({**STORES, "listeners": "SSL://127.0.0.1:1,PLAINTEXT://[::1]:1"})
    assert [each.bind.port for each in config.listeners] == [1, 1]


def test_a_tls_listener_needs_a_key() -> None:
    for settings in ({}, {"ssl.keystore.certificate.chain": "x"}):
        with pytest.raises(SettingInvalid, match="TLS of listener SSL"):
            load({"listeners": "SSL://127.0.0.1:1", **settings})


@pytest.mark.parametrize(
    ("settings", "weakness"),
    [
        ({"listeners": "PLAINTEXT://h:1"}, "without encryption or passwords"),
        ({"listeners": "SASL_PLAINTEXT://h:1"}, "without encryption"),
        ({"listeners": "SSL://h:1"}, "neither passwords nor certificates"),
        ({"listeners": "SSL://h:1", "ssl.client.auth": "requested"}, "neither passwords"),
        ({"listeners": "SSL://h:1", "ssl.client.auth": "required"}, None),
        ({"listeners": "SASL_SSL://h:1"}, None),
        (
            {
                "listeners": "SASL_SSL://h:1,B://h:2",
                "inter.broker.listener.name": "B",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,B:PLAINTEXT",
            },
            "h:2 can be reached from other machines, without encryption",
        ),
        (
            {
                "listeners": "SASL_SSL://h:1,B://h:2",
                "inter.broker.listener.name": "B",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,B:SSL",
            },
            None,
        ),
    ],
)
def test_a_listener_for_other_machines_encrypts_and_authenticates_or_needs_insecure(
    settings: dict[str, str], weakness: str | None
) -> None:
    settings = {**STORES, **settings}
    if weakness is None:
        assert load(settings, zookeeper="z:1").warnings == ()
        return
    with pytest.raises(SettingInvalid, match="--insecure") as refused:
        load(settings, zookeeper="z:1")
    assert weakness in str(refused.value)
    (warning,) = load(settings, zookeeper="z:1", insecure=True).warnings[:1]
    assert weakness in warning


def test_push_and_http_follow_the_same_rule() -> None:
    settings = {**STORES, "listeners": "SSL://h:1", "ssl.client.auth": "required"}
    config = BrokerConfig.load(settings=settings)
    assert config.push is not None
    assert config.push.tls is not None  # as the first listener
    assert config.http.tls is None  # on loopback
    with pytest.raises(SettingInvalid, match="--http h:2"):
        BrokerConfig.load(settings=settings, http="h:2")
    with pytest.raises(SettingInvalid, match="--push"):
        BrokerConfig.load(settings={**settings, "push.security.protocol": "PLAINTEXT"})
    with pytest.raises(SettingInvalid, match="--push"):
        BrokerConfig.load(settings={**settings, "listener.name.push.ssl.client.auth": "none"})
    with_https = BrokerConfig.load(
        settings={**settings, "http.security.protocol": "SSL"}, http="h:2"
    )
    assert with_https.http.tls is not None


def test_passwords_are_in_no_text_of_the_configuration(tmp_path: Path) -> None:
    make_authority(tmp_path)
    config = load(
        {
            **STORES,
            "listeners": "SSL://127.0.0.1:1",
            "ssl.keystore.password": "s3cret",
            "ssl.key.password": "s3cret",
            "listener.name.ssl.ssl.truststore.password": "s3cret",
        }
    )
    assert config.listeners[0].tls is not None
    assert config.listeners[0].tls.trust_store.password == "s3cret"
    assert "s3cret" not in repr(config.listeners)

"""The security settings of a client: Kafka's and librdkafka's names, references, and what is refused."""

import logging
from pathlib import Path

import pytest

from zhumq.client.errors import SecurityInvalid
from zhumq.client.security import ClientSecurity, KeyStore, TrustStore, as_security
from zhumq.model.password import Password
from zhumq.model.security_protocol import SecurityProtocol

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SECRET = "geheim-7"
SASL_SSL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
ALICE = ClientSecurity(
    protocol=SecurityProtocol.SASL_SSL,
    mechanism="SCRAM-SHA-512",
    username="alice",
    password=Password(SECRET),
)


def test_no_settings_are_plain_text() -> None:
    assert as_security(None) == ClientSecurity.of({}) == ClientSecurity()


@pytest.mark.parametrize(
    "names",
    [
        {"sasl.jaas.config": f'{SCRAM} username="alice" password="{SECRET}";'},
        {"sasl.username": "alice", "sasl.password": SECRET},
    ],
    ids=["Kafka's names", "librdkafka's names"],
)
def test_a_user_is_given_with_the_names_of_either_client(names: dict[str, str]) -> None:
    assert as_security({**SASL_SSL, **names}) == ALICE


def test_a_mapping_and_a_file_mean_the_same(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# for alice\nsecurity.protocol = sasl_ssl\nsasl.mechanism: SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} \\\n    username="alice" \\\n    password="{SECRET}";\n'
    )
    assert ClientSecurity.read(file) == ALICE


def test_secrets_come_from_the_environment_and_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "password").chmod(0o600)
    monkeypatch.setenv("THE_USER", "alice")
    given = {
        "sasl.jaas.config": f'{SCRAM} username="${{env:THE_USER}}"'
        f' password="${{file:{tmp_path}/password}}";'
    }
    assert ClientSecurity.of({**SASL_SSL, **given}) == ALICE


def test_stores_are_given_with_the_names_of_either_client() -> None:
    java = {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/ca",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/alice",
        "ssl.key.password": SECRET,
    }
    librdkafka = {
        "security.protocol": "ssl",
        "ssl.ca.location": "/ca",
        "ssl.certificate.location": "/alice",
        "ssl.key.password": SECRET,
    }
    expected = ClientSecurity(
        protocol=SecurityProtocol.SSL,
        trust_store=TrustStore(location="/ca"),
        key_store=KeyStore(location="/alice", key_password=Password(SECRET)),
    )
    assert ClientSecurity.of(java) == ClientSecurity.of(librdkafka) == expected


@pytest.mark.parametrize(
    ("value", "checks"), [(None, True), ("https", True), ("", False), ("none", False)]
)
def test_an_empty_identification_algorithm_leaves_the_host_unchecked(
    value: str | None, checks: bool
) -> None:
    given = {} if value is None else {"ssl.endpoint.identification.algorithm": value}
    assert ClientSecurity.of({"security.protocol": "SSL", **given}).checks_host is checks


def test_tokens_come_from_an_endpoint_or_a_file() -> None:
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    endpoint = {"sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token"}
    java = {"sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="{SECRET}" scope="s";'}
    newer = {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.scope": "s",
    }
    librdkafka = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "s",
    }
    found = [ClientSecurity.of(base | endpoint | each) for each in (java, newer, librdkafka)]
    assert found[0] == found[1] == found[2]
    tokens = found[0].tokens
    assert tokens is not None
    assert (tokens.client_id, tokens.client_secret.reveal(), tokens.scope) == ("me", SECRET, "s")
    of_file = ClientSecurity.of(base | {"sasl.oauthbearer.token.endpoint.url": "file:///run/token"})
    assert of_file.tokens is not None
    assert of_file.tokens.file == "/run/token"


WRONG = {
    "no such protocol": (
        {"security.protocol": "TLS"},
        "security.protocol is one of PLAINTEXT, SSL",
    ),
    "no mechanism": ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is one of .* not set"),
    "kerberos": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
        "sasl.mechanism is one of PLAIN, .* not 'GSSAPI'",
    ),
    "no user": (SASL_SSL, "SCRAM-SHA-512 needs a user and a password"),
    "no password": (SASL_SSL | {"sasl.username": "alice"}, "needs a user and a password"),
    "another module": (
        SASL_SSL | {"sasl.jaas.config": f'x.PlainLoginModule required password="{SECRET}";'},
        "names PlainLoginModule, and sasl.mechanism=SCRAM-SHA-512 needs ScramLoginModule",
    ),
    "a JAAS text without end": (
        SASL_SSL | {"sasl.jaas.config": f'{SCRAM} password="{SECRET}"'},
        "sasl.jaas.config: .*semicolon",
    ),
    "a variable that is not set": (
        SASL_SSL | {"sasl.password": f"${{env:NOT_SET_{SECRET[0]}}}"},
        "sasl.password=.*NOT_SET_g is not set",
    ),
    "no source of tokens": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url",
    ),
    "an endpoint without credentials": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
        },
        "needs sasl.oauthbearer.client.credentials.client.id",
    ),
    "a store of another kind": (
        {"security.protocol": "SSL", "ssl.truststore.type": "BCFKS"},
        "ssl.truststore.type is one of JKS, PKCS12, PEM, not 'BCFKS'",
    ),
    "a key without its certificate": (
        {"security.protocol": "SSL", "ssl.key.location": "/key"},
        "ssl.key.location needs ssl.certificate.location",
    ),
    "a zero byte in a password for PLAIN": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": f"{SECRET}\0",
        },
        "PLAIN cannot send a zero byte",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_refused_in_one_line_without_secrets(name: str) -> None:
    settings, why = WRONG[name]
    with pytest.raises(SecurityInvalid, match=why) as caught:
        ClientSecurity.of(settings, origin="client.properties")
    message = str(caught.value)
    assert message.startswith("client.properties: ")
    assert SECRET not in message
    assert "\n" not in message


def test_a_file_that_is_no_properties_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecurityInvalid, match=r"cannot read .*absent: No such file"):
        ClientSecurity.read(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SecurityInvalid, match="binary is no properties file: it is not UTF-8"):
        ClientSecurity.read(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"a" * (1024 * 1024 + 1))
    with pytest.raises(SecurityInvalid, match="more than 1 MiB"):
        ClientSecurity.read(tmp_path / "large")


def test_settings_without_effect_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "acks": "all",
        "ssl.ca.lokation": "x",
    }
    with caplog.at_level(logging.WARNING, logger="zhumq.client"):
        assert ClientSecurity.of({**SASL_SSL, **given}) == ALICE
    assert [record.getMessage() for record in caplog.records] == [
        "security: without effect with security.protocol=SASL_SSL: acks, ssl.ca.lokation"
    ]


def test_a_forgotten_protocol_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="zhumq.client"):
        ClientSecurity.of({"sasl.mechanism": "PLAIN", "sasl.password": SECRET})
    (line,) = (record.getMessage() for record in caplog.records)
    assert "security.protocol=PLAINTEXT: sasl.mechanism, sasl.password" in line
    assert SECRET not in line


def test_no_secret_is_printed() -> None:
    security = ClientSecurity.of(
        {**SASL_SSL, "sasl.username": "a", "sasl.password": SECRET, "ssl.key.password": SECRET,
         "ssl.keystore.certificate.chain": "x", "ssl.keystore.key": SECRET}
    )  # fmt: skip
    assert SECRET not in f"{security!r} {security}"

"""TLS contexts are made from real files, and each thing that can be wrong with them is one line."""

import logging
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from tests.certificates import KEY_PASSWORD, STORE_PASSWORD, make_authority
from tls_support import Files, client_context

from zhumq.model.errors import SettingInvalid
from zhumq.net.tls_config import (
    TLS_1_2,
    TLS_1_2_SUITES,
    TLS_1_3_SUITES,
    ClientAuth,
    Store,
    StoreType,
    TlsConfig,
)
from zhumq.net.tls_context import CHECK_SECONDS, TlsSource
from zhumq.net.tls_principal import principal_of
from zhumq.security.principal_mapping import PrincipalMapping

KEY_STORE = "ssl.keystore.location"
TRUST_STORE = "ssl.truststore.location"
ALICE = "User:O=Acme,CN=alice"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def key_store(path: Path, **fields: object) -> Store:
    return Store(setting=KEY_STORE, location=str(path), **fields)  # type: ignore[arg-type]


def trust_store(path: Path, **fields: object) -> Store:
    return Store(setting=TRUST_STORE, location=str(path), **fields)  # type: ignore[arg-type]


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory. Raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        waiting = 0
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return sides[0], sides[1]
    raise AssertionError("the handshake does not end")


def test_a_context_speaks_1_2_and_1_3_without_renegotiation_and_compression(files: Files) -> None:
    context = TlsSource("L", files.config()).current().server
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    for cipher in context.get_ciphers():
        assert "DHE" in cipher["name"] or cipher["name"] in TLS_1_3_SUITES
        assert cipher["aead"]


def test_each_form_of_a_key_store_and_a_trust_store_gives_the_same_handshake(files: Files) -> None:
    broker, authority = files.broker, files.authority
    key_stores = [
        (key_store(broker.combined_file), ""),
        (key_store(broker.combined_file, type=StoreType.PEM), ""),
        (key_store(broker.keystore_file, password=STORE_PASSWORD), ""),
        (
            key_store(broker.keystore_file, type=StoreType.PKCS12, password=STORE_PASSWORD),
            "",
        ),
        (
            Store(
                setting="ssl.keystore.certificate.chain",
                certificates=broker.certificate_file.read_text(),
                key=broker.encrypted_key_file.read_text(),
            ),
            KEY_PASSWORD,
        ),
    ]
    trust_stores = [
        trust_store(authority.certificate_file),
        trust_store(authority.truststore_file, password=STORE_PASSWORD),
        Store(
            setting="ssl.truststore.certificates",
            certificates=authority.certificate_file.read_text(),
        ),
    ]
    for store, key_password in key_stores:
        for trusted in trust_stores:
            config = TlsConfig(
                key_store=store,
                key_password=key_password,
                trust_store=trusted,
                client_auth=ClientAuth.REQUIRED,
            )
            contexts = TlsSource("L", config).current()
            assert contexts.client is not None
            _, server = shake_hands(contexts.server, contexts.client)
            assert server.getpeercert(binary_form=True)
            assert contexts.material.leaf.subject == "CN=broker"


def test_named_suites_and_versions_are_the_only_ones(files: Files) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    contexts = TlsSource("L", files.config(cipher_suites=(suite,))).current()
    assert contexts.client is not None
    client, _ = shake_hands(contexts.server, contexts.client)
    assert client.version() == TLS_1_2
    assert client.cipher() is not None
    assert client.cipher()[0] == TLS_1_2_SUITES[suite]  # type: ignore[index]
    only_1_2 = TlsSource("L", files.config(protocols=(TLS_1_2,))).current()
    assert only_1_2.client is not None
    client, _ = shake_hands(only_1_2.server, only_1_2.client)
    assert client.version() == TLS_1_2


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_has_its_principal_and_ends_with_its_context(
    files: Files, version: ssl.TLSVersion
) -> None:
    config = files.config(client_auth=ClientAuth.REQUIRED)
    server, after_a_reload = (TlsSource("L", config).current().server for _ in range(2))
    context = client_context(files.authority, files.client)
    context.maximum_version = version
    client, first = shake_hands(server, context)
    first.write(b"x")
    client.read(1)  # with TLS 1.3 the session comes before the first bytes
    assert client.session is not None
    _, resumed = shake_hands(server, context, client.session)
    assert resumed.session_reused
    mapping = PrincipalMapping()
    assert principal_of(resumed, mapping) == principal_of(first, mapping) == ALICE
    # What is no longer trusted after a change of the files is not let in by an old session.
    _, fresh = shake_hands(after_a_reload, context, client.session)
    assert not fresh.session_reused


def test_host_names_are_checked_unless_that_is_turned_off(files: Files) -> None:
    other = files.authority.issue("other-host", hosts=("elsewhere.example",))
    config = files.config(key_store=key_store(other.combined_file))
    contexts = TlsSource("L", config).current()
    assert contexts.client is not None
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        shake_hands(contexts.server, contexts.client)
    lax = TlsSource("L", replace(config, checks_host_names=False)).current()
    assert lax.client is not None
    shake_hands(lax.server, lax.client)


def test_what_is_wrong_with_the_files_is_one_clear_line(files: Files, tmp_path: Path) -> None:
    authority, broker = files.authority, files.broker
    expired = authority.issue("expired", valid_from_days=-9, valid_days=-2)
    early = authority.issue("early", valid_from_days=2, valid_days=9)
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(expired.key_file.read_bytes() + broker.certificate_file.read_bytes())
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        broker.encrypted_key_file.read_bytes() + broker.certificate_file.read_bytes()
    )
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"\n")
    jks = tmp_path / "old.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    no_key = broker.certificate_file
    p12 = broker.keystore_file
    nothing = Store(setting=TRUST_STORE)
    required = ClientAuth.REQUIRED
    cases: list[tuple[dict[str, object], str]] = [
        ({"key_store": key_store(expired.combined_file)}, "CN=expired in .* expired on 20"),
        ({"key_store": key_store(early.combined_file)}, "CN=early in .* is not valid before 20"),
        ({"key_store": key_store(mixed)}, "the key does not belong to the certificate"),
        ({"key_store": key_store(tmp_path / "none")}, "cannot read .*none: No such file"),
        ({"key_store": key_store(tmp_path)}, "cannot read .*: Is a directory"),
        ({"key_store": key_store(encrypted)}, "encrypted key: set ssl.key.password"),
        (
            {"key_store": key_store(encrypted), "key_password": "mistaken"},
            "is ssl.key.password right",
        ),
        ({"key_store": key_store(empty)}, "empty.pem is empty"),
        ({"key_store": key_store(jks)}, "keytool -importkeystore"),
        ({"key_store": key_store(no_key)}, "has no private key in PEM"),
        ({"key_store": key_store(broker.key_file)}, "has no certificate in PEM"),
        ({"key_store": key_store(p12)}, "opens with the password in ssl.keystore.password"),
        ({"key_store": key_store(p12, password="mistaken")}, "opens with the password"),
        ({"key_store": key_store(p12, type=StoreType.PEM)}, "not PEM, and its type is set to PEM"),
        ({"key_store": key_store(broker.combined_file, password="x")}, "use ssl.key.password"),
        (
            {"key_store": key_store(authority.truststore_file, password=STORE_PASSWORD)},
            "no private",
        ),
        ({"trust_store": trust_store(broker.key_file)}, "has no certificate to trust"),
        ({"trust_store": trust_store(garbage)}, "garbage.pem: "),
        ({"trust_store": nothing, "client_auth": required}, "set ssl.truststore.location"),
    ]
    for changes, line in cases:
        with pytest.raises(SettingInvalid, match=f"^TLS of listener L: .*{line}") as refused:
            TlsSource("L", files.config(**changes))
        assert "\n" not in str(refused.value)
        assert "mistaken" not in str(refused.value)


def test_replaced_files_are_used_and_broken_ones_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = make_authority(tmp_path / "ca")
    first, second = authority.issue("first"), authority.issue("second")
    file = tmp_path / "broker.pem"
    file.write_bytes(first.combined_file.read_bytes())
    seconds = [0.0]
    config = TlsConfig(
        key_store=key_store(file), trust_store=trust_store(authority.certificate_file)
    )
    source = TlsSource("L", config, clock=lambda: seconds[0])

    def replace_with(content: bytes) -> None:
        fresh = tmp_path / "fresh.pem"
        fresh.write_bytes(content)
        fresh.replace(file)

    before = source.current()
    replace_with(second.combined_file.read_bytes())
    assert source.current() is before, "looked at within a second"
    seconds[0] += CHECK_SECONDS
    assert source.current().material.leaf.subject == "CN=second"
    caplog.set_level(logging.ERROR)
    replace_with(b"broken")
    for _ in range(3):
        seconds[0] += CHECK_SECONDS
        assert source.current().material.leaf.subject == "CN=second"
    (record,) = caplog.records
    assert "the earlier ones stay" in record.getMessage()
    file.unlink()
    seconds[0] += CHECK_SECONDS
    assert source.current().material.leaf.subject == "CN=second"
    replace_with(first.combined_file.read_bytes())
    seconds[0] += CHECK_SECONDS
    assert source.current().material.leaf.subject == "CN=first"

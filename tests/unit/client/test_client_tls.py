"""TLS of a client: certificates from PEM and PKCS#12, and one line for each way in which it can fail."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.certificates import KEY_PASSWORD, STORE_PASSWORD, Authority, make_authority

from zhumq.client.dial import HandshakeEnded, dial
from zhumq.client.errors import SecurityFailed, SecurityInvalid
from zhumq.client.probe import NotKafka, probe
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.client.tls import tls_context, tls_material
from zhumq.client.wire import Connection
from zhumq.model.address import Address

SECONDS_MAX = 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = make_authority(tmp_path_factory.mktemp("certificates"))
    made.issue("broker")
    made.issue("alice", hosts=())
    return made


def settings(authority: Authority, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(authority.certificate_file),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@contextlib.contextmanager
def server(
    authority: Authority, *, name: str = "broker", wants_certificate: bool = False
) -> Iterator[tuple[Address, list[str]]]:
    """Accepts TLS connections, sends "hi" on each, and collects the names of the clients' certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.folder / f"{name}.pem")
    context.load_verify_locations(authority.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED if wants_certificate else ssl.CERT_NONE
    names: list[str] = []

    def greet(stream: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(stream, server_side=True) as secured,
        ):
            peer = secured.getpeercert() or {}
            names.extend(value for part in peer.get("subject", ()) for _, value in part)
            secured.sendall(b"hi")

    with accepting(greet) as address:
        yield address, names


@contextlib.contextmanager
def accepting(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    stream, _ = listener.accept()
                    stream.settimeout(SECONDS_MAX)
                    with stream:
                        serve(stream)

        threading.Thread(target=accept, daemon=True).start()
        yield Address(*listener.getsockname()[:2])


def greeting(address: Address, given: dict[str, str]) -> bytes:
    context = tls_context(ClientSecurity.of(given))
    with dial([address], seconds=SECONDS_MAX, tls=context) as stream:
        return stream.recv(10)


def identities(authority: Authority) -> dict[str, dict[str, str]]:
    folder = authority.folder
    return {
        "PKCS#12": {
            "ssl.keystore.location": str(folder / "alice.p12"),
            "ssl.keystore.password": STORE_PASSWORD,
        },
        "one PEM file": {"ssl.keystore.location": str(folder / "alice.pem")},
        "two PEM files": {
            "ssl.certificate.location": str(folder / "alice.crt"),
            "ssl.key.location": str(folder / "alice.key"),
        },
        "an encrypted key": {
            "ssl.certificate.location": str(folder / "alice.crt"),
            "ssl.key.location": str(folder / "alice.encrypted.key"),
            "ssl.key.password": KEY_PASSWORD,
        },
        "text": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": (folder / "alice.crt").read_text(),
            "ssl.keystore.key": (folder / "alice.encrypted.key").read_text(),
            "ssl.key.password": KEY_PASSWORD,
        },
    }


@pytest.mark.parametrize(
    "kind", ["PKCS#12", "one PEM file", "two PEM files", "an encrypted key", "text"]
)
def test_a_client_shows_the_certificate_of_any_store(authority: Authority, kind: str) -> None:
    with server(authority, wants_certificate=True) as (address, names):
        assert greeting(address, settings(authority) | identities(authority)[kind]) == b"hi"
    assert names == ["alice"]


@pytest.mark.parametrize("kind", ["PEM", "PKCS#12", "text"])
def test_a_client_trusts_the_cas_of_any_store(authority: Authority, kind: str) -> None:
    stores = {
        "PEM": {"ssl.ca.location": str(authority.certificate_file)},
        "PKCS#12": {
            "ssl.truststore.location": str(authority.truststore_file),
            "ssl.truststore.password": STORE_PASSWORD,
        },
        "text": {"ssl.truststore.certificates": authority.certificate_file.read_text()},
    }
    with server(authority) as (address, _):
        assert greeting(address, {"security.protocol": "SSL"} | stores[kind]) == b"hi"


def test_a_ca_that_is_not_trusted_ends_the_handshake(authority: Authority, tmp_path: Path) -> None:
    other = make_authority(tmp_path)
    with (
        server(authority) as (address, _),
        pytest.raises(SecurityFailed, match=r"certificate is not trusted .*set ssl.truststore"),
    ):
        greeting(address, settings(other))


def test_an_expired_certificate_ends_the_handshake(authority: Authority) -> None:
    authority.issue("expired", valid_from_days=-9, valid_days=-1)
    with (
        server(authority, name="expired") as (address, _),
        pytest.raises(SecurityFailed, match="certificate has expired"),
    ):
        greeting(address, settings(authority))


def test_the_host_of_the_certificate_is_checked_unless_that_is_turned_off(
    authority: Authority,
) -> None:
    authority.issue("elsewhere", hosts=("elsewhere.example",))
    with server(authority, name="elsewhere") as (address, _):
        with pytest.raises(SecurityFailed, match=r"mismatch.*connect to a name of the certificate"):
            greeting(address, settings(authority))
        off = {"ssl.endpoint.identification.algorithm": ""}
        assert greeting(address, settings(authority) | off) == b"hi"


def test_a_tls_client_at_a_plain_port_gets_the_reason(authority: Authority) -> None:
    with (
        accepting(lambda stream: stream.sendall(b"\0\0\0\4abcd")) as address,
        pytest.raises(SecurityFailed, match=r"does not speak TLS: set security.protocol=PLAINTEXT"),
    ):
        greeting(address, settings(authority))
    with (
        accepting(lambda stream: None) as address,
        pytest.raises(HandshakeEnded, match=r"is security.protocol right for this port"),
    ):
        greeting(address, settings(authority))


def test_a_plain_client_at_a_tls_port_gets_the_reason(authority: Authority) -> None:
    with (
        server(authority) as (address, _),
        pytest.raises(SecurityFailed, match=r"set security.protocol=SSL or SASL_SSL"),
    ):
        probe(address, security=PLAINTEXT, seconds=SECONDS_MAX)


def test_the_alert_of_a_tls_port_is_recognized() -> None:
    def answer(stream: socket.socket) -> None:
        stream.recv(100)
        stream.sendall(b"\x15\x03\x03\0\2\2\x46")

    with (
        accepting(answer) as address,
        Connection.open([address], client_id="test", request_seconds=SECONDS_MAX) as connection,
        pytest.raises(SecurityFailed, match=r"set security.protocol=SSL or SASL_SSL"),
    ):
        connection.negotiate()


def test_a_client_of_a_port_that_is_neither_is_not_sent_to_tls() -> None:
    with (
        accepting(lambda stream: None) as address,
        pytest.raises(NotKafka, match="it is no Kafka broker"),
    ):
        probe(address, security=PLAINTEXT, seconds=SECONDS_MAX)


def test_a_client_without_a_certificate_gets_the_reason(
    authority: Authority,
) -> None:
    security = ClientSecurity.of(settings(authority))
    with (
        server(authority, wants_certificate=True) as (address, _),
        pytest.raises(SecurityFailed, match=r"wants a client certificate .*ssl.keystore.location"),
        Connection.open(
            [address], client_id="test", request_seconds=SECONDS_MAX, security=security
        ) as connection,
    ):
        connection.negotiate()


def test_wrong_stores_are_refused_in_one_line_without_secrets(
    authority: Authority, tmp_path: Path
) -> None:
    folder = authority.folder
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed rest")
    (tmp_path / "garbage").write_bytes(os.urandom(100))
    (tmp_path / "empty.pem").write_text("-----BEGIN NOTHING-----\n")
    wrong = {
        "cannot read .*absent: No such file": {"ssl.truststore.location": str(tmp_path / "absent")},
        "is a JKS store: convert it": {"ssl.truststore.location": str(tmp_path / "store.jks")},
        "neither PEM nor PKCS#12, or ssl.truststore.password is wrong": {
            "ssl.truststore.location": str(tmp_path / "garbage")
        },
        "ssl.keystore.password is wrong": {
            "ssl.keystore.location": str(folder / "alice.p12"),
            "ssl.keystore.password": "geheim",
        },
        "holds no certificate": {"ssl.truststore.location": str(tmp_path / "empty.pem")},
        "holds no key: add it": {"ssl.keystore.location": str(folder / "alice.crt")},
        "does not belong to its certificate": {
            "ssl.certificate.location": str(folder / "alice.crt"),
            "ssl.key.location": str(folder / "broker.key"),
        },
        "is ssl.key.password right": {
            "ssl.certificate.location": str(folder / "alice.crt"),
            "ssl.key.location": str(folder / "alice.encrypted.key"),
            "ssl.key.password": "geheim",
        },
    }
    for why, given in wrong.items():
        with pytest.raises(SecurityInvalid, match=why) as caught:
            tls_context(ClientSecurity.of(settings(authority) | given))
        assert "geheim" not in str(caught.value)


def test_an_encrypted_key_without_a_password_is_refused_without_a_question_at_the_terminal(
    authority: Authority,
) -> None:
    given = {
        "ssl.certificate.location": str(authority.folder / "alice.crt"),
        "ssl.key.location": str(authority.folder / "alice.encrypted.key"),
    }
    program = (
        "from zhumq.client.security import ClientSecurity; from zhumq.client.tls import tls_context;"
        f"tls_context(ClientSecurity.of({settings(authority) | given!r}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "is ssl.key.password right?" in ended.stderr


def test_a_replaced_certificate_is_taken_up(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "client.pem"
    store.write_bytes((authority.folder / "alice.pem").read_bytes())
    security = ClientSecurity.of(settings(authority) | {"ssl.keystore.location": str(store)})
    before = tls_material(security)
    assert tls_material(security) is before
    following = tmp_path / "next.pem"
    following.write_bytes((authority.folder / "broker.pem").read_bytes())
    following.rename(store)
    assert tls_material(security).identity != before.identity

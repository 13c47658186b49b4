"""Credentials of push connections: a real gRPC server over TLS sees the user, the token or the certificate."""

import base64
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import KEY_PASSWORD, STORE_PASSWORD, Authority, make_authority

from zhumq.client.errors import AuthenticationFailed, SecurityFailed, SecurityInvalid
from zhumq.client.security import ClientSecurity

grpc = pytest.importorskip("grpc")

from zhumq.client.link import refusal_of  # noqa: E402 (needs grpc)
from zhumq.client.push_credentials import channel_credentials  # noqa: E402

METHOD = "/test/Who"
SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = make_authority(tmp_path_factory.mktemp("push"))
    made.issue("broker")
    made.issue("alice", hosts=())
    return made


class Who(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers with the authorization header and the certificate's name of the caller."""

    def service(self, details: Any) -> Any:
        headers = dict(details.invocation_metadata)

        def answer(_: bytes, context: Any) -> bytes:
            header = headers.get("authorization", "")
            if header.endswith("!"):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such user")
            names = context.auth_context().get("x509_common_name", [])
            return b"|".join([header.encode(), *names])

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.contextmanager
def push_listener(authority: Authority, *, wants_certificate: bool = False) -> Iterator[str]:
    folder = authority.folder
    pair = ((folder / "broker.key").read_bytes(), (folder / "broker.crt").read_bytes())
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Who(),))
    port = server.add_secure_port(
        "127.0.0.1:0",
        grpc.ssl_server_credentials(
            [pair], authority.certificate_file.read_bytes(), wants_certificate
        ),
    )
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def ask(address: str, given: dict[str, str]) -> bytes:
    with grpc.secure_channel(address, channel_credentials(ClientSecurity.of(given))) as channel:
        answer: bytes = channel.unary_unary(METHOD)(b"", timeout=SECONDS_MAX)
        return answer


def secured(authority: Authority) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(authority.certificate_file),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "wönder:land",
    }


def test_a_user_and_a_password_are_sent_as_basic_credentials(authority: Authority) -> None:
    with push_listener(authority) as address:
        kind, _, text = ask(address, secured(authority)).partition(b" ")
    assert kind == b"Basic"
    assert base64.b64decode(text).decode() == "alice:wönder:land"


def test_a_token_is_sent_as_bearer_and_read_again_when_it_expires(
    authority: Authority, tmp_path: Path
) -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(authority.certificate_file),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
    }
    expired = base64.urlsafe_b64encode(b'{"exp": 1}').decode()
    credentials = channel_credentials(ClientSecurity.of(given))
    with (
        push_listener(authority) as address,
        grpc.secure_channel(address, credentials) as channel,
    ):
        for text in (f"a.{expired}.b", f"c.{expired}.d"):
            (tmp_path / "token").write_text(text)
            answer = channel.unary_unary(METHOD)(b"", timeout=SECONDS_MAX)
            assert answer == f"Bearer {text}".encode()


@pytest.mark.parametrize("kind", ["PKCS#12", "encrypted PEM"])
def test_a_client_certificate_is_shown(authority: Authority, kind: str) -> None:
    folder = authority.folder
    stores = {
        "PKCS#12": {
            "ssl.keystore.location": str(folder / "alice.p12"),
            "ssl.keystore.password": STORE_PASSWORD,
        },
        "encrypted PEM": {
            "ssl.certificate.location": str(folder / "alice.crt"),
            "ssl.key.location": str(folder / "alice.encrypted.key"),
            "ssl.key.password": KEY_PASSWORD,
        },
    }
    given = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate_file)}
    with push_listener(authority, wants_certificate=True) as address:
        assert ask(address, given | stores[kind]) == b"|alice"


def test_credentials_that_will_be_refused_again_end_the_connection(
    authority: Authority, tmp_path: Path
) -> None:
    other = make_authority(tmp_path)
    (tmp_path / "token").write_text("refused!")
    bearer = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.certificate_file),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
    }
    with push_listener(authority) as address:
        for given, kind, why in (
            (secured(other), SecurityFailed, "not trusted"),
            (bearer, AuthenticationFailed, "refused the client: no such user"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                ask(address, given)
            refusal = refusal_of(caught.value.code(), caught.value.details(), address)
            assert type(refusal) is kind
            assert why in str(refusal)


def test_plain_text_has_no_credentials() -> None:
    assert channel_credentials(ClientSecurity()) is None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "over TLS only"),
        ({"ssl.endpoint.identification.algorithm": ""}, "always checks the host"),
        ({"sasl.username": "al:ice"}, "a colon"),
    ],
)
def test_what_push_cannot_do_safely_is_refused(
    authority: Authority, more: dict[str, str], why: str
) -> None:
    with pytest.raises(SecurityInvalid, match=why):
        channel_credentials(ClientSecurity.of(secured(authority) | more))

"""Tokens of OAUTHBEARER: from a file and from an endpoint, and what each failure says."""

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import make_authority

from zhumq.client.errors import SecurityFailed
from zhumq.client.security import TokenSource
from zhumq.client.tokens import get_token
from zhumq.model.password import Password

SECRET = "geheim &+ 7"


def encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def jwt(**claims: Any) -> str:
    return f"{encoded({'alg': 'RS256'})}.{encoded(claims)}.c2lnbmF0dXJl"


class Endpoint(HTTPServer):
    """Answers every request with one answer, and keeps the requests."""

    def __init__(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = (status, content, headers)
        self.requests: list[tuple[dict[str, str], dict[str, list[str]]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((dict(self.headers), urllib.parse.parse_qs(body)))
        status, content, headers = self.server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def endpoint(
    content: bytes = b"", *, status: int = 200, headers: dict[str, str] | None = None
) -> Iterator[Endpoint]:
    with Endpoint(status, content, headers or {}) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def source(url: str, **more: str) -> TokenSource:
    return TokenSource(endpoint=url, client_id="me", client_secret=Password(SECRET), **more)


def test_an_endpoint_gives_a_token_for_the_clients_credentials() -> None:
    text = jwt(sub="alice", exp=4_000_000_000)
    with endpoint(json.dumps({"access_token": text, "token_type": "Bearer"}).encode()) as server:
        token = get_token(source(server.url, scope="kafka read"))
    assert (token.text.reveal(), token.subject, token.expires_at) == (text, "alice", 4_000_000_000)
    ((headers, form),) = server.requests
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    # RFC 6749, 2.3.1: form-encoded, then Basic.
    given = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert given == "me:geheim+%26%2B+7"


def test_an_endpoint_over_https_is_checked(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = authority.issue("issuer")
    answer = json.dumps({"access_token": jwt(sub="alice")}).encode()
    with endpoint(answer) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.combined_file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:")
        trusted = source(url, ca_location=str(authority.certificate_file))
        assert get_token(trusted).subject == "alice"
        with pytest.raises(SecurityFailed, match=r"cannot be reached: .*certificate verify failed"):
            get_token(source(url))


def test_a_file_gives_the_token_that_it_holds_now(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for name in ("alice", "bob"):
        file.write_text(f"{jwt(sub=name)}\n")
        assert get_token(TokenSource(file=str(file))).subject == name


def test_a_token_that_says_nothing_of_itself_is_passed_on(tmp_path: Path) -> None:
    for text in ("opaque", "a.b.c", f"a.{encoded({'exp': 'later', 'sub': 7})}.c"):
        (tmp_path / "token").write_text(text)
        token = get_token(TokenSource(file=str(tmp_path / "token")))
        assert (token.text.reveal(), token.subject) == (text, "")
        assert token.expires_at > time.time()


def test_an_unsecured_token_names_its_subject_and_expires() -> None:
    token = get_token(TokenSource(unsecured_subject="alice", unsecured_seconds=60))
    header, claims, signature = token.text.reveal().split(".")
    assert json.loads(base64.urlsafe_b64decode(f"{header}==")) == {"alg": "none"}
    assert signature == ""
    assert claims
    assert token.subject == "alice"
    assert 0 < token.expires_at - time.time() <= 60


def test_a_redirect_is_not_followed_with_the_clients_secret() -> None:
    with endpoint(b"{}") as other, endpoint(status=307, headers={"Location": other.url}) as server:
        with pytest.raises(SecurityFailed, match="answered 307"):
            get_token(source(server.url))
        assert other.requests == []


@pytest.mark.parametrize(
    ("status", "content", "why"),
    [
        (401, b"{}", "answered 401: check the client's id and secret"),
        (500, b"", "answered 500"),
        (200, b"<html>", "did not answer with JSON"),
        (200, b"[]", "answered without access_token"),
        (200, b'{"access_token": 7}', "answered without access_token"),
        (200, b'{"access_token": "a\\u0001b"}', "holds no token"),
        (200, b'{"access_token": ""}', "holds no token"),
    ],
)
def test_a_failed_endpoint_is_one_line_without_secrets(
    status: int, content: bytes, why: str
) -> None:
    with (
        endpoint(content, status=status) as server,
        pytest.raises(SecurityFailed, match=why) as caught,
    ):
        get_token(source(server.url))
    assert "geheim" not in str(caught.value)


def test_an_endpoint_that_is_not_there_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with endpoint() as server:
        url = server.url
    with pytest.raises(SecurityFailed, match="cannot be reached"):
        get_token(source(url))
    with pytest.raises(SecurityFailed, match=r"cannot read the token in .*absent: No such file"):
        get_token(TokenSource(file=str(tmp_path / "absent")))

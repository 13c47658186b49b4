"""Credentials of callers: of HTTP, and as settings of a client of the brokers."""

import base64
from pathlib import Path

import pytest

from zhumq.client.errors import SecurityInvalid
from zhumq.model.security_protocol import SecurityProtocol
from zhumq.web.credentials import WITHOUT_SASL, BrokerSecurity
from zhumq.web.login_sessions import AGE_SECONDS_MAX, IDLE_SECONDS_MAX, LoginSessions
from zhumq.web.problems import RequestRefused

SECURED = BrokerSecurity(mechanism="SCRAM-SHA-512")


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def test_basic_is_the_user_of_the_mechanism() -> None:
    found = SECURED.of_header(basic("alice:won:derland"))
    assert found.protocol is SecurityProtocol.SASL_PLAINTEXT
    assert (found.mechanism, found.username) == ("SCRAM-SHA-512", "alice")
    assert found.password.reveal() == "won:derland"


def test_bearer_is_a_token_of_oauthbearer() -> None:
    found = SECURED.of_header("bearer a.b.c")
    assert found.mechanism == "OAUTHBEARER"
    assert found.tokens is not None
    assert found.tokens.text.reveal() == "a.b.c"
    assert "a.b.c" not in repr(found)


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic ?", "Basic /w==", basic("alice"), basic(":x"), basic("alice:"), basic("al\0ice:x"), "Bearer",
     "Digest a", "Bearer " + "x" * 9_000],
)  # fmt: skip
def test_other_headers_are_refused_with_what_is_accepted(header: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        SECURED.of_header(header)
    assert "Basic" in caught.value.headers["WWW-Authenticate"]


def test_brokers_that_take_tokens_only_take_no_password() -> None:
    with pytest.raises(RequestRefused, match="tokens only"):
        BrokerSecurity(mechanism="OAUTHBEARER").of_header(basic("alice:x"))


def test_a_file_without_credentials_is_read(tmp_path: Path) -> None:
    file = tmp_path / "web.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=scram-sha-512\n")
    found = BrokerSecurity.read(file)
    assert found.needs_login
    assert found.of_user("alice", "x").protocol is SecurityProtocol.SASL_SSL
    file.write_text("security.protocol=PLAINTEXT\n")
    assert BrokerSecurity.read(file) == WITHOUT_SASL


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=root", "every caller"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x", "every caller"),
        ("security.protocol=SSL\nssl.keystore.location=a.pem", "every caller"),
        ("security.protocol=SASL_SSL", "sasl.mechanism is one of"),
        ("security.protocol=HTTPS", "security.protocol is one of"),
    ],
)  # fmt: skip
def test_a_file_that_would_lend_its_rights_to_callers_is_refused(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "web.properties"
    file.write_text(text)
    with pytest.raises(SecurityInvalid, match=reason):
        BrokerSecurity.read(file)


def test_a_login_ends_when_it_is_not_used_and_after_a_day_at_most() -> None:
    sessions = LoginSessions()
    security = SECURED.of_user("alice", "x")
    session_id, session = sessions.begin("alice", security, 0.0)
    assert sessions.find(session_id, IDLE_SECONDS_MAX) == session
    assert sessions.find(session_id, IDLE_SECONDS_MAX * 2 + 1) is None
    session_id, _ = sessions.begin("alice", security, 0.0)
    now = 0.0
    while sessions.find(session_id, now) is not None:
        now += IDLE_SECONDS_MAX
    assert now > AGE_SECONDS_MAX


def test_logins_are_bounded_and_the_one_used_longest_ago_goes() -> None:
    sessions = LoginSessions(sessions_max=2)
    security = SECURED.of_user("alice", "x")
    first, second = (sessions.begin("alice", security, 0.0)[0] for _ in range(2))
    assert sessions.find(first, 1.0) is not None
    third, _ = sessions.begin("alice", security, 2.0)
    found = [sessions.find(each, 3.0) is not None for each in (first, second, third)]
    assert found == [True, False, True]
    sessions.end(third)
    assert sessions.find(third, 3.0) is None
    assert sessions.find("", 3.0) is None


def test_only_the_right_token_is_that_of_the_login() -> None:
    _, session = LoginSessions().begin("alice", SECURED.of_user("alice", "x"), 0.0)
    assert session.has_token(session.csrf_token)
    assert not session.has_token("")
    assert not session.has_token("ä")

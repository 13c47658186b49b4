"""What a client may send before it has authenticated, and what closes its connection."""

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest
from sasl_support import SCRAM, sasl_broker
from tests.sasl_client import PASSWORD, USER, SaslClient, ScramLogin

from zhumq.broker import authentication
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import APIS, ApiKey, RequestHeader, encode_request
from zhumq.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from zhumq.protocol.messages.sasl import SaslAuthenticateRequest
from zhumq.testing.broker import RunningBroker, broker

BEFORE = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sasl_broker() as started:
        yield started


@pytest.fixture
def client(running: RunningBroker) -> Iterator[SaslClient]:
    with SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as opened:
        yield opened


def any_request(key: ApiKey, version: int) -> bytes:
    header = RequestHeader(api_key=key, api_version=version, correlation_id=1, client_id="any")
    return encode_request(header, APIS[key].request())


@pytest.mark.parametrize(
    "key", [key for key in ApiKey if key not in BEFORE], ids=lambda key: key.name
)
def test_every_other_request_before_authentication_closes_the_connection(
    running: RunningBroker, key: ApiKey
) -> None:
    for version in (APIS[key].min_version, APIS[key].max_version):
        with SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as client:
            client.send_bytes(any_request(key, version))
            assert client.is_closed()


@pytest.mark.parametrize(
    "key", [key for key in ApiKey if key != ApiKey.SASL_AUTHENTICATE], ids=lambda key: key.name
)
def test_every_request_but_the_next_step_closes_the_connection_during_an_exchange(
    client: SaslClient, key: ApiKey
) -> None:
    assert client.handshake("SCRAM-SHA-256").error_code == 0
    client.send_bytes(any_request(key, APIS[key].max_version))
    assert client.is_closed()


@pytest.mark.parametrize("key", [-1, 4, 5, 6, 7, 1_000, 32_767])
def test_a_request_of_an_api_that_does_not_exist_closes_the_connection(
    client: SaslClient, key: int
) -> None:
    client.send_bytes(struct.pack(">ihhih", 10, key, 0, 1, -1))
    assert client.is_closed()


def test_the_versions_of_the_apis_may_be_asked_for_in_any_version(client: SaslClient) -> None:
    assert client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
    client.send_bytes(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, 7, -1))
    answer = client.receive_frame()
    assert struct.unpack_from(">ih", answer) == (7, ErrorCode.UNSUPPORTED_VERSION)
    client.log_in()
    client.use()


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_a_client_is_served_after_it_has_authenticated(client: SaslClient, mechanism: str) -> None:
    answer = client.log_in(mechanism)
    assert answer.error_code == 0
    assert answer.session_lifetime_ms == 0
    client.use()


def test_a_handshake_of_version_0_is_followed_by_framed_tokens(client: SaslClient) -> None:
    assert client.handshake("PLAIN", version=0).error_code == 0
    assert client.send_token(f"\0{USER}\0{PASSWORD}".encode(), version=0).error_code == 0
    client.use()


def test_a_token_without_a_request_around_it_closes_the_connection(client: SaslClient) -> None:
    client.handshake("PLAIN", version=0)
    token = f"\0{USER}\0{PASSWORD}".encode()
    client.send_bytes(struct.pack(">i", len(token)) + token)
    assert client.is_closed()


def test_a_token_without_a_handshake_closes_the_connection(client: SaslClient) -> None:
    client.send_bytes(any_request(ApiKey.SASL_AUTHENTICATE, 2))
    assert client.is_closed()


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", "plain", "", "SCRAM-SHA-1"])
def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(
    client: SaslClient, mechanism: str
) -> None:
    answer = client.handshake(mechanism)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", *SCRAM]
    assert client.is_closed()


def test_an_authenticated_client_without_a_session_lifetime_cannot_authenticate_again(
    client: SaslClient,
) -> None:
    client.log_in()
    assert client.handshake("SCRAM-SHA-512").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.send_token(b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
    client.use()


def test_a_listener_without_sasl_refuses_it_and_goes_on() -> None:
    with broker() as running, SaslClient(running.bootstrap) as client:
        answer = client.handshake("PLAIN")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert client.send_token(b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
        client.use()


def test_a_frame_above_the_limit_closes_the_connection_before_it_is_read(
    client: SaslClient,
) -> None:
    client.send_bytes(struct.pack(">i", (64 << 10) + 1))
    assert client.is_closed()


def test_a_frame_at_the_limit_is_read(client: SaslClient) -> None:
    client.handshake("PLAIN")
    request = any_request(ApiKey.SASL_AUTHENTICATE, 0)[4:-4]
    size = (64 << 10) - len(request) - 4
    token = b"\0" + b"u" * (size - 3) + b"\0p"
    frame = request + struct.pack(">i", len(token)) + token
    client.send_bytes(struct.pack(">i", len(frame)) + frame)
    answer = client.receive_frame()
    assert struct.unpack_from(">ih", answer) == (1, ErrorCode.SASL_AUTHENTICATION_FAILED)


def test_an_authenticated_client_may_send_large_requests(client: SaslClient) -> None:
    client.log_in()
    request = any_request(ApiKey.API_VERSIONS, 0)[4:]
    client.send_bytes(struct.pack(">i", 1 << 20) + request.ljust(1 << 20, b"\0"))
    client.receive_frame()
    client.use()


def test_requests_behind_a_password_that_is_being_checked_close_the_connection(
    client: SaslClient,
) -> None:
    client.handshake("PLAIN")
    header = RequestHeader(
        api_key=ApiKey.METADATA, api_version=9, correlation_id=9, client_id="hasty"
    )
    hasty = encode_request(header, MetadataRequest(topics=[]))
    token = any_request(ApiKey.SASL_AUTHENTICATE, 0)[4:-4] + struct.pack(">i", 4) + b"\0a\0b"
    client.send_bytes(struct.pack(">i", len(token)) + token + hasty)
    assert client.is_closed()


def test_a_client_that_does_not_authenticate_in_time_is_disconnected() -> None:
    with (
        sasl_broker(sasl__authentication__timeout__ms="300") as running,
        SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as slow,
        SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as honest,
    ):
        honest.log_in()
        slow.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0)
        slow.handshake("SCRAM-SHA-256")
        assert slow.is_closed()
        honest.use()


def test_a_client_that_hangs_up_during_its_check_leaves_nothing_behind(
    running: RunningBroker,
) -> None:
    for _ in range(20):
        with SaslClient(running.bootstrap) as client:
            client.handshake("PLAIN")
            client.send_bytes(any_request(ApiKey.SASL_AUTHENTICATE, 2))
            client.send_bytes(b"\0")
    with SaslClient(running.bootstrap) as client:
        client.log_in("PLAIN")
        client.use()


def test_a_failed_authentication_is_answered_and_then_closed(client: SaslClient) -> None:
    answer = client.log_in(password="wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_nothing_is_served_between_a_failure_and_the_end_of_the_connection() -> None:
    with (
        sasl_broker(connection__failed__authentication__delay__ms="5000") as running,
        SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as client,
    ):
        client.handshake("SCRAM-SHA-512")
        scram = ScramLogin("SCRAM-SHA-512", USER, "wrong")
        challenge = client.send_token(scram.first)
        final = SaslAuthenticateRequest(auth_bytes=scram.final(bytes(challenge.auth_bytes)))
        client.send(ApiKey.SASL_AUTHENTICATE, final, 2)
        client.send(ApiKey.METADATA, MetadataRequest(topics=[]), 9)
        assert client.is_closed()


def test_a_flood_of_garbage_does_not_disturb_an_authenticated_client(
    running: RunningBroker,
) -> None:
    host, _, port = running.bootstrap.rpartition(":")
    with SaslClient(running.bootstrap) as honest:
        honest.log_in()
        for garbage in (b"\x00", b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"):
            with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as stream:
                stream.sendall(garbage)
            honest.use()


def test_the_answers_to_failures_wait_in_bounded_number_and_hold_up_no_other_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authentication, "DELAYED_FAILURES_MAX", 2)
    with (
        sasl_broker(connection__failed__authentication__delay__ms="60000") as running,
        contextlib.ExitStack() as opened,
    ):

        def send_wrong_proof() -> SaslClient:
            client = opened.enter_context(SaslClient(running.bootstrap, seconds_max=SECONDS_MAX))
            client.handshake("SCRAM-SHA-512")
            scram = ScramLogin("SCRAM-SHA-512", USER, "wrong")
            challenge = bytes(client.send_token(scram.first).auth_bytes)
            final = SaslAuthenticateRequest(auth_bytes=scram.final(challenge))
            client.send(ApiKey.SASL_AUTHENTICATE, final, 2)
            return client

        waiting = [send_wrong_proof() for _ in range(2)]
        assert send_wrong_proof().is_closed()
        for mechanism in ("PLAIN", *SCRAM):
            with SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as honest:
                honest.log_in(mechanism)
                honest.use()
        for client in waiting:
            with pytest.raises(TimeoutError):
                client.wait(0.1)

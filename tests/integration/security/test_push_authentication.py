"""Push calls on a listener with SASL: a user or a token in the metadata of each call, or no answer."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from sasl_support import Issuer, sasl_broker
from tests.certificates import make_authority
from tests.sasl_client import PASSWORD, USER

from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 20.0
METHODS = {
    "Leaders": (pb.LeadersRequest, pb.LeadersResponse),
    "ListSessions": (pb.ListSessionsRequest, pb.ListSessionsResponse),
    "ResumeSession": (pb.ResumeSessionRequest, pb.ResumeSessionResponse),
    "ListGroups": (pb.ListGroupsRequest, pb.ListGroupsResponse),
    "Release": (pb.ReleaseRequest, pb.ReleaseResponse),
    "ExplainRetention": (pb.ExplainRetentionRequest, pb.ExplainRetentionResponse),
}


@pytest.fixture(scope="module")
def running(issuer: Issuer) -> Iterator[RunningBroker]:
    with sasl_broker(mechanisms="PLAIN,OAUTHBEARER", **issuer.settings) as started:
        yield started


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def call(
    channel: grpc.Channel, header: str | None, method: str = "ListSessions"
) -> grpc.StatusCode:
    request, response = METHODS[method]
    asked = channel.unary_unary(
        f"/zhumq.push.v1.Push/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    metadata = [] if header is None else [("authorization", header)]
    try:
        asked(request(), metadata=metadata, timeout=SECONDS_MAX)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def test_a_user_and_a_token_are_accepted_in_the_metadata_of_a_call(
    running: RunningBroker, issuer: Issuer
) -> None:
    with grpc.insecure_channel(running.push) as channel:
        assert call(channel, basic(USER, PASSWORD)) is grpc.StatusCode.OK
        assert call(channel, f"bearer {issuer.token()}") is grpc.StatusCode.OK


@pytest.mark.parametrize("method", METHODS)
def test_every_call_without_credentials_is_refused(running: RunningBroker, method: str) -> None:
    with grpc.insecure_channel(running.push) as channel:
        assert call(channel, None, method) is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    "header",
    [
        basic(USER, "wrong"),
        basic("unknown", PASSWORD),
        basic("", ""),
        basic(USER, ""),
        basic(f"{USER}\0x", PASSWORD),
        "Basic !!!",
        "Basic /w==",
        "Basic",
        "Bearer nonsense",
        "Digest x",
    ],
)
def test_wrong_credentials_are_refused(running: RunningBroker, header: str) -> None:
    with grpc.insecure_channel(running.push) as channel:
        assert call(channel, header) is grpc.StatusCode.UNAUTHENTICATED


def test_a_token_for_another_audience_is_refused(running: RunningBroker, issuer: Issuer) -> None:
    with grpc.insecure_channel(running.push) as channel:
        header = f"Bearer {issuer.token(aud='another')}"
        assert call(channel, header) is grpc.StatusCode.UNAUTHENTICATED


def test_a_stream_without_credentials_delivers_nothing(running: RunningBroker) -> None:
    with grpc.insecure_channel(running.push) as channel:
        stream = channel.stream_stream(
            "/zhumq.push.v1.Push/Stream",
            request_serializer=pb.ClientFrame.SerializeToString,
            response_deserializer=pb.ServerFrame.FromString,
        )
        frames: Any = stream(iter([pb.ClientFrame()]), timeout=SECONDS_MAX)
        with pytest.raises(grpc.RpcError) as refused:
            next(frames)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_push_is_as_secure_as_the_first_listener(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "ca")
    settings = {"ssl.keystore.location": str(authority.issue("broker").combined_file)}
    admin = (USER, PASSWORD)
    with broker(listen="SASL_SSL://127.0.0.1:0", settings=settings, admin=admin) as running:
        credentials = grpc.ssl_channel_credentials(authority.certificate_file.read_bytes())
        options = [("grpc.ssl_target_name_override", "localhost")]
        with grpc.secure_channel(running.push, credentials, options) as channel:
            assert call(channel, basic(USER, PASSWORD)) is grpc.StatusCode.OK
            assert call(channel, None) is grpc.StatusCode.UNAUTHENTICATED

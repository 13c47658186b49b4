"""Every message in every advertised version encodes and decodes as kio does."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio_oracle import (
    INTEGERS,
    TEXT,
    assert_same_values,
    decoded,
    encoded,
    kio_type,
    messages_of,
)

from zhumq.protocol.api import (
    APIS,
    OWN_KEY_MIN,
    ApiKey,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from zhumq.protocol.compiler import decode_message, encoder
from zhumq.protocol.messages import coordinator_records
from zhumq.protocol.schema import Message

EXAMPLES_PER_VERSION = 8

DETERMINISTIC = settings(
    derandomize=True,
    database=None,
    max_examples=EXAMPLES_PER_VERSION,
    suppress_health_check=[HealthCheck.too_slow],
)

CASES = [
    (cls, cls.__name__.removesuffix(kind), kind.lower(), version)
    for spec in APIS.values()
    if spec.key < OWN_KEY_MIN
    for cls, kind in ((spec.request, "Request"), (spec.response, "Response"))
    for version in range(spec.min_version, spec.max_version + 1)
] + [
    (cls, cls.__name__, "data", version)
    for cls in (
        coordinator_records.ConsumerProtocolSubscription,
        coordinator_records.ConsumerProtocolAssignment,
    )
    for version in range(4)
]


@pytest.mark.parametrize(
    ("cls", "api_name", "kind", "version"),
    CASES,
    ids=[f"{cls.__name__}-{version}" for cls, _, _, version in CASES],
)
def test_every_message_of_every_version_reads_and_writes_as_kio_does(
    cls: type[Message], api_name: str, kind: str, version: int
) -> None:
    kio_class = kio_type(api_name, version, kind, cls.__name__)

    @DETERMINISTIC
    @given(st.data())
    def round_trip(data: st.DataObject) -> None:
        theirs = data.draw(messages_of(kio_class))
        their_bytes = encoded(theirs)
        ours = decode_message(cls, version, their_bytes, 0)
        assert_same_values(ours, theirs)
        parts: list[bytes] = []
        encoder(cls, version)(ours, parts)
        our_bytes = b"".join(parts)
        assert our_bytes == their_bytes
        assert decoded(kio_class, our_bytes) == theirs
        if kind == "request":
            assert_same_request_frame(data, kio_class, version, ours, their_bytes)
        elif kind == "response":
            assert_same_response_frame(data, kio_class, version, ours, their_bytes)

    round_trip()


def assert_same_request_frame(
    data: st.DataObject, kio_class: type, version: int, body: Message, their_body: bytes
) -> None:
    """kio's class names its header, so this also checks the header version."""
    header = RequestHeader(
        ApiKey(kio_class.__api_key__),
        version,
        data.draw(INTEGERS["int32"]),
        data.draw(st.none() | TEXT),
    )
    their_header = kio_class.__header_schema__(
        request_api_key=header.api_key,
        request_api_version=header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    frame = encoded(their_header) + their_body
    assert decode_request(frame) == (header, body)
    assert encode_request(header, body) == len(frame).to_bytes(4, "big") + frame


def assert_same_response_frame(
    data: st.DataObject, kio_class: type, version: int, body: Message, their_body: bytes
) -> None:
    header = RequestHeader(
        ApiKey(kio_class.__api_key__), version, data.draw(INTEGERS["int32"]), None
    )
    their_header = kio_class.__header_schema__(correlation_id=header.correlation_id)
    frame = encoded(their_header) + their_body
    assert decode_response(header.api_key, version, frame) == (header.correlation_id, body)
    assert b"".join(encode_response(header, body)) == len(frame).to_bytes(4, "big") + frame

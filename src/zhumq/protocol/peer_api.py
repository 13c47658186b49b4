"""Framing of requests between brokers: a header of their own, and API keys that clients do not use."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.api import Part
from zhumq.protocol.compiler import decode_message, encoder
from zhumq.protocol.fetch_codec import join_parts
from zhumq.protocol.primitives import INT32
from zhumq.protocol.schema import Message

# The version of these messages. Both sides of a connection need the same one.
PEER_PROTOCOL_VERSION = 2
# Above all of Kafka's keys, so that a frame sent to the wrong listener is recognised.
PEER_KEY_MIN = 1_000
REFUSAL_BYTES_MAX = 1_000

# request:  | api key i16 | correlation id i32 | message |
# answer:   | correlation id i32 | error code i16 | message, or the reason of the error as UTF-8 |
_REQUEST_HEAD = struct.Struct(">hi")
_ANSWER_HEAD = struct.Struct(">ih")
_SIZED_ANSWER_HEAD = struct.Struct(">iih")

Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)


@dataclass(frozen=True, slots=True)
class PeerApi(Generic[Asked, Answered]):
    """A request of one broker to another, and its answer."""

    request: type[Asked]
    response: type[Answered]

    @property
    def key(self) -> int:
        key = self.request.__declared__.api_key
        assert key is not None
        assert key >= PEER_KEY_MIN
        return key


class PeerRequest(NamedTuple):
    """A request whose message is not decoded yet."""

    key: int
    correlation_id: int
    frame: bytes


class PeerAnswer(NamedTuple):
    """An answer whose message is not decoded yet."""

    correlation_id: int
    error: ErrorCode
    frame: bytes


def encode_peer_request(api: PeerApi[Any, Any], correlation_id: int, message: Message) -> bytes:
    """A frame with its size."""
    parts: list[Any] = [_REQUEST_HEAD.pack(api.key, correlation_id)]
    encoder(api.request, PEER_PROTOCOL_VERSION)(message, parts)
    body = b"".join(parts)
    return INT32.pack(len(body)) + body


def decode_peer_request(frame: bytes) -> PeerRequest:
    """The header of a frame without its size. Raises MalformedFrame."""
    if len(frame) < _REQUEST_HEAD.size:
        raise MalformedFrame(f"{len(frame)} bytes are too few for a request between brokers")
    key, correlation_id = _REQUEST_HEAD.unpack_from(frame)
    if key < PEER_KEY_MIN:
        raise MalformedFrame(f"API key {key} is for clients, and this listener is for brokers")
    return PeerRequest(key, correlation_id, frame)


def read_peer_request(api: PeerApi[Asked, Any], request: PeerRequest) -> Asked:
    """The message itself. Raises MalformedFrame."""
    return decode_message(api.request, PEER_PROTOCOL_VERSION, request.frame, _REQUEST_HEAD.size)


def encode_peer_answer(
    api: PeerApi[Any, Any], correlation_id: int, message: Message
) -> Sequence[Part]:
    """Parts to send in order, starting with the size; file regions are unchanged."""
    parts: list[Any] = [b""]
    encoder(api.response, PEER_PROTOCOL_VERSION)(message, parts)
    size = sum(map(len, parts)) + _ANSWER_HEAD.size
    parts[0] = _SIZED_ANSWER_HEAD.pack(size, correlation_id, ErrorCode.NONE)
    join_parts(parts)
    return parts


def encode_peer_refusal(correlation_id: int, error: ErrorCode, reason: str) -> bytes:
    """An answer with an error code and the reason."""
    text = reason.encode()[:REFUSAL_BYTES_MAX]
    return _SIZED_ANSWER_HEAD.pack(_ANSWER_HEAD.size + len(text), correlation_id, error) + text


def decode_peer_answer(frame: bytes) -> PeerAnswer:
    """The header of a frame without its size. Raises MalformedFrame."""
    if len(frame) < _ANSWER_HEAD.size:
        raise MalformedFrame(f"{len(frame)} bytes are too few for an answer between brokers")
    correlation_id, code = _ANSWER_HEAD.unpack_from(frame)
    try:
        error = ErrorCode(code)
    except ValueError:
        raise MalformedFrame(f"there is no error code {code}") from None
    return PeerAnswer(correlation_id, error, frame)


def read_peer_answer(api: PeerApi[Any, Answered], answer: PeerAnswer) -> Answered:
    """The message itself. Raises MalformedFrame."""
    return decode_message(api.response, PEER_PROTOCOL_VERSION, answer.frame, _ANSWER_HEAD.size)


def refusal_text(answer: PeerAnswer) -> str:
    """The reason of a refusal."""
    return answer.frame[_ANSWER_HEAD.size :].decode(errors="replace")

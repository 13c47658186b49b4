"""The APIs with their keys, versions and headers: decodes requests, encodes responses."""

import struct
from collections.abc import Sized
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from zhumq.model.errors import MalformedFrame, UnsupportedVersion
from zhumq.protocol import fetch_codec, produce_codec
from zhumq.protocol.compiler import Decode, Encode, decode_message, decoder, encoder
from zhumq.protocol.messages import (
    acls,
    audit_log,
    configs,
    consumer_groups,
    delays,
    fetch,
    groups,
    history,
    lookup,
    metadata,
    offsets,
    produce,
    producers,
    quotas,
    reassignments,
    sasl,
    share,
    topics,
    transactions,
    writing_producers,
)
from zhumq.protocol.primitives import BAD_BYTES, INT32, skip_tagged_fields
from zhumq.protocol.schema import Message

# Bytes-like, or the object from a `records` field unchanged: a file region that the shell sends.
Part = Sized


# Far above Kafka's keys, and below those that are not used between brokers. ApiVersions does not list them: other
# projects' clients were never tested with keys that Kafka does not have.
OWN_KEY_MIN: Final = 10_000


class ApiKey(IntEnum):
    """Kafka's number for each API, and ours for those that Kafka does not have."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    # Of our own: at or above OWN_KEY_MIN.
    LOOKUP = 20_000
    SCHEDULE = 20_001
    WRITING_PRODUCERS = 20_002
    HISTORY = 20_003
    AUDIT_LOG = 20_004


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec:
    """One API: its messages and the versions in which both can be read and written."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    flexible_from: int  # beyond max_version where no version is flexible

    @property
    def advertised_min_version(self) -> int:
        """The minimum in ApiVersions. As in Kafka 4, 0 for Produce: old librdkafka fails otherwise."""
        return 0 if self.key == ApiKey.PRODUCE else self.min_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


class Request(NamedTuple):
    """A decoded request: its header and its message."""

    header: RequestHeader
    body: Any


class UnsupportedApiVersion(UnsupportedVersion):
    """A known API in an unsupported version. ApiVersions is answered all the same (KIP-511)."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"{header.api_key.name} version {header.api_version} is not supported")
        self.header = header


def _specs() -> dict[ApiKey, ApiSpec]:
    families = (
        produce, fetch, offsets, metadata, groups, consumer_groups, topics, producers, configs,
        reassignments, share, acls, sasl, quotas, transactions, lookup, delays, writing_producers,
        history, audit_log,
    )  # fmt: skip
    requests: dict[int, type[Message]] = {}
    responses: dict[int, type[Message]] = {}
    for family in families:
        for name, value in vars(family).items():
            if isinstance(value, type) and issubclass(value, Message):
                key = value.__declared__.api_key
                if key is not None:
                    (requests if name.endswith("Request") else responses)[key] = value
    return {
        key: ApiSpec(
            key=key,
            request=requests[key],
            response=responses[key],
            min_version=requests[key].__declared__.versions.first,
            max_version=requests[key].__declared__.versions.last,
            flexible_from=_flexible_from(requests[key]),
        )
        for key in ApiKey
    }


def _flexible_from(request: type[Message]) -> int:
    declared = request.__declared__
    return min(
        version
        for version in range(declared.versions.first, declared.versions.last + 2)
        if version in declared.flexible or version > declared.versions.last
    )


APIS: dict[ApiKey, ApiSpec] = _specs()

produce_codec.install()
fetch_codec.install()

_HEADER = struct.Struct(
    ">hhih"
)  # | api key i16 | version i16 | correlation id i32 | client id length i16 |
_RESPONSE_HEADERS = (
    struct.Struct(">ii"),
    struct.Struct(">iix"),
)  # | size i32 | correlation id i32 | tags |


_new_tuple = tuple.__new__


class _RequestCodec(NamedTuple):
    key: ApiKey
    flexible: bool
    decode: Decode


class _ResponseCodec(NamedTuple):
    header: struct.Struct
    encode: Encode
    whole: bool  # joined into one part; a Fetch response has several, with file regions between


# Filled at the first request of each API and version.
_request_codecs: dict[tuple[int, int], _RequestCodec] = {}
_response_codecs: dict[tuple[int, int], _ResponseCodec] = {}


def decode_request(frame: bytes) -> Request:
    """A request from a frame without its size. Raises MalformedFrame or UnsupportedApiVersion."""
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
        position = 10
        if length < 0:
            client_id = None
        else:
            position += length
            if position > len(frame):
                raise MalformedFrame("the client id reaches past the end of the frame")
            client_id = frame[10:position].decode()
        codec = _request_codecs.get((api_key, version))
        if codec is None:
            codec = _request_codec(api_key, version, correlation_id, client_id)
        if codec.flexible:
            # No known client sends tagged fields in a header.
            position = skip_tagged_fields(frame, position) if frame[position] else position + 1
        body, _ = codec.decode(frame, position)
    except BAD_BYTES as error:
        raise MalformedFrame(f"malformed request: {error}") from error
    # Bytes after the end are ignored, as Kafka does: librdkafka 2.16 writes the length of an empty
    # topic list of a flexible Metadata request in four bytes instead of one.
    # Past NamedTuple's own constructors, which cost more than reading the header does.
    header = _new_tuple(RequestHeader, (codec.key, version, correlation_id, client_id))
    return _new_tuple(Request, (header, body))


def client_id_of(frame: bytes) -> str | None:
    """The client id in the header of a request, which need not be valid. Bytes that are no text are replaced."""
    if len(frame) < _HEADER.size:
        return None
    length = _HEADER.unpack_from(frame)[3]
    return None if length < 0 else frame[10 : 10 + length].decode(errors="replace")


def encode_response(header: RequestHeader, response: Message) -> list[Part]:
    """The response as parts to send in order, starting with the 4-byte size.

    An ApiVersions request in an unknown version is answered in version 0, which every client reads.
    """
    codec = _response_codecs.get((header.api_key, header.api_version))
    if codec is None:
        codec = _response_codec(header.api_key, header.api_version)
    parts: list[Any] = []
    codec.encode(response, parts)
    if codec.whole:
        body = b"".join(parts)
        return [codec.header.pack(len(body) + codec.header.size - 4, header.correlation_id) + body]
    size = sum(map(len, parts)) + codec.header.size - 4
    parts[0] = codec.header.pack(size, header.correlation_id) + parts[0]
    return parts


def encode_request(header: RequestHeader, body: Message) -> bytes:
    """The client's side: a whole frame with its size."""
    flexible = APIS[header.api_key].is_flexible(header.api_version)
    client_id = None if header.client_id is None else header.client_id.encode()
    parts: list[bytes] = [
        _HEADER.pack(
            header.api_key,
            header.api_version,
            header.correlation_id,
            -1 if client_id is None else len(client_id),
        ),
        client_id or b"",
        b"\x00" if flexible else b"",
    ]
    encoder(type(body), header.api_version)(body, parts)
    frame = b"".join(parts)
    return INT32.pack(len(frame)) + frame


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """The client's side: the correlation id and the message of a frame without its size."""
    correlation_id, body = split_response(frame)
    return correlation_id, decode_response_body(api_key, version, body)


def split_response(frame: bytes) -> tuple[int, bytes]:
    """The correlation id of a frame without its size, and what follows it."""
    if len(frame) < INT32.size:
        raise MalformedFrame("a response without a correlation id")
    (correlation_id,) = INT32.unpack_from(frame)
    return correlation_id, frame[INT32.size :]


def decode_response_body(api_key: int, version: int, frame: bytes) -> Any:
    """The message of what follows the correlation id."""
    spec = APIS[ApiKey(api_key)]
    position = 0
    if spec.is_flexible(version) and spec.key != ApiKey.API_VERSIONS:
        try:
            position = skip_tagged_fields(frame, position)
        except IndexError as error:
            raise MalformedFrame("a response header without its end") from error
    return decode_message(spec.response, version, frame, position)


def _request_codec(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> _RequestCodec:
    try:
        spec = APIS[ApiKey(api_key)]
    except ValueError as error:
        raise MalformedFrame(f"there is no API with the key {api_key}") from error
    if not spec.min_version <= version <= spec.max_version:
        raise UnsupportedApiVersion(RequestHeader(spec.key, version, correlation_id, client_id))
    codec = _RequestCodec(spec.key, spec.is_flexible(version), decoder(spec.request, version))
    _request_codecs[api_key, version] = codec
    return codec


def _response_codec(api_key: ApiKey, version: int) -> _ResponseCodec:
    spec = APIS[api_key]
    if not spec.min_version <= version <= spec.max_version:
        if api_key != ApiKey.API_VERSIONS:
            raise ValueError(f"{api_key.name} has no version {version}")
        # Not kept: the version is any of 65,536.
        return _ResponseCodec(_RESPONSE_HEADERS[0], encoder(spec.response, 0), True)
    # KIP-511: the ApiVersions header never has tagged fields, since the client does not know yet who answers.
    flexible = spec.is_flexible(version) and api_key != ApiKey.API_VERSIONS
    codec = _ResponseCodec(
        _RESPONSE_HEADERS[flexible], encoder(spec.response, version), api_key != ApiKey.FETCH
    )
    _response_codecs[api_key, version] = codec
    return codec

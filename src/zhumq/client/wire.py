"""The one blocking connection to a broker: a request out, its response in. SASL belongs here."""

import socket
import struct
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from zhumq.client.dial import dial
from zhumq.model.address import Address
from zhumq.model.errors import MalformedFrame, ZhumqError
from zhumq.protocol.api import APIS, ApiKey, RequestHeader, decode_response, encode_request
from zhumq.protocol.messages.metadata import ApiVersionsRequest

CONNECT_SECONDS_MAX: Final = 10.0
# Of one response; a broker sends a little over max_bytes.
FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
_SIZE: Final = struct.Struct(">i")
_NO_LIMITS: Final[Mapping[ApiKey, int]] = MappingProxyType({})


class BrokerUnusable(ZhumqError):
    """The server at this address speaks no version of the protocol that this client speaks."""


class Connection:
    """One blocking connection. Raises OSError when it is lost; it is of no use after that."""

    def __init__(self, stream: socket.socket, *, client_id: str) -> None:
        self._socket = stream
        self._client_id = client_id
        self._correlation_id = 0
        self._unanswered: deque[int] = deque()
        self._versions: dict[ApiKey, int] | None = None

    @classmethod
    def open(
        cls,
        addresses: Iterable[Address],
        *,
        client_id: str,
        connect_seconds: float = CONNECT_SECONDS_MAX,
        request_seconds: float,
    ) -> Self:
        """Connect to the first address that accepts; the last error if none does."""
        stream = dial(addresses, seconds=connect_seconds)
        stream.settimeout(request_seconds)
        return cls(stream, client_id=client_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def negotiate(self, versions_max: Mapping[ApiKey, int] = _NO_LIMITS) -> None:
        """From now on, use the newest version of each API that both sides speak.

        `versions_max` names APIs that are used up to an older version only. Without this call a request goes
        out in the newest version of this client, or in the one that the caller names.
        """
        offered = self.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).api_keys
        self._versions = {}
        for each in offered:
            if each.api_key not in APIS:
                continue
            key = ApiKey(each.api_key)
            newest = versions_max.get(key, APIS[key].max_version)
            version = min(newest, each.max_version)
            if version >= max(each.min_version, APIS[key].min_version):
                self._versions[key] = version

    def ask(self, key: ApiKey, body: Any, version: int | None = None) -> Any:
        """Send a request and return its response."""
        version = self._version(key) if version is None else version
        self.send(key, body, version)
        return self.receive(key, version)

    def send(self, key: ApiKey, body: Any, version: int | None = None) -> None:
        """Send a request. The broker answers requests in their order."""
        version = self._version(key) if version is None else version
        self._correlation_id += 1
        header = RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        self._unanswered.append(self._correlation_id)
        self.send_bytes(encode_request(header, body))

    def receive(self, key: ApiKey, version: int | None = None) -> Any:
        """The next response, which answers a request of this API and version."""
        version = self._version(key) if version is None else version
        correlation_id, response = decode_response(key, version, self.receive_frame())
        # Empty where the caller has sent bytes of its own making. A Produce request with acks=0 has no answer.
        if self._unanswered:
            if correlation_id not in self._unanswered:
                raise MalformedFrame(f"the broker answers request {correlation_id}: none is open")
            while self._unanswered.popleft() != correlation_id:
                pass
        return response

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise MalformedFrame(f"the broker announces a response of {size} bytes")
        return self._receive_exactly(size)

    def _version(self, key: ApiKey) -> int:
        if self._versions is None:
            return APIS[key].max_version
        version = self._versions.get(key)
        if version is None:
            raise BrokerUnusable(
                f"the broker speaks no version of {key.name} that this client knows"
            )
        return version

    def _receive_exactly(self, count: int) -> bytes:
        buffer = bytearray(count)
        view = memoryview(buffer)
        filled = 0
        while filled < count:
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            filled += received
        # Not copied into bytes: nothing else holds the buffer, and a fetched frame is large.
        return buffer  # type: ignore[return-value]

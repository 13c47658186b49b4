"""A connection to one broker: a request out, its response in, nothing per record."""

import socket
import struct
from typing import Any, Final, Self

from zhumq.model.errors import MalformedFrame, ZhumqError
from zhumq.protocol.api import APIS, ApiKey, RequestHeader, decode_response, encode_request
from zhumq.protocol.messages.metadata import ApiVersionsRequest

CONNECT_SECONDS_MAX: Final = 10.0
FRAME_BYTES_MAX: Final = (
    512 * 1024 * 1024
)  # of one response; a broker sends a little over max_bytes
# The newest versions that name topics by name, and the oldest ApiVersions that every broker takes.
VERSIONS_MAX: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.API_VERSIONS: 0,
}
_SIZE: Final = struct.Struct(">i")


class BrokerUnusable(ZhumqError):
    """What answers at this address does not speak a version of the protocol that we do."""


class Connection:
    """One blocking connection. Raises OSError when it is lost; it is of no use after that."""

    def __init__(self, stream: socket.socket, *, client_id: str) -> None:
        self._socket = stream
        self._client_id = client_id
        self._correlation_id = 0
        self._versions: dict[int, int] = {int(ApiKey.API_VERSIONS): 0}

    @classmethod
    def open(cls, address: tuple[str, int], *, client_id: str, request_seconds_max: float) -> Self:
        """Connect, and learn which versions the broker speaks."""
        stream = socket.create_connection(address, timeout=CONNECT_SECONDS_MAX)
        try:
            stream.settimeout(request_seconds_max)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = cls(stream, client_id=client_id)
            connection._negotiate(address)
        except BaseException:
            stream.close()
            raise
        return connection

    def ask(self, key: ApiKey, body: Any) -> Any:
        """Send a request and return its response."""
        self.send(key, body)
        return self.receive(key)

    def send(self, key: ApiKey, body: Any) -> None:
        """Send a request; its response is to be received before the next but one is sent."""
        self._correlation_id += 1
        header = RequestHeader(
            api_key=key,
            api_version=self._version(key),
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        self._socket.sendall(encode_request(header, body))

    def receive(self, key: ApiKey) -> Any:
        """The response to the request that was sent last."""
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise MalformedFrame(f"the broker announces a response of {size} bytes")
        correlation_id, message = decode_response(key, self._version(key), self._exactly(size))
        if correlation_id != self._correlation_id:
            raise MalformedFrame(
                f"the broker answers request {correlation_id}, not {self._correlation_id}"
            )
        return message

    def close(self) -> None:
        self._socket.close()

    def _negotiate(self, address: tuple[str, int]) -> None:
        offered = {
            each.api_key: (each.min_version, each.max_version)
            for each in self.ask(ApiKey.API_VERSIONS, ApiVersionsRequest()).api_keys
        }
        for key, newest in VERSIONS_MAX.items():
            low, high = offered.get(int(key), (0, -1))
            version = min(newest, high)
            if version >= max(low, APIS[key].min_version):
                self._versions[int(key)] = version
        if int(ApiKey.METADATA) not in self._versions:
            raise BrokerUnusable(f"{address[0]}:{address[1]} speaks no version of Metadata we know")

    def _version(self, key: ApiKey) -> int:
        version = self._versions.get(int(key))
        if version is None:
            raise BrokerUnusable(f"the broker speaks no version of {key.name} that we know")
        return version

    def _exactly(self, count: int) -> bytes:
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

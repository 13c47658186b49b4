"""A client that says exactly what it is told to: one connection, any request in any version."""

import socket
import struct
from types import TracebackType
from typing import Any, Final, Self

from zhumq.model.address import parse_address
from zhumq.protocol.api import APIS, ApiKey, RequestHeader, decode_response, encode_request

SECONDS_MAX: Final = 30.0
_SIZE = struct.Struct(">i")


class RawClient:
    """Requests out, responses in, in order. Raises ConnectionError when the broker hangs up."""

    def __init__(
        self, bootstrap: str, *, client_id: str = "raw", seconds_max: float = SECONDS_MAX
    ) -> None:
        address = parse_address(bootstrap)
        self._socket = socket.create_connection((address.host, address.port), timeout=seconds_max)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, body: Any, version: int | None = None) -> Any:
        """Send a request, by default in the newest version, and return its response."""
        version = APIS[key].max_version if version is None else version
        self.send(key, body, version)
        return self.receive(key, version)

    def send(self, key: ApiKey, body: Any, version: int) -> None:
        self._correlation_id += 1
        header = RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        self.send_bytes(encode_request(header, body))

    def receive(self, key: ApiKey, version: int) -> Any:
        return decode_response(key, version, self.receive_frame())[1]

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        return self._receive_exactly(size)

    def _receive_exactly(self, count: int) -> bytes:
        chunks: list[bytes] = []
        while count:
            chunk = self._socket.recv(min(count, 1 << 20))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)

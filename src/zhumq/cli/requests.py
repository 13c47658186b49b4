"""Requests that Kafka's client libraries do not offer, on a connection of their own."""

import socket
import struct
from types import TracebackType
from typing import Any, Final, Self

from zhumq.cli.client import REACH_TIMEOUT_SECONDS, addresses
from zhumq.cli.options import CommandFailed
from zhumq.model.errors import MalformedFrame
from zhumq.protocol.api import APIS, ApiKey, RequestHeader, decode_response, encode_request
from zhumq.protocol.schema import Message

REQUEST_TIMEOUT_SECONDS: Final = 15.0  # how long the broker may take to answer one request
RESPONSE_BYTES_MAX: Final = 256 << 20
_SIZE = struct.Struct(">i")


class BrokerConnection:
    """One question at a time to one broker. A lost connection is made anew, to any of the brokers."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def ask(self, key: ApiKey, body: Message, version: int | None = None) -> Any:
        """The answer, in the newest version we speak. Raises CommandFailed."""
        version = APIS[key].max_version if version is None else version
        try:
            return self._ask(key, body, version)
        except (OSError, MalformedFrame) as reason:
            self._close()
            raise CommandFailed(
                f"the broker at {self._bootstrap} did not answer"
                f" {key.name.lower().replace('_', ' ')}: {reason}"
            ) from reason

    def _ask(self, key: ApiKey, body: Message, version: int) -> Any:
        if self._socket is None:
            self._socket = self._connect()
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, "zhumq-cli")
        self._socket.sendall(encode_request(header, body))
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        if not 0 < size <= RESPONSE_BYTES_MAX:
            raise MalformedFrame(f"an answer of {size} bytes")
        return decode_response(key, version, self._receive(size))[1]

    def _connect(self) -> socket.socket:
        reason: OSError = OSError("no address")
        for address in addresses(self._bootstrap):
            try:
                connection = socket.create_connection(address, timeout=REACH_TIMEOUT_SECONDS)
            except OSError as error:
                reason = error
            else:
                connection.settimeout(REQUEST_TIMEOUT_SECONDS)
                return connection
        raise reason

    def _receive(self, count: int) -> bytes:
        assert self._socket is not None
        chunks: list[bytes] = []
        while count:
            chunk = self._socket.recv(min(count, 1 << 20))
            if not chunk:
                raise OSError("the connection was closed")
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

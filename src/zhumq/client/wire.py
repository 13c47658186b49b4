"""The one blocking connection to a broker: a request out, its response in, over TLS and SASL if configured."""

import contextlib
import random
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from zhumq.client.dial import dial, tls_reason
from zhumq.client.errors import SecurityFailed
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.model.address import Address
from zhumq.model.errors import MalformedFrame, ZhumqError
from zhumq.protocol.api import (
    APIS,
    ApiKey,
    RequestHeader,
    decode_response,
    encode_request,
    split_response,
)
from zhumq.protocol.messages.metadata import ApiVersionsRequest

CONNECT_SECONDS_MAX: Final = 10.0
# Of one response; a broker sends a little over max_bytes.
FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
FEATURES_VERSION: Final = 3  # of ApiVersions: the first with features
ONLY_TLS: Final = "the port speaks TLS: set security.protocol=SSL or SASL_SSL"
_SIZE: Final = struct.Struct(">i")
# The first bytes of an alert, with which a TLS listener answers a client without TLS.
_TLS_ALERT: Final = b"\x15\x03"
# Of a session's lifetime, as Kafka's clients do: the broker closes the connection at its end (KIP-368).
_REAUTHENTICATE_AT: Final = (0.85, 0.95)
_NO_LIMITS: Final[Mapping[ApiKey, int]] = MappingProxyType({})


class BrokerUnusable(ZhumqError):
    """The server at this address speaks no version of the protocol that this client speaks."""


class Connection:
    """One blocking connection. Raises OSError when it is lost; it is of no use after that."""

    def __init__(
        self, stream: socket.socket, *, client_id: str, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self._socket = stream
        self._client_id = client_id
        self._security = security
        self._reauthenticate_at: float | None = None  # monotonic
        self._is_first_frame = True
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
        security: ClientSecurity = PLAINTEXT,
    ) -> Self:
        """Connect to the first address that accepts, and authenticate; the last error if none does.

        Raises SecurityFailed if that cannot succeed with these settings.
        """
        tls = None
        if security.protocol.uses_tls:
            # Imported here: a plain connection needs no certificates.
            from zhumq.client.tls import tls_context  # noqa: PLC0415

            tls = tls_context(security)
        stream = dial(addresses, seconds=connect_seconds, tls=tls)
        stream.settimeout(request_seconds)
        connection = cls(stream, client_id=client_id, security=security)
        if security.mechanism:
            try:
                connection._authenticate()
            except BaseException:
                connection.close()
                raise
        return connection

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

    def version_of(self, key: ApiKey) -> int:
        """The version in which requests of this API go out. Raises BrokerUnusable."""
        if self._versions is None:
            return APIS[key].max_version
        version = self._versions.get(key)
        if version is None:
            raise BrokerUnusable(
                f"the broker speaks no version of {key.name} that this client knows"
            )
        return version

    def finalized_features(self) -> dict[str, int]:
        """The levels of the cluster's features, such as `transaction.version` (KIP-584)."""
        if self.version_of(ApiKey.API_VERSIONS) < FEATURES_VERSION:
            return {}
        request = ApiVersionsRequest(client_software_name="zhumq", client_software_version="1")
        response = self.ask(ApiKey.API_VERSIONS, request, FEATURES_VERSION)
        return {each.name: each.max_version_level for each in response.finalized_features}

    def ask(self, key: ApiKey, body: Any, version: int | None = None) -> Any:
        """Send a request and return its response."""
        version = self.version_of(key) if version is None else version
        self.send(key, body, version)
        return self.receive(key, version)

    def send(self, key: ApiKey, body: Any, version: int | None = None) -> None:
        """Send a request. The broker answers requests in their order."""
        version = self.version_of(key) if version is None else version
        if self._reauthenticate_at is not None:
            self._reauthenticate_if_due()
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
        version = self.version_of(key) if version is None else version
        correlation_id, response = decode_response(key, version, self.receive_frame())
        self._check_order(correlation_id)
        return response

    def ask_undecoded(self, key: ApiKey, body: Any) -> tuple[int, bytes]:
        """As `ask`, for a caller who may know the response already: its version, and its bytes after the correlation id."""
        version = self.version_of(key)
        self.send(key, body, version)
        correlation_id, content = split_response(self.receive_frame())
        self._check_order(correlation_id)
        return version, bytes(content)

    def _check_order(self, correlation_id: int) -> None:
        # Empty where the caller has sent bytes of its own making. A Produce request with acks=0 has no answer.
        if self._unanswered:
            if correlation_id not in self._unanswered:
                raise MalformedFrame(f"the broker answers request {correlation_id}: none is open")
            while self._unanswered.popleft() != correlation_id:
                pass

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            # The broker may have given the reason before it closed the connection.
            if self._is_first_frame:
                with contextlib.suppress(OSError):
                    self.receive_frame()
            raise

    def receive_frame(self) -> bytes:
        head = self._receive_exactly(_SIZE.size)
        if self._is_first_frame:
            self._is_first_frame = False
            if head.startswith(_TLS_ALERT) and not self._security.protocol.uses_tls:
                raise SecurityFailed(ONLY_TLS)
        (size,) = _SIZE.unpack(head)
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise MalformedFrame(f"the broker announces a response of {size} bytes")
        return self._receive_exactly(size)

    def _authenticate(self) -> None:
        # Imported here: a connection without SASL needs no SCRAM.
        from zhumq.client.sasl import authenticate  # noqa: PLC0415

        self._reauthenticate_at = None
        lifetime_seconds = authenticate(self.ask, self._security)
        if lifetime_seconds is not None:
            share = random.uniform(*_REAUTHENTICATE_AT)  # noqa: S311 - not for secrets
            self._reauthenticate_at = time.monotonic() + lifetime_seconds * share

    def _reauthenticate_if_due(self) -> None:
        due = self._reauthenticate_at
        # Not between a request and its answer: the broker answers in order.
        if due is not None and not self._unanswered and time.monotonic() >= due:
            self._authenticate()

    def _receive_exactly(self, count: int) -> bytes:
        buffer = bytearray(count)
        view = memoryview(buffer)
        filled = 0
        while filled < count:
            try:
                received = self._socket.recv_into(view[filled:])
            except ssl.SSLEOFError:
                received = 0  # closed without TLS's farewell
            except ssl.SSLError as error:
                # With TLS 1.3 the broker looks at the client's certificate after the handshake.
                reason = tls_reason(error, has_certificate=bool(self._security.key_store))
                raise SecurityFailed(f"the broker ended the TLS connection: {reason}") from None
            if not received:
                raise ConnectionAbortedError("the broker closed the connection")
            filled += received
        # Not copied into bytes: nothing else holds the buffer, and a fetched frame is large.
        return buffer  # type: ignore[return-value]

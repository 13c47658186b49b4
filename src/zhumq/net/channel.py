"""One outgoing connection to a broker: pipelined requests, answers in order, reopened when lost."""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from zhumq.model.errors import BrokerError, ErrorCode, MalformedFrame
from zhumq.protocol.connection import ConnectionCodec
from zhumq.protocol.peer_api import (
    Answered,
    Asked,
    PeerApi,
    decode_peer_answer,
    encode_peer_request,
    read_peer_answer,
    refusal_text,
)

logger = logging.getLogger(__name__)

CORRELATION_ID_MAX = 2**31 - 1


class PeerUnavailable(BrokerError):
    """The other broker cannot be reached, or did not answer in time."""

    code = ErrorCode.NETWORK_EXCEPTION


class PeerRefused(BrokerError):
    """The other broker refused the request."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """Limits of a channel: every buffer and every wait has one."""

    # Connecting and the handshake together.
    connect_ms: int = 3_000
    # An answer that takes longer closes the connection: those behind it would wait as well.
    request_ms: int = 10_000
    frame_bytes_max: int = 128 * 1024 * 1024
    # Of requests that are not answered yet.
    bytes_in_flight_max: int = 64 * 1024 * 1024
    requests_in_flight_max: int = 4_096
    # Between two attempts to connect, doubled with each that failed.
    backoff_min_ms: int = 20
    backoff_max_ms: int = 500


class PeerAddress(NamedTuple):
    """Where a peer listens, and the context of TLS if it listens for that."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


# The peer's current address; None while it is unknown.
Locate = Callable[[], PeerAddress | None]


class Exchange(Protocol):
    """Sends one request, also before the handshake is complete."""

    def __call__(
        self, api: PeerApi[Asked, Answered], message: Asked
    ) -> "asyncio.Future[Answered]": ...


Greet = Callable[[Exchange], Awaitable[None]]


class _Waiting(NamedTuple):
    correlation_id: int
    api: PeerApi[Any, Any]
    size: int
    deadline: float
    answer: "asyncio.Future[Any]"


class Channel:
    """A connection that is opened when first needed and reopened after a loss.

    It runs no task: the first caller connects, and the other callers wait for that.
    """

    def __init__(
        self,
        name: str,
        locate: Locate,
        greet: Greet,
        *,
        limits: ChannelLimits | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._locate = locate
        self._greet = greet
        self._limits = limits or ChannelLimits()
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._wire: _Wire | None = None
        self._connecting = asyncio.Lock()
        self._backoff_ms = 0
        self._retry_at = 0.0
        self._is_closed = False
        self._tls_failure = ""  # as logged last
        self.connections_made = 0

    @property
    def is_connected(self) -> bool:
        return self._wire is not None

    @property
    def retry_seconds(self) -> float:
        """Seconds until the next attempt to connect is allowed."""
        return max(self._retry_at - self._loop.time(), 0.0)

    async def connect(self) -> None:
        """Connect and complete the handshake, unless done. Raises PeerUnavailable."""
        async with self._connecting:
            if self._wire is not None:
                return
            if self._is_closed or self.retry_seconds > 0:
                raise PeerUnavailable(f"{self._name} cannot be reached")
            try:
                wire = await self._open()
            except (TimeoutError, OSError, BrokerError) as reason:
                self._back_off()
                self._log_tls_failure(reason)
                raise PeerUnavailable(
                    f"{self._name} cannot be reached: {reason or 'no answer in time'}"
                ) from reason
            self._wire = wire
            self._tls_failure = ""
            self.connections_made += 1

    def _log_tls_failure(self, reason: Exception) -> None:
        """Log, once, what another attempt does not solve: certificates that do not fit."""
        if isinstance(reason, ssl.SSLError) and str(reason) != self._tls_failure:
            self._tls_failure = str(reason)
            logger.warning("no TLS to %s: %s", self._name, reason)

    def _back_off(self) -> None:
        limits = self._limits
        self._backoff_ms = min(
            max(2 * self._backoff_ms, limits.backoff_min_ms), limits.backoff_max_ms
        )
        self._retry_at = self._loop.time() + self._backoff_ms / 1000

    async def _open(self) -> "_Wire":
        address = self._locate()
        if address is None:
            raise PeerUnavailable("its address is unknown")
        async with asyncio.timeout(self._limits.connect_ms / 1000):
            _, protocol = await self._loop.create_connection(
                lambda: _Wire(self._loop, self._limits, self._on_wire_lost),
                address.host,
                address.port,
                ssl=address.tls,
            )
            try:
                await self._greet(protocol.start)
            except BaseException:
                protocol.close(PeerUnavailable("the handshake failed"))
                raise
        if protocol.is_lost or self._is_closed:
            protocol.close(PeerUnavailable("closed"))
            raise PeerUnavailable("the connection was lost at once")
        protocol.is_greeted = True
        return protocol

    async def request(
        self, api: PeerApi[Asked, Answered], message: Asked, *, timeout_ms: int | None = None
    ) -> Answered:
        """Send a request, connecting first if needed. Raises PeerUnavailable or PeerRefused."""
        if self._wire is None:
            await self.connect()
        return await self.start(api, message, timeout_ms=timeout_ms)

    def start(
        self, api: PeerApi[Asked, Answered], message: Asked, *, timeout_ms: int | None = None
    ) -> "asyncio.Future[Answered]":
        """Send a request on the open connection. Raises PeerUnavailable if there is none."""
        if self._wire is None:
            raise PeerUnavailable(f"{self._name} is not connected")
        return self._wire.start(api, message, timeout_ms=timeout_ms)

    def reset(self, reason: str) -> None:
        """Close the connection; the next request opens a new one."""
        if self._wire is not None:
            self._wire.close(PeerUnavailable(f"{self._name}: {reason}"))

    def close(self) -> None:
        """Close for good: pending requests fail, and so do later ones."""
        self._is_closed = True
        self.reset("the channel is closed")

    def _on_wire_lost(self, wire: "_Wire") -> None:
        if self._wire is wire:
            self._wire = None
            if wire.has_answered:
                self._backoff_ms = 0
            else:
                # The peer completed the handshake and closed: do not reconnect at once.
                self._back_off()
            if not self._is_closed:
                self._on_lost()


class _Wire(asyncio.Protocol):
    """One TCP connection and the requests that are pending on it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ChannelLimits,
        on_lost: Callable[["_Wire"], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._on_lost = on_lost
        self._codec = ConnectionCodec(limits.frame_bytes_max)
        self._waiting: deque[_Waiting] = deque()
        self._bytes_in_flight = 0
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.is_lost = False
        # A request was answered after the handshake.
        self.has_answered = False
        self.is_greeted = False

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.is_lost:
            return
        try:
            for frame in self._codec.receive_bytes(data):
                self._on_answer(frame)
        except MalformedFrame as error:
            self.close(PeerUnavailable(f"malformed answer: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(PeerUnavailable(f"the connection was lost: {exc or 'closed by the peer'}"))

    # Called by the channel.

    def start(
        self, api: PeerApi[Asked, Answered], message: Asked, *, timeout_ms: int | None = None
    ) -> "asyncio.Future[Answered]":
        if self.is_lost or self._transport is None:
            raise PeerUnavailable("the connection was lost")
        limits = self._limits
        self._correlation_id = correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
        frame = encode_peer_request(api, correlation_id, message)
        if (
            self._bytes_in_flight + len(frame) > limits.bytes_in_flight_max
            or len(self._waiting) >= limits.requests_in_flight_max
        ):
            raise PeerUnavailable("too much is in flight already")
        deadline = self._loop.time() + (timeout_ms or limits.request_ms) / 1000
        answer: asyncio.Future[Answered] = self._loop.create_future()
        self._waiting.append(_Waiting(correlation_id, api, len(frame), deadline, answer))
        self._bytes_in_flight += len(frame)
        self._transport.write(frame)
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)
        return answer

    def close(self, reason: PeerUnavailable) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.answer.done():
                each.answer.set_exception(reason)
                # Retrieved here: a caller that was cancelled never does.
                each.answer.exception()
        self._on_lost(self)

    def _on_answer(self, frame: bytes) -> None:
        answer = decode_peer_answer(frame)
        if not self._waiting or self._waiting[0].correlation_id != answer.correlation_id:
            raise MalformedFrame(f"answer {answer.correlation_id} is out of order")
        waiting = self._waiting.popleft()
        self._bytes_in_flight -= waiting.size
        self.has_answered = self.is_greeted
        if waiting.answer.done():
            return
        if answer.error is not ErrorCode.NONE:
            waiting.answer.set_exception(PeerRefused(answer.error, refusal_text(answer)))
            waiting.answer.exception()
            return
        try:
            waiting.answer.set_result(read_peer_answer(waiting.api, answer))
        except MalformedFrame as error:
            waiting.answer.set_exception(PeerUnavailable(f"malformed answer: {error}"))
            waiting.answer.exception()
            raise

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Close the connection if an answer is late: all answers behind it are late too."""
        self._timer = None
        if not self._waiting:
            return
        deadline = min(each.deadline for each in self._waiting)
        if self._loop.time() < deadline:
            self._set_timer(deadline)
            return
        self.close(PeerUnavailable("no answer in time"))

"""The listening sockets of a broker, and what their connections share."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast

from zhumq.model.security_protocol import SecurityProtocol
from zhumq.net.connection import Connection
from zhumq.net.deadlines import DeadlineWheel
from zhumq.net.handshakes import Handshakes
from zhumq.net.limits import Admission, Counters, Limits
from zhumq.net.request_memory import RequestMemory
from zhumq.net.request_times import RequestTimes
from zhumq.net.service import ConnectionInfo, Service
from zhumq.net.slow_lane import SlowLane
from zhumq.net.tls_context import TlsSource
from zhumq.net.tls_principal import principal_of
from zhumq.net.tls_stream import TlsStream
from zhumq.net.unread import UnreadAnswers

logger = logging.getLogger(__name__)

TICK_MS_MAX = 1_000
TICKS_PER_DEADLINE = 4  # the shortest deadline is kept to within a quarter of itself
RELIEF_SECONDS = 0.1  # how long a proven client waits for memory that new clients hold
RELIEF_TICKS = 1  # between two checks for connections that hold memory others wait for
ACCEPT_BACKLOG = 1_024
REFUSED_LATER_MAX = 1_000  # connections that wait for their refusal; more are refused at once
WARNING_INTERVAL_SECONDS = 1.0  # what clients do wrong must not fill the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One socket to listen on."""

    host: str
    port: int
    name: str = SecurityProtocol.PLAINTEXT
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    # Invariant: None unless the security protocol uses TLS.
    tls: TlsSource | None = None


class CannotBind(OSError):
    """An endpoint whose address cannot be bound, for the reason of the system."""

    def __init__(self, endpoint: Endpoint, reason: OSError) -> None:
        super().__init__(reason.errno, reason.strerror or str(reason))
        self.endpoint = endpoint


class Listener:
    """Accepts connections and passes their requests to a service.

    Open it with `await Listener.open(...)`; end it with `await listener.close(...)`, or use it
    as an async context manager.
    """

    def __init__(self, servers: Sequence[asyncio.Server], acceptor: "_Acceptor") -> None:
        self._servers = servers
        self._acceptor = acceptor
        self._addresses = [server.sockets[0].getsockname() for server in servers]

    @classmethod
    async def open(
        cls,
        *endpoints: Endpoint,
        service: Service,
        limits: Limits | None = None,
        delay_ms_of: Callable[[str], int] = lambda _address: 0,
        counters: Counters | None = None,
    ) -> Self:
        """Listens. The limits hold for all endpoints together. Raises CannotBind.

        `delay_ms_of` is called with the address of each new connection; above 0, it is refused after this time.
        """
        loop = asyncio.get_running_loop()
        acceptor = _Acceptor(
            loop,
            service=service,
            limits=limits or Limits(),
            delay_ms_of=delay_ms_of,
            counters=counters or Counters(),
        )
        servers: list[asyncio.Server] = []
        try:
            for endpoint in endpoints:
                servers += [await acceptor.listen(endpoint)]
        except BaseException:
            for server in servers:
                server.close()
            acceptor.wheel.close()
            raise
        return cls(servers, acceptor)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first endpoint as bound: the real port where 0 was asked for."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each endpoint."""
        return [(address[0], address[1]) for address in self._addresses]

    @property
    def counters(self) -> Counters:
        return self._acceptor.counters

    @property
    def times(self) -> RequestTimes:
        return self._acceptor.times

    @property
    def memory(self) -> RequestMemory:
        return self._acceptor.memory

    async def close(self, drain_seconds: float = 0.0) -> None:
        """Stops accepting and serving; waits up to this long for answers in progress."""
        for server in self._servers:
            server.close()
        await self._acceptor.drain(drain_seconds)
        for server in self._servers:
            await server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class _Accepting(asyncio.Protocol):
    """The initial protocol of the connections of one endpoint."""

    def __init__(self, acceptor: "_Acceptor", endpoint: Endpoint) -> None:
        self._acceptor = acceptor
        self._endpoint = endpoint

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._acceptor.accept(cast("asyncio.Transport", transport), self._endpoint)


class _Acceptor:
    """What the connections of all endpoints share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        service: Service,
        limits: Limits,
        delay_ms_of: Callable[[str], int],
        counters: Counters,
    ) -> None:
        self.loop = loop
        self._delay_ms_of = delay_ms_of
        self._refused_later = 0
        self.service = service
        self.limits = limits
        self.counters = counters
        self.times = RequestTimes()
        self._connections: dict[int, Connection] = {}
        self.memory = RequestMemory(limits.request_bytes_total_max, self._connections.values)
        self.lane = SlowLane(loop)
        self.unread = UnreadAnswers(limits.unread_bytes_total_max)
        shortest_ms = min(limits.shortest_wait_ms, limits.close_ms)
        self.wheel = DeadlineWheel(
            loop, tick_ms=max(1, min(TICK_MS_MAX, shortest_ms // TICKS_PER_DEADLINE))
        )
        self.wheel.schedule(self, self.wheel.tick + RELIEF_TICKS)
        self._relief: asyncio.TimerHandle | None = None
        self._admission = Admission(limits)
        self._handshakes = Handshakes(
            loop,
            count_max=limits.handshakes_max,
            seconds_max=limits.handshake_ms / 1000,
        )
        self._connection_id = 0
        self._warned_at = float("-inf")
        self._warnings_suppressed = 0
        self._closing = False
        self._all_gone = asyncio.Event()

    async def listen(self, endpoint: Endpoint) -> asyncio.Server:
        accepting = _Accepting(self, endpoint)
        try:
            return await self.loop.create_server(
                lambda: accepting,
                endpoint.host,
                endpoint.port,
                backlog=ACCEPT_BACKLOG,
                reuse_address=True,
            )
        except OSError as reason:
            raise CannotBind(endpoint, reason) from reason

    def accept(self, transport: asyncio.Transport, endpoint: Endpoint) -> None:
        peer = transport.get_extra_info("peername")
        if peer is None or self._closing:  # gone before it was accepted, or too late
            transport.abort()
            return
        host, port = peer[0], peer[1]
        if delay_ms := self._delay_ms_of(host):
            self._refuse_later(transport, delay_ms)
            self.warn("refused %s:%d: it opens connections too fast", host, port)
            return
        if not self._admission.enter(host):
            self.counters.connections_refused += 1
            transport.abort()
            self.warn("refused %s:%d: %d connections are open", host, port, len(self._connections))
            return
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection_id += 1
        info = ConnectionInfo(
            id=self._connection_id,
            client_host=host,
            client_port=port,
            listener=endpoint.name,
            security_protocol=endpoint.security_protocol,
            is_authenticated=not endpoint.security_protocol.uses_sasl,
        )
        if endpoint.tls is None:
            transport.set_protocol(self._serve(transport, info))
        else:
            self._shake_hands(transport, info, endpoint.tls)

    def _refuse_later(self, transport: asyncio.Transport, delay_ms: int) -> None:
        """KIP-612: a client that is refused at once would come back at once."""
        self.counters.connections_refused += 1
        if self._refused_later >= REFUSED_LATER_MAX:
            transport.abort()
            return

        def refuse() -> None:
            self._refused_later -= 1
            transport.abort()

        self._refused_later += 1
        transport.pause_reading()
        self.loop.call_later(delay_ms / 1_000, refuse)

    def _serve(self, transport: asyncio.Transport, info: ConnectionInfo) -> Connection:
        connection = Connection(transport, info, self)
        self._connections[info.id] = connection
        self.counters.connections_open += 1
        return connection

    def _shake_hands(
        self, transport: asyncio.Transport, info: ConnectionInfo, tls: TlsSource
    ) -> None:
        """Serves the connection once its handshake is complete. It counts as admitted until then."""

        def serve(stream: TlsStream) -> Connection | None:
            try:
                info.principal = principal_of(stream.tls, tls.config.mapping)
            except ValueError as reason:  # no rule matches its name
                fail(str(reason))
                return None
            return self._serve(stream, info)

        def fail(reason: str) -> None:
            self._admission.leave(info.client_host)
            self.counters.handshakes_failed += 1
            self.warn("refused %s:%d: %s", info.client_host, info.client_port, reason)

        TlsStream(
            transport,
            tls.current().server,
            self._handshakes,
            client_host=info.client_host,
            on_open=serve,
            on_failed=fail,
        )

    def expire(self, tick: int) -> int:
        """Called every tick: cuts off connections that hold memory others wait for."""
        self.memory.relieve(self.wheel.milliseconds(tick))
        return tick + RELIEF_TICKS

    def relieve_soon(self) -> None:
        """Schedules a check for a proven client that waits for memory new clients hold."""
        if self._relief is None:
            self._relief = self.loop.call_later(RELIEF_SECONDS, self._relieve_proven)

    def _relieve_proven(self) -> None:
        self._relief = None
        self.memory.relieve_proven()

    def forget(self, info: ConnectionInfo) -> None:
        del self._connections[info.id]
        self._admission.leave(info.client_host)
        self.counters.connections_open -= 1
        try:
            self.service.connection_lost(info)
        except Exception:
            logger.exception("the service failed to clean up after %s", info)
        if self._closing and not self._connections:
            self._all_gone.set()

    def warn(self, template: str, *arguments: object) -> None:
        """Logs what clients do wrong, at most once in an interval."""
        now = self.loop.time()
        if now - self._warned_at < WARNING_INTERVAL_SECONDS:
            self._warnings_suppressed += 1
            return
        if self._warnings_suppressed:
            template += " (%d more warnings suppressed)"
            arguments = (*arguments, self._warnings_suppressed)
        self._warned_at = now
        self._warnings_suppressed = 0
        logger.warning(template, *arguments)

    async def drain(self, drain_seconds: float) -> None:
        self._closing = True
        self._handshakes.close()
        for connection in tuple(self._connections.values()):
            connection.drain()
        if self._connections and drain_seconds > 0:
            try:
                await asyncio.wait_for(self._all_gone.wait(), drain_seconds)
            except TimeoutError:
                logger.info("cut off %d connections that did not drain", len(self._connections))
        for connection in tuple(self._connections.values()):
            connection.abort()
        if self._connections:
            await self._all_gone.wait()  # an aborted transport is lost in the next turn
        if self._relief is not None:
            self._relief.cancel()
        self.wheel.close()
        self.lane.close()

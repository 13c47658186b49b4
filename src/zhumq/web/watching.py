"""Server-sent events: looks at the cluster for those who listen, once for all listeners with the same credentials."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from zhumq.admin.groups import group_states
from zhumq.client.errors import ClientError, SecurityFailed
from zhumq.client.security import ClientSecurity
from zhumq.web.brokers import BrokerPool, Brokers
from zhumq.web.events import AVAILABLE, CONNECTED, Event, Snapshot, changes, unavailable
from zhumq.web.problems import RequestRefused, too_busy
from zhumq.web.workers import Workers

logger = logging.getLogger(__name__)

LISTENERS_MAX: Final = 50
QUEUED_MAX: Final = 1_000  # events of a listener that does not read
SILENT_SECONDS_MAX: Final = 15.0  # then a comment goes out, so that a dead connection is noticed
# A browser connects again by itself, and is authenticated again then.
STREAM_SECONDS_MAX: Final = 600.0
RECONNECT_MS: Final = 2_000
_ALIVE: Final = b": alive\n\n"


class Watching:
    """The listeners, and one watch for each set of credentials among them."""

    def __init__(self, pool: BrokerPool, workers: Workers, *, seconds: float) -> None:
        self._pool = pool
        self._workers = workers
        self._seconds = seconds
        self._watches: dict[ClientSecurity, _Watch] = {}

    async def listen(self, request: Request, security: ClientSecurity) -> Response:
        """The stream of one listener. Raises RequestRefused, and what the first connection raises."""
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if sum(len(each.queues) for each in self._watches.values()) >= LISTENERS_MAX:
            raise too_busy(f"{LISTENERS_MAX} streams of events are open: close one")
        await self._workers.run(lambda: self._pool.check(security))
        return StreamingResponse(self._stream(security), media_type="text/event-stream")

    def look_soon(self) -> None:
        """Something was changed by a request: look now, not after the pause."""
        for watch in self._watches.values():
            watch.soon.set()

    async def close(self) -> None:
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            await watch.end()

    async def _stream(self, security: ClientSecurity) -> AsyncIterator[bytes]:
        watch = self._watches.get(security)
        if watch is None:
            watch = _Watch(self._pool, self._workers, security, self._seconds)
            self._watches[security] = watch
        queue = watch.add()
        deadline = time.monotonic() + STREAM_SECONDS_MAX
        try:
            yield f"retry: {RECONNECT_MS}\n\n".encode()
            yield _encoded(CONNECTED)
            while time.monotonic() < deadline:
                try:
                    async with asyncio.timeout(SILENT_SECONDS_MAX):
                        event = await queue.get()
                except TimeoutError:
                    yield _ALIVE
                    continue
                if event is None:
                    return
                yield _encoded(event)
        finally:
            watch.queues.discard(queue)
            if not watch.queues and self._watches.get(security) is watch:
                del self._watches[security]
                await watch.end()


class _Watch:
    """Looks at the cluster with some credentials, and tells its listeners what changed."""

    def __init__(
        self, pool: BrokerPool, workers: Workers, security: ClientSecurity, seconds: float
    ) -> None:
        self._pool = pool
        self._workers = workers
        self._security = security
        self._seconds = seconds
        self.soon = asyncio.Event()
        self.queues: set[asyncio.Queue[Event | None]] = set()
        self._before: Snapshot | None = None
        self._is_available = True
        self._task: asyncio.Task[None] | None = None

    def add(self) -> "asyncio.Queue[Event | None]":
        """The events of a new listener; None is the end."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUED_MAX)
        self.queues.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return queue

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                after = await self._workers.run(self._look)
            except SecurityFailed:
                self._send(None)
                return
            except RequestRefused:
                pass  # There are too many requests: later.
            except ClientError as error:
                if self._is_available:
                    self._is_available = False
                    self._send(unavailable(str(error)))
            except Exception:
                logger.exception("looking for changes failed")
            else:
                if not self._is_available:
                    self._is_available = True
                    self._send(AVAILABLE)
                for event in changes(self._before, after) if self._before is not None else ():
                    self._send(event)
                self._before = after
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self.soon.wait()
            self.soon.clear()

    def _look(self) -> Snapshot:
        with self._pool.lend(self._security) as brokers:
            return take_snapshot(brokers)

    def _send(self, event: Event | None) -> None:
        for queue in self.queues:
            if queue.full():  # It does not read: what it would have read is lost.
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(CONNECTED)
            queue.put_nowait(event)


def take_snapshot(brokers: Brokers) -> Snapshot:
    """What is compared to find changes."""
    metadata = brokers.connection.metadata()
    return Snapshot(
        topics={
            name: tuple(
                (each.leader, tuple(each.replicas), tuple(each.isrs))
                for _, each in sorted(topic.partitions.items())
            )
            for name, topic in metadata.topics.items()
        },
        groups={each.group: (each.state, each.type) for each in group_states(brokers.connection)},
        brokers={
            str(each.id): (each.host, each.port, each.id == metadata.controller_id)
            for each in metadata.brokers.values()
        },
    )


def _encoded(event: Event) -> bytes:
    return f"event: {event.kind}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"

"""Deliveries that consumers have not read: bounded over all streams, and the longest unread end."""

import asyncio
import logging
import urllib.parse
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final, Protocol

from zhumq.host.sockets import cut_off_stuck
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.frames import Refusal

logger = logging.getLogger(__name__)

# Of frames that are being written. Memory takes about three times as much: the frame as it was made,
# as gRPC holds it, and the batches as the delivery core does.
UNREAD_BYTES_MAX: Final = 32 * 1024 * 1024
# While others wait for room, who has not read a frame for this long has to go.
UNREAD_SECONDS_MIN: Final = 1.0
# Whoever has not read a frame for this long has to go.
LOOK_SECONDS: Final = 0.25


class Unreading(Protocol):
    """A stream as far as it can be ended."""

    @property
    def peer(self) -> str:
        """Its client as gRPC names it: `ipv4:127.0.0.1:5000`."""

    def end(self, why: Refusal) -> None: ...


class UnreadFrames:
    """Who is being written to, how much, and since when."""

    def __init__(
        self,
        now: Callable[[], float],
        cut_off: Callable[[Collection[tuple[str, int]]], object] = cut_off_stuck,
    ) -> None:
        self._now = now
        self._cut_off = cut_off
        self._cutting: set[asyncio.Future[object]] = set()
        self._writing: dict[Unreading, tuple[float, int]] = {}  # the longest unread first
        self._room = asyncio.Event()
        self._ended: set[Unreading] = set()  # of those
        self.bytes = 0

    @property
    def has_room(self) -> bool:
        return self.bytes < UNREAD_BYTES_MAX

    @asynccontextmanager
    async def writing(self, stream: Unreading, size: int) -> AsyncIterator[None]:
        """While this frame is on its way to the stream's consumer."""
        self._writing[stream] = (self._now(), size)
        self.bytes += size
        try:
            yield
        finally:
            del self._writing[stream]
            self._ended.discard(stream)
            self.bytes -= size
            self._room.set()

    async def wait_for_room(self) -> None:
        """Done when there is room, or may be."""
        self.end_unread(UNREAD_SECONDS_MIN)
        self._room.clear()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._room.wait()
        except TimeoutError:
            return

    def end_unread(self, seconds: float) -> None:
        """Ends the streams whose consumers have not read a frame for so long."""
        before = self._now() - seconds
        peers = set()
        for stream, (since, _) in tuple(self._writing.items()):
            if since > before:
                break
            if stream not in self._ended:
                self._ended.add(stream)
                peers.add(_address(stream.peer))
                stream.end(Refusal(pb.UNAVAILABLE, "deliveries were not read in time", retry=True))
        if peers:
            logger.warning("ended push streams of %d clients that did not read", len(peers))
            # gRPC keeps what it has begun to send, whatever becomes of the stream, and can not be
            # told to close a connection.
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(None, self._cut_off, peers)
            self._cutting.add(work)
            work.add_done_callback(self._cutting.discard)


def _address(peer: str) -> tuple[str, int]:
    host, _, port = urllib.parse.unquote(peer.partition(":")[2]).rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0

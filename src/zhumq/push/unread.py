"""Bounds the frames that consumers have not read, over all streams, and ends the longest unread streams."""

import asyncio
import logging
import urllib.parse
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final, Protocol

from zhumq.host.sockets import close_stuck
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.frames import Refusal

logger = logging.getLogger(__name__)

# Of frames that are being written. Memory use is about three times as much: the frame itself,
# gRPC's copy, and the batches that the delivery core holds.
UNREAD_BYTES_MAX: Final = 32 * 1024 * 1024
# While other streams wait for room, a stream whose consumer has not read a frame for this long ends.
UNREAD_SECONDS_MIN: Final = 1.0
# How often a stream that waits for room checks again.
RECHECK_SECONDS: Final = 0.25


class EndableStream(Protocol):
    """A stream that can be ended."""

    @property
    def peer(self) -> str:
        """The client's address as gRPC writes it: `ipv4:127.0.0.1:5000`."""

    def end(self, why: Refusal) -> None: ...


class UnreadFrames:
    """The streams that are being written to, with frame sizes and start times."""

    def __init__(
        self,
        now: Callable[[], float],
        cut_off: Callable[[Collection[tuple[str, int]]], object] = close_stuck,
    ) -> None:
        self._now = now
        self._cut_off = cut_off
        self._cutting: set[asyncio.Future[object]] = set()
        self._writing: dict[EndableStream, tuple[float, int]] = {}  # the longest unread first
        self._room = asyncio.Event()
        self._ended: set[EndableStream] = set()  # of those
        self.bytes = 0

    @property
    def has_room(self) -> bool:
        return self.bytes < UNREAD_BYTES_MAX

    @asynccontextmanager
    async def writing(self, stream: EndableStream, size: int) -> AsyncIterator[None]:
        """Count a frame as unread while it is being written to the stream's consumer."""
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
        """Wait until there may be room, at most `RECHECK_SECONDS`."""
        self.end_unread(UNREAD_SECONDS_MIN)
        self._room.clear()
        try:
            async with asyncio.timeout(RECHECK_SECONDS):
                await self._room.wait()
        except TimeoutError:
            return

    def end_unread(self, seconds: float) -> None:
        """End the streams whose consumers have not read a frame for this long."""
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
            # gRPC keeps a frame that it has begun to send even after the stream ends, and has no
            # call that closes a connection.
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(None, self._cut_off, peers)
            self._cutting.add(work)
            work.add_done_callback(self._cutting.discard)


def _address(peer: str) -> tuple[str, int]:
    host, _, port = urllib.parse.unquote(peer.partition(":")[2]).rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0

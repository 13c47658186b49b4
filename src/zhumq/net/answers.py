"""Outgoing queue of one connection: bytes go through the transport, file regions by sendfile unless over TLS."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from zhumq.model.buffers import Buffer
from zhumq.net.limits import Counters
from zhumq.net.sendfile import FileRegion, FileSender, read_region, split_region
from zhumq.net.tls_stream import WRITE_BYTES as TLS_WRITE_BYTES
from zhumq.net.tls_stream import TlsStream
from zhumq.protocol.api import Part

# Below this, copying a region through this process costs no more than a sendfile call.
SENDFILE_BYTES_MIN = 32 * 1024
# Bytes gathered for one write. Small parts are joined; more than this is not copied again.
WRITE_BYTES = 256 * 1024
JOIN_BYTES_MAX = 64 * 1024
# Over TLS one connection encrypts at most this in one turn of the loop; then others are served.
TLS_TURN_BYTES_MAX = 1024 * 1024

_BYTES_LIKE = (bytes, bytearray, memoryview)


class AnswerWriter:
    """Queue of parts that the socket has not accepted yet.

    `on_room` is called when an interrupted flush can continue, `on_failed` when a region cannot
    be read to its end, or the peer is gone.
    """

    __slots__ = (
        "_continues",
        "_counters",
        "_loop",
        "_on_failed",
        "_on_room",
        "_parts",
        "_sender",
        "_transport",
        "bytes_queued",
        "is_paused",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        counters: Counters,
        *,
        on_room: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._counters = counters
        self._on_room = on_room
        self._on_failed = on_failed
        # None over TLS: the bytes have to pass through this process to be encrypted.
        self._sender = (
            None
            if isinstance(transport, TlsStream)
            else FileSender(
                loop,
                transport.get_extra_info("socket").fileno(),
                on_progress=self._on_region_progress,
                on_failed=on_failed,
            )
        )
        self._continues = False  # in the next turn of the loop
        self._parts: deque[Part] = deque()
        # Queued parts and the region being sent, without the transport's own buffer.
        self.bytes_queued = 0
        # The transport holds bytes that the socket has not accepted.
        self.is_paused = False
        # Any byte left in the transport pauses writing, because sendfile must not overtake it.
        transport.set_write_buffer_limits(high=0)

    @property
    def is_stuck(self) -> bool:
        """Whether the peer has to read before more can be sent."""
        return self.is_paused or (self._sender is not None and self._sender.is_sending)

    @property
    def memory_bytes(self) -> int:
        """Answer bytes in the memory of this process; file regions do not count."""
        size = self._transport.get_write_buffer_size()
        for part in self._parts:
            if isinstance(part, _BYTES_LIKE):
                size += len(part)
        return size

    def put(self, parts: list[Part]) -> None:
        size = 0
        for part in parts:
            size += len(part)
        self._parts.extend(parts)
        self.bytes_queued += size
        self._counters.answer_bytes_queued += size
        self._counters.bytes_answered += size

    def write(self, part: bytes) -> None:
        """Fast path: writes one part, with nothing queued before it."""
        self._counters.bytes_answered += len(part)
        self._transport.write(part)

    def flush(self) -> None:
        """Writes parts until the socket accepts no more."""
        if self._sender is None:
            self._flush_encrypted()
            return
        parts = self._parts
        gathered: list[Buffer] = []
        size = 0
        try:
            while parts and not self.is_paused and not self._sender.is_sending:
                part = parts[0]
                if not isinstance(part, _BYTES_LIKE):
                    region = cast("FileRegion", part)
                    if len(region) >= SENDFILE_BYTES_MIN:
                        if gathered:
                            self._write(gathered, size)
                            gathered = []
                            size = 0
                        else:
                            parts.popleft()
                            self._region_sent(self._sender.send(region))
                        continue
                    part = read_region(region)
                parts.popleft()
                gathered.append(part)
                size += len(part)
                if size >= WRITE_BYTES:
                    self._write(gathered, size)
                    gathered = []
                    size = 0
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            self._on_failed(error)
            return
        if gathered:
            self._write(gathered, size)

    def _flush_encrypted(self) -> None:
        """As flush, with regions read in pieces: no more than one piece of them is in memory."""
        parts = self._parts
        turn_bytes = 0
        while parts and not self.is_paused:
            if turn_bytes >= TLS_TURN_BYTES_MAX:
                if not self._continues:
                    self._continues = True
                    self._loop.call_soon(self._continue)
                return
            gathered: list[Buffer] = []
            size = 0
            while parts and size < TLS_WRITE_BYTES:
                part = parts.popleft()
                if not isinstance(part, _BYTES_LIKE):
                    region = cast("FileRegion", part)
                    if len(region) > TLS_WRITE_BYTES:
                        region, rest = split_region(region, TLS_WRITE_BYTES)
                        parts.appendleft(cast("Part", rest))
                    try:
                        part = read_region(region)
                    except (OSError, ValueError) as error:  # ValueError: the file was closed
                        self._on_failed(error)
                        return
                gathered.append(part)
                size += len(part)
            self._write(gathered, size)
            turn_bytes += size

    def _continue(self) -> None:
        self._continues = False
        self._on_room()

    def close(self) -> None:
        """Drops what is left, once the transport is closed."""
        if self._sender is not None:
            self._sender.close()
        self._parts.clear()
        self._counters.answer_bytes_queued -= self.bytes_queued
        self.bytes_queued = 0

    def _write(self, parts: list[Buffer], size: int) -> None:
        self.bytes_queued -= size
        self._counters.answer_bytes_queued -= size
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif size <= JOIN_BYTES_MAX:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def _region_sent(self, sent: int) -> None:
        self.bytes_queued -= sent
        self._counters.answer_bytes_queued -= sent
        self._counters.bytes_sent_by_sendfile += sent

    def _on_region_progress(self, sent: int) -> None:
        self._region_sent(sent)
        self._on_room()

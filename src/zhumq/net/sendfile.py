"""Sends file regions from the page cache to a socket, beside an asyncio transport."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

# One connection sends at most this in one turn of the loop; then other connections are served.
TURN_BYTES_MAX = 4 * 1024 * 1024


class RegionFile(Protocol):
    """An open file whose `fileno` raises once it is closed."""

    def fileno(self) -> int: ...


class FileRegion(Protocol):
    """Bytes of a file that need not pass through this process."""

    @property
    def file(self) -> RegionFile: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    def __len__(self) -> int: ...


class RegionCutOff(OSError):
    """The file ends before the region does: the announced bytes cannot be sent."""


@dataclass(frozen=True, slots=True)
class _PartOfRegion:
    """A part of a region, which is read or sent by itself."""

    file: RegionFile
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


def split_region(region: FileRegion, length: int) -> tuple[FileRegion, FileRegion]:
    """The first `length` bytes of a longer region, and the rest of it."""
    assert length < region.length
    file, position = region.file, region.position
    return (
        _PartOfRegion(file, position, length),
        _PartOfRegion(file, position + length, region.length - length),
    )


def read_region(region: FileRegion) -> bytes:
    """The bytes of a region that is small, or has to be encrypted in this process."""
    length = region.length
    descriptor = region.file.fileno()
    data = os.pread(descriptor, length, region.position)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), region.position + len(data))
        if not more:
            raise RegionCutOff(f"the file ends {length - len(data)} bytes inside a region")
        data += more
    return data


class FileSender:
    """Sends file regions over the socket of a transport, one after the other.

    The transport's own buffer must be empty, and nothing may be written to it until the region
    is out. uvloop has no `sendfile` and refuses `add_writer` on a transport's descriptor, so
    waiting for room in the socket goes through a duplicate of it, made when first needed. The
    duplicate keeps the connection open for the peer, so `close` must follow the transport's end.
    """

    __slots__ = (
        "_duplicate",
        "_file",
        "_loop",
        "_on_failed",
        "_on_progress",
        "_position",
        "_remaining",
        "_socket_descriptor",
        "_waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket_descriptor: int,
        *,
        on_progress: Callable[[int], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._socket_descriptor = socket_descriptor
        # Called with the bytes sent in a turn that `send` did not wait for.
        self._on_progress = on_progress
        self._on_failed = on_failed
        self._file: RegionFile | None = None
        self._position = 0
        self._remaining = 0
        self._duplicate = -1
        self._waits = False

    @property
    def is_sending(self) -> bool:
        return self._remaining > 0

    def send(self, region: FileRegion) -> int:
        """Sends what the socket accepts now and returns how much; the rest follows later."""
        assert not self._remaining, "a region is still under way"
        self._file = region.file
        self._position = region.position
        self._remaining = region.length
        return self._push()

    def close(self) -> None:
        """Drops what is left, and closes the duplicate."""
        self._remaining = 0
        self._file = None
        self._stop_waiting()
        if self._duplicate >= 0:
            duplicate, self._duplicate = self._duplicate, -1
            os.close(duplicate)

    def _push(self) -> int:
        assert self._file is not None
        sent_in_turn = 0
        while self._remaining and sent_in_turn < TURN_BYTES_MAX:
            count = min(self._remaining, TURN_BYTES_MAX - sent_in_turn)
            try:
                sent = os.sendfile(
                    self._socket_descriptor, self._file.fileno(), self._position, count
                )
            except BlockingIOError:
                break
            if sent == 0:
                raise RegionCutOff(f"the file ends {self._remaining} bytes inside a region")
            sent_in_turn += sent
            self._position += sent
            self._remaining -= sent
        if self._remaining:
            self._wait()
        else:
            self._file = None
            self._stop_waiting()
        return sent_in_turn

    def _wait(self) -> None:
        if self._waits:
            return
        if self._duplicate < 0:
            self._duplicate = os.dup(self._socket_descriptor)
        self._loop.add_writer(self._duplicate, self._writable)
        self._waits = True

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            self._loop.remove_writer(self._duplicate)

    def _writable(self) -> None:
        try:
            sent = self._push()
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            self.close()
            self._on_failed(error)
        else:
            self._on_progress(sent)

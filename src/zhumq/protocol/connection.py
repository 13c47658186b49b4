"""Splits received bytes into frames, whatever pieces the network delivers them in."""

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.primitives import INT32

_SIZE_BYTES = INT32.size
_read_size = INT32.unpack_from

# Pieces smaller than this are gathered, so that a frame sent byte by byte does not cost an
# object for each byte.
PIECE_BYTES_MIN = 4 * 1024


class ConnectionCodec:
    """The receiving side of one connection. Holds at most the received part of one frame."""

    __slots__ = ("_frame_bytes_max", "_held", "_held_bytes", "_size_part", "missing_bytes")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._size_part = b""  # of an incomplete size
        self._held: list[bytes | bytearray] = []  # pieces of a frame whose size is known
        self._held_bytes = 0
        # Of the same frame. 0: there is no such frame. The owner only reads it.
        self.missing_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes received of an incomplete frame."""
        return self._held_bytes + len(self._size_part)

    def receive_bytes(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, without their sizes. Raises MalformedFrame on a bad size."""
        frames: list[bytes] = []
        position = 0
        if self.missing_bytes:
            position = self.missing_bytes
            if len(data) < position:
                self._hold(data)
                return frames
            # A frame in many pieces is joined once, when it is complete.
            self._held.append(data[:position])
            frames.append(b"".join(self._held))
            self._held.clear()
            self._held_bytes = self.missing_bytes = 0
        elif self._size_part:
            data = self._size_part + data
            self._size_part = b""
        total = len(data)
        while True:
            body = position + _SIZE_BYTES
            if body > total:
                self._size_part = data[position:]
                return frames
            (size,) = _read_size(data, position)
            if not 0 < size <= self._frame_bytes_max:
                raise MalformedFrame(
                    f"frame size is {size} bytes; it must be 1 to {self._frame_bytes_max}"
                )
            position = body + size
            if position > total:
                self.missing_bytes = size
                self._hold(data[body:])
                return frames
            frames.append(data[body:position])

    def limit_frames(self, frame_bytes_max: int) -> None:
        """Sets the size of the largest frame, for frames that begin from now on."""
        self._frame_bytes_max = frame_bytes_max

    def close(self) -> None:
        """Drops the incomplete frame; nothing more is received."""
        self._held.clear()
        self._held_bytes = self.missing_bytes = 0

    def _hold(self, piece: bytes) -> None:
        held = self._held
        self._held_bytes += len(piece)
        self.missing_bytes -= len(piece)
        if len(piece) >= PIECE_BYTES_MIN:
            held.append(piece)
        elif held and isinstance(last := held[-1], bytearray):
            last += piece
        else:
            held.append(bytearray(piece))

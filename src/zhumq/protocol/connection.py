"""Bytes in, whole frames out, whatever pieces the network delivers them in."""

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.primitives import INT32

_SIZE_BYTES = INT32.size
_read_size = INT32.unpack_from

# Pieces smaller than this are gathered, so that a frame sent byte by byte does not cost an
# object for each byte.
PIECE_BYTES_MIN = 4 * 1024


class ConnectionCodec:
    """The receiving side of one connection. Holds at most what has been received of one frame."""

    __slots__ = ("_frame_bytes_max", "_held", "_held_bytes", "_size_part", "missing_bytes")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._size_part = b""  # of a size that is not whole yet
        self._held: list[bytes | bytearray] = []  # pieces of a frame whose size is known
        self._held_bytes = 0
        # Of the same frame. 0: not inside a frame whose size is known. Read by the owner only.
        self.missing_bytes = 0

    @property
    def held_bytes(self) -> int:
        """What was received and belongs to a frame that is not whole yet."""
        return self._held_bytes + len(self._size_part)

    def receive_bytes(self, data: bytes) -> list[bytes]:
        """The frames that became whole, without their sizes. Raises MalformedFrame on a bad size."""
        frames: list[bytes] = []
        position = 0
        if self.missing_bytes:
            position = self.missing_bytes
            if len(data) < position:
                self._hold(data)
                return frames
            # A frame that came in many pieces is joined once, when all of it is here.
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
                    f"a frame of {size} bytes; it must be 1 to {self._frame_bytes_max}"
                )
            position = body + size
            if position > total:
                self.missing_bytes = size
                self._hold(data[body:])
                return frames
            frames.append(data[body:position])

    def close(self) -> None:
        """Forgets what it holds: nothing more is received."""
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

"""TLS on an accepted connection: a protocol of its transport below, the transport of a protocol above."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from zhumq.model.buffers import Buffer
from zhumq.net.handshakes import Handshakes

# A good size of one write: pieces of it are encrypted, and go to the socket together.
WRITE_BYTES: Final = 128 * 1024
# Bytes that go through OpenSSL at once. Its buffers never shrink, so this bounds what a connection holds.
PIECE_BYTES: Final = 32 * 1024
READ_BYTES: Final = 256 * 1024
# What a client may send before its handshake is complete: hello, certificates, finished.
HANDSHAKE_BYTES_MAX: Final = 256 * 1024
# A client that asks for new keys again and again, and does not read, is cut off beyond this.
UNREAD_BYTES_MAX: Final = 1024 * 1024

# Decrypted bytes on their way to a protocol. One for all: the event loop is the only user.
_read_buffer: Final = memoryview(bytearray(READ_BYTES))


class TlsStream(asyncio.Transport, asyncio.Protocol):
    """Completes the handshake of a client, then encrypts and decrypts for a protocol.

    There is no plaintext in it between two calls: what a read decrypts is passed on at once, and what is
    written goes to the transport at once. So the transport's flow control is the protocol's.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        *,
        client_host: str,
        on_open: Callable[["TlsStream"], asyncio.Protocol | None],
        on_failed: Callable[[str], None],
    ) -> None:
        """`on_open` gives the protocol, or None to refuse the client. `on_failed` is called in its place."""
        super().__init__()
        self.client_host = client_host
        self._transport = transport
        self._context = context
        self._handshakes = handshakes
        self._on_open = on_open
        self._on_failed = on_failed
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # None until the client has sent something: a silent one costs nothing.
        self._tls: ssl.SSLObject | None = None
        # Received and not decrypted before the handshake is complete, and all that was received by then.
        self._early = b""
        self._early_bytes_total = 0
        self._protocol: asyncio.Protocol | None = None
        self._is_closing = False
        self._has_ended = False  # the client sent the end of TLS
        transport.set_protocol(self)
        handshakes.begin(self)

    # Called by the transport.

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._protocol is not None:
            self._read(self._protocol, data)
            return
        self._early += data
        self._early_bytes_total += len(data)
        self._transport.pause_reading()
        self._handshakes.enter(self)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(exc)
        else:
            self._give_up("the client closed the connection during the handshake")

    # Called by Handshakes.

    def take_step(self) -> None:
        if self._is_closing:
            return
        tls = self._tls
        if tls is None:
            tls = self._tls = self._context.wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
        early, self._early = memoryview(self._early), b""
        try:
            while True:
                self._incoming.write(early[:PIECE_BYTES])
                early = early[PIECE_BYTES:]
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if not early:
                        self._await_more()
                        return
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            self._end_handshake(_why(error))
            self._is_closing = True
            self._transport.close()
            return
        self._flush()
        self._open(bytes(early))

    def fail(self, reason: str) -> None:
        if self._protocol is None:
            self._end_handshake(reason)
            self.abort()

    def _await_more(self) -> None:
        self._flush()
        if self._early_bytes_total > HANDSHAKE_BYTES_MAX:
            self.fail("the client sent too much before the handshake was complete")
        else:
            self._transport.resume_reading()

    def _open(self, rest: bytes) -> None:
        self._handshakes.end(self)
        protocol = self._on_open(self)
        if protocol is None:
            self._on_failed = _ignore
            self.close()
            return
        self._protocol = protocol
        self._transport.resume_reading()
        if rest or self._incoming.pending:
            self._read(protocol, rest)

    def _end_handshake(self, reason: str) -> None:
        self._handshakes.end(self)
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        self._handshakes.end(self)
        on_failed, self._on_failed = self._on_failed, _ignore
        on_failed(reason)

    # Called by the protocol.

    @property
    def tls(self) -> ssl.SSLObject:
        assert self._tls is not None, "before the handshake"
        return self._tls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def write(self, data: Buffer) -> None:
        if self._is_closing or not data:
            return
        try:
            if len(data) <= PIECE_BYTES:
                self.tls.write(data)
                self._transport.write(self._outgoing.read())
                return
            view = memoryview(data)
            pieces = []
            for start in range(0, len(view), PIECE_BYTES):
                self.tls.write(view[start : start + PIECE_BYTES])
                pieces.append(self._outgoing.read())
            self._transport.writelines(pieces)
        except ssl.SSLError:
            # Only after a fault of the peer, which the next read reports.
            self.abort()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        # Joined: one record of TLS instead of many.
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def close(self) -> None:
        """Send what is written and the end of TLS, then close. The client's end is not awaited."""
        if self._is_closing:
            return
        self._is_closing = True
        with contextlib.suppress(ssl.SSLError):  # the client has not sent its own end
            self.tls.unwrap()
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _read(self, protocol: asyncio.Protocol, data: bytes) -> None:
        """Decrypt all records that are complete, and pass them on."""
        chunks: list[bytes] = []
        filled = 0
        view = memoryview(data)
        try:
            for start in range(0, len(data) or 1, PIECE_BYTES):
                self._incoming.write(view[start : start + PIECE_BYTES])
                filled = self._decrypt(chunks, filled)
        except ssl.SSLError:
            # Altered or malformed records, or an alert of the client.
            self._flush()
            self.abort()
            return
        if filled:
            chunks.append(bytes(_read_buffer[:filled]))
        if self._outgoing.pending:
            self._flush()  # answers to key updates
            if self.get_write_buffer_size() > UNREAD_BYTES_MAX:
                self.abort()
                return
        if chunks:
            protocol.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self._has_ended:
            self.close()

    def _decrypt(self, chunks: list[bytes], filled: int) -> int:
        """Fill the shared buffer behind what is in it already. Returns how far it is filled."""
        tls, incoming = self.tls, self._incoming
        # Where no bytes are left, another read would only raise SSLWantReadError.
        with contextlib.suppress(ssl.SSLWantReadError):
            while not self._has_ended and (incoming.pending or tls.pending()):
                # With a buffer it returns the number of bytes.
                count = cast("int", tls.read(READ_BYTES, _read_buffer[filled:]))
                filled += count
                self._has_ended = not count
                if filled == READ_BYTES:
                    chunks.append(bytes(_read_buffer))
                    filled = 0
        return filled


def _ignore(_reason: str) -> None:
    pass


def _why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if error.reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL"):
        return "the client does not speak TLS"
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has no certificate, and ssl.client.auth requires one"
    return f"the handshake failed: {(error.reason or str(error)).replace('_', ' ').lower()}"

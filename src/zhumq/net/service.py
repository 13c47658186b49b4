"""Interface between a listener and the service that answers its requests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from zhumq.protocol.api import Part

# A part is bytes-like, or a FileRegion. None: the request has no answer (acks=0).
Answer = list[Part] | asyncio.Future[list[Part] | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """One connection and its client."""

    id: int  # never used twice by one listener
    client_host: str
    client_port: int
    listener: str


class Service(Protocol):
    """Answers requests. Called on the event loop only."""

    def handle(self, frame: bytes, connection: ConnectionInfo) -> Answer:
        """Answers one request, at once or by a future; called in the order of the frames.

        MalformedFrame closes the connection. A future is cancelled when its connection is lost,
        so that nothing goes on waiting for a client that is gone.
        """

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Called last, when the connection has ended."""


# Answers the first frame, together with those behind it that can be served with it: returns how
# many they are, and their joined answers. None: the first frame is one for `Service.handle`.
HandleRun = Callable[[Sequence[bytes], ConnectionInfo], tuple[int, Answer] | None]

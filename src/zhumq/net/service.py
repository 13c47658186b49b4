"""The seam between a listener and what answers its requests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from zhumq.protocol.api import Part

# A part is bytes-like, or a FileRegion. None: the request has no answer (acks=0).
Answer = list[Part] | asyncio.Future[list[Part] | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """Whom the service is talking to."""

    id: int  # never used twice by one listener
    client_host: str
    client_port: int
    listener: str


class Service(Protocol):
    """What answers requests. Called on the event loop only."""

    def handle(self, frame: bytes, connection: ConnectionInfo) -> Answer:
        """Answers one request, at once or by a future; called in the order of the frames.

        MalformedFrame closes the connection. A future is cancelled when its connection is lost,
        so that nothing goes on waiting for a client that is gone.
        """

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """The client is gone. Nothing comes after this on that connection."""


# Answers the first of the frames, and those behind it that can be served together with it: how
# many they are, and their answers in one. None where the service has to be asked one by one.
HandleRun = Callable[[Sequence[bytes], ConnectionInfo], tuple[int, Answer] | None]

"""Interface between a listener and the service that answers its requests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from zhumq.model.ids import ANONYMOUS, Principal
from zhumq.model.security_protocol import SecurityProtocol
from zhumq.protocol.api import Part

# A part is bytes-like, or a FileRegion. None: the request has no answer (acks=0).
Answer = list[Part] | asyncio.Future[list[Part] | None] | None


@dataclass(slots=True, kw_only=True, eq=False)
class ConnectionInfo:
    """One connection and its client."""

    id: int  # never used twice by one listener
    client_host: str
    client_port: int
    listener: str
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    principal: Principal = ANONYMOUS  # until the client authenticates
    # False on a listener with SASL until the client has authenticated: then it may do nothing else.
    is_authenticated: bool = True
    # Called by the service: the connection reads and serves nothing more for so many milliseconds.
    mute: Callable[[int], None] = lambda _milliseconds: None
    # Set by the service together with an answer that it gives by a future: the last one of the connection.
    closes_after_answer: bool = False
    # Produce requests that were served, those of them that are noted, and with which one the next is noted.
    produced: int = 0
    produced_seen: int = 0
    produced_due: int = 0
    # Set by the connection, which holds a client to other limits until it has authenticated.
    on_authenticated: Callable[[], None] | None = None

    def authenticate(self, principal: Principal) -> None:
        """The client has authenticated."""
        self.principal = principal
        self.is_authenticated = True
        if self.on_authenticated is not None:
            self.on_authenticated()
            self.on_authenticated = None


class Service(Protocol):
    """Answers requests. Called on the event loop only."""

    def handle(self, frames: Sequence[bytes], connection: ConnectionInfo) -> tuple[int, Answer]:
        """Answers the first request, at once or by a future, and those right behind it that can be
        served together with it. Returns how many, and their joined answers.

        Called in the order of the frames. MalformedFrame closes the connection. A future is cancelled when its connection is lost,
        so that nothing goes on waiting for a client that is gone.
        """

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Called last, when the connection has ended."""

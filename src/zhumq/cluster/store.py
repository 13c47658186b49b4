"""Where the cluster's picture is kept: the seam that the local store and ZooKeeper both fill."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol

from zhumq.metadata.changes import Change
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.model.errors import BrokerError, ErrorCode, ZhumqError

Watcher = Callable[[ClusterImage], None]


class VersionConflict(ZhumqError):
    """The picture has moved on since the changes were decided: decide again."""


class ControllerFenced(ZhumqError):
    """Another broker decides for the cluster now. What this one decided does not count."""


class StoreUnavailable(BrokerError):
    """The store does not answer. Whether the last proposal counts shows in a later picture."""

    code = ErrorCode.REQUEST_TIMED_OUT


class StoreUnusable(ZhumqError):
    """The store cannot be used as it is given; the message says why and what to do."""


class BrokerIdTaken(StoreUnusable):
    """Another live broker is registered under this broker's number."""


class SessionState(StrEnum):
    """How a broker stands with the store that tells the others it is alive."""

    CONNECTED = "connected"
    # No word from the store. Others may soon take this broker for dead.
    SUSPENDED = "suspended"
    # Others take this broker for dead: it leads nothing until it is registered again.
    LOST = "lost"
    CLOSED = "closed"


SESSION_TRANSITIONS: Final[dict[SessionState, frozenset[SessionState]]] = {
    SessionState.CONNECTED: frozenset(
        {SessionState.SUSPENDED, SessionState.LOST, SessionState.CLOSED}
    ),
    SessionState.SUSPENDED: frozenset(
        {SessionState.CONNECTED, SessionState.LOST, SessionState.CLOSED}
    ),
    # Suspended: the link broke again after the broker had registered in its new session.
    SessionState.LOST: frozenset(
        {SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CLOSED}
    ),
    SessionState.CLOSED: frozenset(),
}


class MetadataStore(Protocol):
    """One durable picture of the cluster, changed only by versioned proposals."""

    @property
    def image(self) -> ClusterImage:
        """The newest picture this broker knows."""

    def watch(self, watcher: Watcher) -> None:
        """Call back with every new picture, in order, on the event loop."""

    async def register(self, broker: Broker) -> None:
        """This broker is alive and reached there, until the store is closed."""

    async def propose(self, changes: Sequence[Change], expected_version: int) -> ClusterImage:
        """Make the changes durable if the version is still the expected one, else raise
        VersionConflict. When this returns, the watchers have seen the new picture."""

    async def close(self) -> None:
        """Let go of files and sessions. Nothing is proposed after that."""

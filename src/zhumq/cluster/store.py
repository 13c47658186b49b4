"""The metadata store seam, which the local store and the ZooKeeper store implement."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol

from zhumq.metadata.changes import Change
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.model.errors import BrokerError, ErrorCode, ZhumqError

Watcher = Callable[[ClusterImage], None]


class VersionConflict(ZhumqError):
    """The metadata image is newer than the one that the changes were decided on: decide again."""


class ControllerFenced(ZhumqError):
    """Another broker is the controller now. Decisions of this broker do not count."""


class StoreUnavailable(BrokerError):
    """The store does not answer. A later metadata image shows whether the last proposal counts."""

    code = ErrorCode.REQUEST_TIMED_OUT


class StoreUnusable(ZhumqError):
    """The store cannot be used; the message names the reason and the remedy."""


class BrokerIdTaken(StoreUnusable):
    """Another live broker is registered under this broker id."""


class SessionState(StrEnum):
    """State of a broker's session, by which the store shows the other brokers that it is alive."""

    CONNECTED = "connected"
    # The store is unreachable. The session may expire soon.
    SUSPENDED = "suspended"
    # The session has expired: this broker leads nothing until it registers again.
    LOST = "lost"
    CLOSED = "closed"


SESSION_TRANSITIONS: Final[dict[SessionState, frozenset[SessionState]]] = {
    SessionState.CONNECTED: frozenset(
        {SessionState.SUSPENDED, SessionState.LOST, SessionState.CLOSED}
    ),
    SessionState.SUSPENDED: frozenset(
        {SessionState.CONNECTED, SessionState.LOST, SessionState.CLOSED}
    ),
    # To SUSPENDED: the link broke again after the broker had registered in its new session.
    SessionState.LOST: frozenset(
        {SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CLOSED}
    ),
    SessionState.CLOSED: frozenset(),
}


class MetadataStore(Protocol):
    """One durable metadata image of the cluster, changed only by versioned proposals."""

    @property
    def image(self) -> ClusterImage:
        """The newest metadata image that this broker knows."""

    def watch(self, watcher: Watcher) -> None:
        """Call the watcher with every new image, in order, on the event loop."""

    async def register(self, broker: Broker) -> None:
        """Register this broker with its listeners until the store is closed."""

    async def propose(self, changes: Sequence[Change], expected_version: int) -> ClusterImage:
        """Make the changes durable if the version is still the expected one.

        Otherwise raises VersionConflict. When this returns, the watchers have the new image.
        """

    async def close(self) -> None:
        """Close files and sessions. Call nothing after this."""

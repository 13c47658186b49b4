"""Where the cluster's picture is kept: the seam that the local store and ZooKeeper both fill."""

from collections.abc import Callable, Sequence
from typing import Protocol

from zhumq.metadata.changes import Change
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.model.errors import ZhumqError

Watcher = Callable[[ClusterImage], None]


class VersionConflict(ZhumqError):
    """The picture has moved on since the changes were decided: decide again."""


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

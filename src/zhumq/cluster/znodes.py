"""The words of ZooKeeper without its client: operations on nodes, answers, and what can go wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from zhumq.model.errors import ZhumqError

ANY_VERSION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make a node; it must not be there. A sequential one gets a number behind its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Write a node, which must be there and have this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove a node, which must be there."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Change nothing, but fail unless the node is there and has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What a node held when it was read."""

    data: bytes
    version: int
    created_zxid: int
    modified_zxid: int
    # The session an ephemeral node goes away with; 0 for the others.
    owner_session: int


class LinkState(StrEnum):
    """What a client knows of its connection."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    # The session is over, and its ephemeral nodes with it. A new one follows.
    LOST = "lost"


class ZnodeError(ZhumqError):
    """An operation on a node did not happen, or its answer did not arrive."""

    said = "ZooKeeper refused an operation on the node {path}"

    def __init__(self, path: str) -> None:
        super().__init__(self.said.format(path=path))
        self.path = path


class NodeMissing(ZnodeError):
    """There is no such node, or no parent for it."""

    said = "there is no node {path} in ZooKeeper"


class NodeTaken(ZnodeError):
    """There is such a node already."""

    said = "there is a node {path} in ZooKeeper already"


class NodeChanged(ZnodeError):
    """The node has another version than expected."""

    said = "the node {path} in ZooKeeper has changed"


class NodeForbidden(ZnodeError):
    """The node's access list does not let this client do that."""

    said = "ZooKeeper does not let this broker use the node {path}: look at its access list"


class NodeRefused(ZnodeError):
    """The server did not do it for a reason of its own, which the message ends in."""


class ConnectionLost(ZnodeError):
    """No answer came. The operation may have been carried out."""

    said = "ZooKeeper did not answer about the node {path}"


class SessionOver(ZnodeError):
    """The session is gone, and its ephemeral nodes with it."""

    said = "the session with ZooKeeper ended before it answered about the node {path}"


class Client(Protocol):
    """A session with an ensemble. Every call is bounded in time and answered on the event loop."""

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node:
        """Read a node. `watch` is called once, when it changes or the connection is lost."""

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes side by side, not one after another. None where there is no node."""

    async def exists(self, path: str, watch: Callable[[], None] | None = None) -> bool:
        """Whether there is such a node. `watch` as in `get`, also for one that comes to be."""

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """The names of a node's children."""

    async def multi(self, operations: Sequence[Operation]) -> list[str]:
        """All of the operations or none. The paths of the nodes that were made, in order.

        Raises the error of the first operation that cannot be, with its path.
        """

    async def sync(self) -> None:
        """What is read after this is at least as new as what the ensemble has agreed on now."""

    async def ensure_chroot(self) -> None:
        """Make the node that all paths begin at, and the ones above it, where they are missing.

        To be called while nothing else is asked."""

    async def close(self) -> None:
        """End the session: its ephemeral nodes are gone when this returns."""

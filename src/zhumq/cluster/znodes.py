"""ZooKeeper's operations, nodes and errors, independent of the client library."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from zhumq.model.errors import ZhumqError

ANY_VERSION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a node, which must not exist. A sequential node gets a number appended to its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Write a node, which must exist and have this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a node, which must exist."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Change nothing, but fail unless the node exists and has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
# An entry of a node's ACL: scheme, identity, and what it may do as ZooKeeper's bits.
NodePermission = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Content and metadata of a node when it was read."""

    data: bytes
    version: int
    created_zxid: int
    modified_zxid: int
    # The session that owns an ephemeral node; 0 for other nodes.
    owner_session: int


class LinkState(StrEnum):
    """State of a client's connection."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    # The session has expired, and its ephemeral nodes are gone. A new session follows.
    LOST = "lost"


class ZnodeError(ZhumqError):
    """An operation on a node failed, or its answer did not arrive."""

    message = "ZooKeeper refused an operation on the node {path}"

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(self.message.format(path=path) + (f": {reason}" if reason else ""))
        self.path = path


class NodeMissing(ZnodeError):
    """The node, or its parent, does not exist."""

    message = "the node {path} does not exist in ZooKeeper"


class NodeTaken(ZnodeError):
    """The node exists already."""

    message = "the node {path} exists in ZooKeeper already"


class NodeChanged(ZnodeError):
    """The node has another version than expected."""

    message = "the node {path} in ZooKeeper has changed"


class NodeForbidden(ZnodeError):
    """The node's ACL does not permit the operation."""

    message = (
        "ZooKeeper does not permit this broker to use the node {path}: give it the credentials of the"
        " cluster's other brokers (zookeeper.auth.username and zookeeper.auth.password, or the keystore)"
    )


class NotAuthenticated(ZnodeError):
    """ZooKeeper cannot restrict a node to this broker because it does not know who that is."""

    message = (
        "ZooKeeper does not know who this broker is, so it cannot restrict the node {path} to it: set"
        " zookeeper.auth.username and zookeeper.auth.password, or let the ensemble authenticate its certificate"
    )


class NodeRefused(ZnodeError):
    """The server refused the operation; the message ends with its reason."""


class ConnectionLost(ZnodeError):
    """No answer arrived. The server may have carried out the operation."""

    message = "ZooKeeper did not answer a request for the node {path}"


class CredentialsRefused(ConnectionLost):
    """ZooKeeper refused the credentials, or broke the connection while it checked them."""

    message = (
        "ZooKeeper refused the credentials of this broker: check zookeeper.auth.scheme,"
        " zookeeper.auth.username and zookeeper.auth.password"
    )


class SessionOver(ZnodeError):
    """The session has expired, and its ephemeral nodes are gone."""

    message = "the ZooKeeper session expired before the answer to a request for the node {path}"


class Client(Protocol):
    """A session with an ensemble. Every call is bounded in time and completes on the event loop."""

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node:
        """Read a node. Calls `watch` once, when the node changes or the connection is lost."""

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes concurrently. None for a node that does not exist."""

    async def exists(self, path: str, watch: Callable[[], None] | None = None) -> bool:
        """Whether the node exists. `watch` as in `get`; it also reports the creation of the node."""

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """The names of a node's children."""

    async def multi(self, operations: Sequence[Operation]) -> list[str]:
        """Carry out all operations or none. Returns the paths of the created nodes, in order.

        Raises the error of the first operation that fails, with its path.
        """

    async def acl(self, path: str) -> frozenset[NodePermission]:
        """The node's ACL."""

    async def restrict(self, path: str) -> None:
        """Permit all operations on the node to the identities of this session, and none to others."""

    async def sync(self) -> None:
        """Later reads return at least what the ensemble has committed by now."""

    async def ensure_chroot(self) -> None:
        """Create the chroot node and its parents where they are missing.

        Call this only while no other request is in flight.
        """

    async def close(self) -> None:
        """End the session. Its ephemeral nodes are gone when this returns."""

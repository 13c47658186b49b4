"""Restricts the nodes of a cluster in ZooKeeper to its brokers, while other brokers use them."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.ensemble_link import RETRY_SECONDS, EnsembleLink
from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import (
    Client,
    ConnectionLost,
    NodeMissing,
    NodePermission,
    SessionOver,
    ZnodeError,
)

NODES_AT_ONCE_MAX: Final = 500
_SYSTEM: Final = "/zookeeper"  # quotas and the members of the ensemble: not of an application

logger = logging.getLogger(__name__)


async def restrict_root(client: Client, ensemble: str) -> None:
    """Restrict the chroot: who may create and delete nodes in it.

    Raises StoreUnusable if other applications use the root of an ensemble without a chroot.
    """
    if "/" not in ensemble:
        children = {f"/{name}" for name in await client.children("/")}
        others = children - layout.OWN_NODES - {_SYSTEM}
        if others:
            raise StoreUnusable(
                f"zookeeper.set.acl would lock other applications out of {ensemble}, which has the nodes"
                f" {', '.join(sorted(others)[:3])}: give the cluster a chroot, such as HOST:PORT/zhumq"
            )
    await client.restrict("/")


async def restrict_nodes(client: Client, link: EnsembleLink) -> None:
    """Restrict the nodes that were created before `zookeeper.set.acl`, or by brokers without it."""
    while True:
        try:
            if count := await _restrict_all(client):
                logger.info("restricted %d nodes in ZooKeeper to the brokers", count)
        except (ConnectionLost, SessionOver):
            await link.wait_until_connected()
            await asyncio.sleep(RETRY_SECONDS)
        except ZnodeError as reason:
            logger.error("cannot restrict the nodes of this cluster: %s", reason)  # noqa: TRY400
            return
        else:
            return


async def warn_if_open(client: Client, ensemble: str) -> None:
    """Log whether the cluster's secret is open to everyone who can reach ZooKeeper."""
    with contextlib.suppress(ZnodeError):
        if any(scheme == "world" for scheme, _, _ in await client.acl(layout.SECRET)):
            logger.warning(
                "everyone who can reach ZooKeeper at %s can read the secret of this cluster and change its"
                " metadata: set zookeeper.set.acl=true, with credentials (docs/security.md)",
                ensemble,
            )


async def _restrict_all(client: Client) -> int:
    """Restrict every node that is not restricted as the root is; returns how many there were."""
    expected = await client.acl("/")
    level: Sequence[str] = [path for path in layout.OWN_NODES if await client.exists(path)]
    restricted = 0
    while level:
        below: list[str] = []
        for start in range(0, len(level), NODES_AT_ONCE_MAX):
            some = level[start : start + NODES_AT_ONCE_MAX]
            changed = await asyncio.gather(*(_restrict(client, path, expected) for path in some))
            restricted += sum(changed)
            for children in await asyncio.gather(*(_children(client, path) for path in some)):
                below += children
        level = below
    return restricted


async def _restrict(client: Client, path: str, expected: frozenset[NodePermission]) -> bool:
    with contextlib.suppress(NodeMissing):  # deleted meanwhile
        if await client.acl(path) != expected:
            await client.restrict(path)
            return True
    return False


async def _children(client: Client, path: str) -> Sequence[str]:
    # Only the nodes at the top have children: asking ten thousand topics would double the requests.
    if path.count("/") > 1:
        return ()
    with contextlib.suppress(NodeMissing):
        return [f"{path}/{name}" for name in await client.children(path)]
    return ()

"""A single node needs no kazoo; with --zookeeper and without kazoo the error names the package."""

import asyncio
import sys

import pytest

from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.zookeeper_store import ZookeeperStore


def test_a_missing_kazoo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "zhumq.cluster.zookeeper_client", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(StoreUnusable, match=r"pip install 'zhumq\[cluster\]'"):
        asyncio.run(ZookeeperStore.open("127.0.0.1:1", new_cluster_id="c"))

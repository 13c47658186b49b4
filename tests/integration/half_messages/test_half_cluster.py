"""Half messages in a cluster of three brokers on ZooKeeper: each of them is killed while messages are pending and moved."""

from collections import Counter
from pathlib import Path

import pytest
from half_support import SETTINGS, Orders, Shop, listed, wait_for, wait_for_values

import zhumq
from zhumq.model.ids import HALF_MESSAGES_TOPIC
from zhumq.testing.cluster import ClusterProcesses, cluster_processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 3
HALF_SHARDS = {"half.message.topic.num.partitions": "1", "half.message.check.max": "1000"}


@pytest.mark.thorough
def test_half_messages_survive_the_death_of_each_broker_of_three(tmp_path: Path) -> None:
    with cluster_processes(folder=tmp_path, settings=SETTINGS | HALF_SHARDS) as cluster:
        with zhumq.Admin(cluster.bootstrap) as admin:
            admin.create_topic("orders", partitions=PARTITIONS, replicas=3)
        orders = Orders(tmp_path / "orders.db")
        shop = Shop(cluster.bootstrap, orders)
        shop.start()
        with zhumq.HalfMessageProducer(
            cluster.bootstrap, group="shop", check=lambda half: orders.has(half.id), timeout=120
        ):
            wait_for(lambda: shop.taken >= 20, "orders are taken")
            killed = kill_the_coordinator(cluster)
            shop.wait_for_progress()
            cluster.restart(killed)
            for broker_id in sorted(cluster.brokers):
                if broker_id != killed:
                    cluster.kill(broker_id)
                    shop.wait_for_progress()
                    cluster.restart(broker_id)
                    shop.wait_for_progress()
            shop.stop()
            wait_for(lambda: not listed(cluster.bootstrap), "all half messages are decided", 120)
            expected = Counter(item.encode() for item in orders.items())
            assert len(expected) > 40
            wait_for_values(cluster.bootstrap, "orders", expected, partitions=PARTITIONS)


def kill_the_coordinator(cluster: ClusterProcesses) -> int:
    leader = cluster.leader_of(HALF_MESSAGES_TOPIC)
    assert leader is not None
    cluster.kill(leader)
    return leader

"""A broker that is named leader and does not serve reports it in /healthz and in its metrics."""

from dataclasses import replace
from pathlib import Path

from replication_support import T0, Node, nodes, produce, run, until

from zhumq.broker.metrics import cluster_metrics, membership_problems, unserved_partitions
from zhumq.cluster.store import SessionState
from zhumq.metadata.changes import BrokerRegistered
from zhumq.model.ids import TopicPartition
from zhumq.model.replication_mode import Mode


def _unserved(node: Node) -> list[TopicPartition]:
    return unserved_partitions(node.broker_id, node.store.image, node.replicas)


def _leaderless(node: Node) -> float:
    metrics = cluster_metrics(
        node.broker_id, node.store.image, SessionState.CONNECTED, _unserved(node)
    )
    (found,) = [each for each in metrics if each.name == "zhumq_cluster_partitions_leaderless"]
    return found.samples[0][1]


def test_a_named_leader_that_does_not_serve_is_no_leader_and_not_well(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            node = up[1]
            assert _unserved(node) == []
            assert list(membership_problems(SessionState.CONNECTED, [])) == []
            # Registered again and named in the new broker epoch, which the replicas do not know yet.
            broker = replace(up.store.image.brokers[node.broker_id], epoch=999)
            up.store.write(BrokerRegistered(broker=broker))
            up.store.repair()
            assert up.store.image.leader_of(up.store.image.topics["t"].partitions[0]) == 1
            assert _unserved(node) == [T0]
            assert _leaderless(node) == 1
            assert list(membership_problems(SessionState.CONNECTED, _unserved(node))) == [
                "leader of 1 partitions that it does not serve: t-0"
            ]
            node.own_store.broker_epoch = 999
            node.replicas.on_registered(999)
            await until(lambda: not _unserved(node), "it serves")
            assert _leaderless(node) == 0
            await produce(up, "b")

    run(body())


def test_a_broker_without_a_session_is_not_well() -> None:
    assert list(membership_problems(SessionState.LOST, [])) == [
        "the session with ZooKeeper is lost"
    ]

"""Consistency or availability: what acks and min.insync.replicas mean when two of three brokers are dead.

It kills brokers, so it always starts a cluster of its own: ZooKeeper (from PySpark's jars) and three processes.
"""

import logging

from _broker import parser

import zhumq
from zhumq.client.errors import RequestFailed
from zhumq.testing.cluster import ClusterProcesses, cluster_processes

GIVE_UP_MS = 3_000


def send(cluster: ClusterProcesses, topic: str, acks: str) -> str:
    """Send a message with this acks level; returns what became of it."""
    settings = {"enable.idempotence": False, "acks": acks, "message.timeout.ms": GIVE_UP_MS}
    try:
        with zhumq.Producer(cluster.bootstrap, settings=settings) as producer:
            producer.send(topic, b"money")
    except RequestFailed:
        return "not taken"
    return "taken"


def main() -> None:
    if parser.parse_args().bootstrap:
        parser.error("this example kills brokers, and starts its own: leave out --bootstrap")
    logging.getLogger("zhumq").setLevel(logging.ERROR)
    with cluster_processes(nodes=3) as cluster:
        for mode in ("raft", "fetch"):
            with zhumq.Admin(cluster.bootstrap) as admin:
                settings = {"replication.mode": mode, "min.insync.replicas": "2"}
                admin.create_topic(f"{mode}-topic", partitions=1, replicas=3, settings=settings)
            cluster.wait_for_leader(f"{mode}-topic")

        def show(brokers: str) -> None:
            for mode in ("raft", "fetch"):
                results = {acks: send(cluster, f"{mode}-topic", acks) for acks in ("all", "1")}
                print(f"{brokers}, {mode}: acks=all {results['all']}, acks=1 {results['1']}")

        show("3 brokers")
        for left in (2, 1):
            victim = max(broker_id for broker_id, each in cluster.brokers.items() if each.running)
            cluster.kill(victim)
            alive = {broker_id for broker_id, each in cluster.brokers.items() if each.running}
            cluster.wait_for_brokers(alive)
            if left == 2:
                cluster.wait_for_leader("raft-topic", other_than=victim)
            cluster.wait_for_leader("fetch-topic", other_than=victim)
            show(f"{left} broker{'s' * (left > 1)}")


if __name__ == "__main__":
    main()

"""Measures three real brokers with many partitions: idle CPU, failover, a fourth broker joining under load.

    python -m benchmarks.cluster_size --partitions 1000 --mode raft

Prints one line for each figure. CPU is the time of the processes, so it is also valid on a busy machine;
times are not.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from zhumq.testing.cluster import ClusterProcesses, wait_for

TOPIC: Final = "sized"
SETTLE_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 15.0
WAIT_SECONDS_MAX: Final = 300.0
TICKS_PER_SECOND: Final = 100


class Writer:
    """An idempotent producer with acks=-1 that measures the longest time without an acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**settings, "linger.ms": 1, "request.timeout.ms": 3_000})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._last_answer = time.monotonic()
        self.acknowledged = 0
        self.failed = 0
        self.longest_gap_seconds = 0.0

    def start(self) -> None:
        self._last_answer = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)

    def _write(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(TOPIC, b"x" * 100, on_delivery=self._answered)
            self._producer.poll(0.002)

    def _answered(self, error: KafkaError | None, _: Message) -> None:
        now = time.monotonic()
        self.longest_gap_seconds = max(self.longest_gap_seconds, now - self._last_answer)
        self._last_answer = now
        self.acknowledged += error is None
        self.failed += error is not None


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def leaders(cluster: ClusterProcesses) -> Counter[int]:
    topic = cluster.admin().list_topics(TOPIC, timeout=30).topics[TOPIC]
    return Counter(each.leader for each in topic.partitions.values())


def replicas(cluster: ClusterProcesses) -> Counter[int]:
    topic = cluster.admin().list_topics(TOPIC, timeout=30).topics[TOPIC]
    return Counter(each for partition in topic.partitions.values() for each in partition.replicas)


def all_led(cluster: ClusterProcesses, partitions: int, without: int = -1) -> bool | None:
    led = leaders(cluster)
    alive = sum(count for broker, count in led.items() if broker not in (-1, without))
    return alive == partitions or None


def measure(cluster: ClusterProcesses, partitions: int) -> None:
    cluster.start()
    admin = cluster.admin()
    began = time.monotonic()
    admin.create_topics([NewTopic(TOPIC, partitions, 3)])[TOPIC].result(WAIT_SECONDS_MAX)
    wait_for(lambda: all_led(cluster, partitions), "leaders", WAIT_SECONDS_MAX)
    report("created and led after", f"{time.monotonic() - began:.1f} s", dict(leaders(cluster)))
    time.sleep(SETTLE_SECONDS)
    pids = {each: broker.pid for each, broker in cluster.brokers.items()}
    before = {each: cpu_seconds(pid) for each, pid in pids.items()}
    time.sleep(IDLE_SECONDS)
    used = {each: cpu_seconds(pid) - before[each] for each, pid in pids.items()}
    report(
        "idle, per cent of a core", {k: round(100 * v / IDLE_SECONDS, 1) for k, v in used.items()}
    )
    began = time.monotonic()
    cluster.kill(1)
    wait_for(lambda: all_led(cluster, partitions, without=1), "new leaders", WAIT_SECONDS_MAX)
    report("after kill -9 of broker 1 all led by others in", f"{time.monotonic() - began:.1f} s")
    cluster.restart(1)
    cluster.wait_for_brokers([1, 2, 3])
    writer = Writer(cluster.bootstrap)
    writer.start()
    cluster.add(4).start()
    cluster.wait_for_brokers([1, 2, 3, 4])
    began = time.monotonic()
    command = [sys.executable, "-m", "zhumq", "cluster", "rebalance", "--yes", "--at-once", "50"]
    command += ["--bootstrap", cluster.brokers[2].bootstrap]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    report("a fourth broker has its share after", f"{time.monotonic() - began:.1f} s")
    writer.stop()
    report("replicas", dict(sorted(replicas(cluster).items())), "leaders", dict(leaders(cluster)))
    report(
        "meanwhile", writer.acknowledged, "acknowledged", writer.failed, "failed, longest gap",
        f"{writer.longest_gap_seconds:.1f} s",
    )  # fmt: skip


def report(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--mode", choices=("raft", "fetch"), default="raft")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zhumq-size-") as folder:
        cluster = ClusterProcesses(Path(folder), settings={"replication.mode": options.mode})
        try:
            measure(cluster, options.partitions)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()

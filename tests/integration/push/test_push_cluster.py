"""Three brokers on ZooKeeper: every mode over all of them, and a parked session that outlives its broker."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from push_support import new_topic, numbered, run, send, until

from zhumq import Admin, Consumer, PushConsumer
from zhumq.admin.sessions import Session
from zhumq.testing.cluster import ClusterProcesses

SETTINGS = {
    "push.ping.interval.ms": "200",
    "push.ping.timeout.ms": "1500",
    "push.retries.max": "1",
    "push.retry.backoff.ms": "100",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "delivery.backoff.ms": "20",
}
PROGRAM = Path(__file__).with_name("stalling_consumer.py")
COUNT = 300

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    processes = ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings=SETTINGS)
    try:
        processes.start()
        yield processes
    finally:
        processes.stop()


@pytest.fixture
def cluster(processes: ClusterProcesses) -> ClusterProcesses:
    """The cluster with all its brokers: on a busy machine one may have lost its session."""
    processes.wait_for_brokers(processes.brokers)
    return processes


def pushes(cluster: ClusterProcesses) -> str:
    return ",".join(broker.push for broker in cluster.brokers.values())


@pytest.mark.parametrize("mode", ["psb", "ptp-shared", "ptp"])
def test_a_consumer_is_given_the_partitions_of_all_brokers(
    cluster: ClusterProcesses, mode: str
) -> None:
    topic = new_topic(cluster.bootstrap, partitions=6)
    send(cluster.bootstrap, topic, numbered(COUNT), partitions=6)

    async def scenario() -> None:
        async with PushConsumer(
            topic,
            group="all",
            mode=mode,  # type: ignore[arg-type]
            bootstrap=cluster.bootstrap,
            credits=30,
        ) as consumer:
            seen: dict[int, list[bytes | None]] = {each: [] for each in range(6)}
            async for message in consumer:
                seen[message.partition].append(message.value)
                if sum(map(len, seen.values())) == COUNT:
                    break
        for partition, values in seen.items():
            expected = numbered(COUNT)[partition::6]
            assert sorted(values) == sorted(expected)  # type: ignore[type-var]
            if mode != "ptp-shared":
                assert values == expected

    run(scenario(), 90)


@pytest.mark.thorough
def test_a_stalled_process_stays_parked_when_its_broker_dies_and_continues_when_resumed(
    cluster: ClusterProcesses,
) -> None:
    topic = new_topic(cluster.bootstrap)
    send(cluster.bootstrap, topic, numbered(5))

    def parked() -> Session | None:
        found = Admin(cluster.bootstrap).sessions("stalled")
        return next((each for each in found if each.state == "parked"), None)

    def begin() -> "subprocess.Popen[str]":
        arguments = [pushes(cluster), topic, "stalled", "psb", "10", "5000"]
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def scenario() -> None:
        consumer = begin()
        done: set[int] = set()
        try:
            await asyncio.to_thread(_collect, consumer, done, 5)
            consumer.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(send, cluster.bootstrap, topic, numbered(5, first=5))
            session = await until(lambda: asyncio.to_thread(parked), 60)
            # The broker that serves it dies, and another one becomes leader.
            killed = session.broker_id
            await asyncio.to_thread(cluster.kill, killed)
        finally:
            consumer.send_signal(signal.SIGCONT)
            consumer.kill()
            consumer.communicate()
        session = await until(lambda: asyncio.to_thread(parked), 60)
        assert session.reason
        await asyncio.to_thread(Admin(cluster.bootstrap).resume_session, session.name)
        consumer = begin()
        again: set[int] = set()
        try:
            messages = await asyncio.to_thread(_offsets, cluster.bootstrap, topic, 10)
            while not messages <= done | again:
                await asyncio.to_thread(_collect, consumer, again, len(again) + 1)
        finally:
            consumer.kill()
            consumer.communicate()
            await asyncio.to_thread(cluster.restart, killed)
        assert not done & again & messages, "it continues exactly at its position"

    run(scenario(), 240)


def _collect(consumer: "subprocess.Popen[str]", offsets: set[int], count: int) -> None:
    """Collect the offsets that the consumer acknowledges, until there are `count`."""
    assert consumer.stdout is not None
    while len(offsets) < count:
        words = consumer.stdout.readline().split()
        assert words, "the consumer has ended"
        if words[0] == "ack":
            offsets.update(range(int(words[3]), int(words[4]) + 1))


def _offsets(bootstrap: str, topic: str, count: int) -> set[int]:
    """The offsets of the messages: a new leader of a raft log writes a record of its own."""
    found: set[int] = set()
    with Consumer(topic, mode="psb", bootstrap=bootstrap, auto_ack=False) as consumer:
        while len(found) < count:
            for message in consumer.poll(10):
                found.add(message.offset)
                message.ack()
    return found


def test_chosen_partitions_of_all_brokers_are_read_and_their_group_is_known_to_all(
    cluster: ClusterProcesses,
) -> None:
    # In fetch mode a new leader writes no record of its own.
    settings = {"replication.mode": "fetch"}
    topic = new_topic(cluster.bootstrap, partitions=6, settings=settings)
    send(cluster.bootstrap, topic, numbered(60), partitions=6)
    seen: set[tuple[int, int]] = set()
    with Consumer({topic: [0, 1, 2]}, mode="ptp", start=4, bootstrap=cluster.bootstrap) as consumer:
        for message in consumer:
            seen.add((message.partition, message.offset))
            if len(seen) == 18:
                break
    assert seen == {(partition, offset) for partition in range(3) for offset in range(4, 10)}
    group = f"zhumq.ptp.{topic}"
    with Admin(cluster.bootstrap) as admin:
        found = admin.subscription_groups()[group]
        assert (found.mode, found.claims) == ("ptp", [topic])
        assert [(each.partition, each.lag) for each in found.partitions] == [(0, 0), (1, 0), (2, 0)]
        assert admin.release_topic(topic) == group
        assert admin.subscription_groups()[group].claims == []

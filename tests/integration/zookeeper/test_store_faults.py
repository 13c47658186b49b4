"""Expired sessions, killed and paused servers, stopped brokers: all metadata images agree."""

import asyncio
import os
import random
import uuid
from collections.abc import Callable

import pytest
from zookeeper_support import (
    LIMITS,
    Member,
    alone_in_sync,
    expire,
    join,
    topic_created,
    wait_for,
)

from zhumq.cluster.dev_zookeeper import DevZookeeper, dev_zookeeper
from zhumq.cluster.store import StoreUnavailable
from zhumq.metadata.image import NO_BROKER, ClusterImage
from zhumq.metadata.topics import NewTopic, plan_topic
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, TopicPartition

FAULTS = int(os.environ.get("ZHUMQ_STORE_FAULTS", "10"))
SEED = int(os.environ.get("ZHUMQ_STORE_SEED", "1"))
PARTITIONS = 12
SERVER_LINES = 150


class SeenImages:
    """Every metadata image that any broker saw, with the checks that they agree."""

    def __init__(self) -> None:
        self.by_version: dict[int, ClusterImage] = {}
        self.leaders: dict[tuple[TopicPartition, int], BrokerId] = {}

    def watcher(self) -> Callable[[ClusterImage], None]:
        newest = 0

        def see(image: ClusterImage) -> None:
            nonlocal newest
            assert image.version > newest
            newest = image.version
            assert self.by_version.setdefault(image.version, image) == image
            for name, topic in image.topics.items():
                for index, state in enumerate(topic.partitions):
                    if state.leader != NO_BROKER:
                        key = (TopicPartition(name, index), int(state.leader_epoch))
                        assert self.leaders.setdefault(key, state.leader) == state.leader

        return see


class Cluster:
    """Three brokers on three ZooKeeper servers, and the faults to inject."""

    def __init__(self, zookeeper: DevZookeeper, draw: random.Random) -> None:
        self.zookeeper = zookeeper
        self.chroot = f"{zookeeper.connect}/faults"
        self.draw = draw
        self.seen_images = SeenImages()
        self.members: dict[int, Member] = {}
        self.failures: list[BaseException] = []

    async def start_broker(self, number: int) -> None:
        member = await join(self.chroot, number)
        seeing = self.seen_images.watcher()

        def see(image: ClusterImage) -> None:
            try:
                seeing(image)
            except AssertionError as failure:
                self.failures.append(failure)

        see(member.store.image)
        member.store.watch(see)
        self.members[number] = member

    async def inject_fault(self) -> None:
        number = self.draw.choice(sorted(self.members))
        node = self.draw.choice(self.zookeeper.nodes)
        match self.draw.randrange(4):
            case 0:
                await expire(self.members[number].store, self.chroot)
            case 1:
                await self.members.pop(number).close()
                await self.start_broker(number)
            case 2:
                node.kill()
                await self.wait_until_all_lead("leaders with one server less")
                await asyncio.to_thread(self.zookeeper.restart, node)
            case _:
                node.pause()
                try:
                    await asyncio.sleep(self.draw.uniform(0.1, 3.0))
                finally:
                    node.resume()

    def all_lead(self) -> bool:
        """Whether every broker is registered and every image has a leader for every partition."""
        return all(
            member.store.broker_epoch is not None and self._is_intact(member.store.image)
            for member in self.members.values()
        )

    async def wait_until_all_lead(self, what: str) -> None:
        try:
            await wait_for(self.all_lead, what)
        except AssertionError as failure:
            failure.add_note("\n".join(map(self._state_of, self.members)))
            for node in self.zookeeper.nodes:
                logged = "\n  ".join(node.log_lines()[-SERVER_LINES:])
                failure.add_note(f"server {node.number}, {node.mode()}:\n  {logged}")
            raise

    def _state_of(self, number: int) -> str:
        store = self.members[number].store
        led = [store.image.leader_of(state) for state in store.image.topics["t"].partitions]
        brokers = {int(each): broker.epoch for each, broker in store.image.brokers.items()}
        return (
            f"broker {number}: {store.session}, epoch {store.broker_epoch}, image"
            f" {store.image.version}, controller {store.image.controller_epoch}, brokers {brokers}, leaders {led}"
        )

    def _is_intact(self, image: ClusterImage) -> bool:
        registered = {int(number): broker.epoch for number, broker in image.brokers.items()}
        living = {number: member.store.broker_epoch for number, member in self.members.items()}
        led = [image.leader_of(state) for state in image.topics["t"].partitions]
        return registered == living and NO_BROKER not in led


async def keep_changing(cluster: Cluster, stop: asyncio.Event, done: list[str]) -> None:
    """Create topics and shrink in-sync sets through random brokers until `stop`."""
    count = 0
    while not stop.is_set():
        member = cluster.draw.choice(list(cluster.members.values()))
        count += 1
        name = f"n-{count}"
        try:
            await member.store.transact(lambda _image, name=name: ([topic_created(name)], ()))
            done.append(name)
            if member.leads and count % 3 == 0:
                led = member.leads[0]
                await member.store.transact(
                    lambda image, led=led, member=member: alone_in_sync(led, member, image)
                )
        except (BrokerError, StoreUnavailable):
            pass
        await asyncio.sleep(0.01)


# kazoo ends its thread at an answer out of order; the store then restarts it (cluster/zookeeper_client.py).
@pytest.mark.thorough
@pytest.mark.filterwarnings(
    r"ignore:Exception in thread Thread-\d+ \(zk_loop\):pytest.PytestUnhandledThreadExceptionWarning"
)
def test_all_metadata_images_agree_under_faults() -> None:
    async def scenario(zookeeper: DevZookeeper) -> None:
        cluster = Cluster(zookeeper, random.Random(SEED))
        for number in (1, 2, 3):
            await cluster.start_broker(number)
        first = cluster.members[1].store
        await wait_for(lambda: len(first.image.brokers) == 3)
        new_topic = NewTopic(name="t", partitions=PARTITIONS)
        await first.transact(
            lambda image: ([plan_topic(image, new_topic, uuid.uuid4(), LIMITS)], ())
        )
        await wait_for(
            lambda: all("t" in member.store.image.topics for member in cluster.members.values())
        )
        stop = asyncio.Event()
        done: list[str] = []
        changing = asyncio.ensure_future(keep_changing(cluster, stop, done))
        for _ in range(FAULTS):
            await cluster.inject_fault()
            await cluster.wait_until_all_lead("leaders for everything")
        stop.set()
        await changing
        stores = [member.store for member in cluster.members.values()]
        await wait_for(
            lambda: cluster.all_lead() and len({store.image.version for store in stores}) == 1
        )
        assert not cluster.failures
        assert stores[0].image == stores[1].image == stores[2].image
        assert set(done) <= set(cluster.members[1].store.image.topics)
        for member in cluster.members.values():
            await member.close()

    with dev_zookeeper(nodes=3) as zookeeper:
        asyncio.run(scenario(zookeeper))

"""Stores, brokers and topics for tests on a real ZooKeeper, and how to expire a session."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from zhumq.cluster.controller import Controller
from zhumq.cluster.store import SessionState
from zhumq.cluster.zookeeper_store import ZookeeperStore
from zhumq.metadata.changes import Change, PartitionChanged, TopicCreated
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import InSyncRequest, LeaderPolicy, LogEnds
from zhumq.metadata.reassignment import change_in_sync
from zhumq.metadata.topics import TopicLimits
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode

SECONDS_MAX = 30.0
SESSION_MS = 2_000


async def open_store(ensemble: str, **options: Any) -> ZookeeperStore:
    settings = {"session_timeout_ms": SESSION_MS, "create_chroot": True, **options}
    return await ZookeeperStore.open(ensemble, new_cluster_id="c", **settings)


def broker(broker_id: int) -> Broker:
    return Broker(broker_id=BrokerId(broker_id), host="127.0.0.1", port=9_000 + broker_id)


def state(leader: int = 1, epoch: int = 0) -> PartitionState:
    return PartitionState(
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        in_sync=(BrokerId(1), BrokerId(2), BrokerId(3)),
        partition_epoch=epoch,
        mode=Mode.FETCH,
    )


def topic_created(name: str, partitions: int = 1) -> TopicCreated:
    topic = Topic(name=name, topic_id=uuid.uuid4(), partitions=(state(),) * partitions)
    return TopicCreated(topic=topic)


def partition_changed(name: str, partition: int, epoch: int) -> PartitionChanged:
    return PartitionChanged(name=name, partition=partition, state=state(1 + epoch % 3, epoch))


async def change(store: ZookeeperStore, *changes: Change) -> None:
    """Write the changes, whatever other brokers write."""
    await store.transact(lambda _image: (changes, ()))


async def wait_for(fact: Callable[[], bool], what: str = "the fact") -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {SECONDS_MAX:g} s")
        await asyncio.sleep(0.01)


async def expire(store: ZookeeperStore, ensemble: str) -> None:
    """Expire the store's session, as the ensemble does after the session timeout."""
    client_id = store._client._kazoo.client_id  # type: ignore[attr-defined]
    hosts = ensemble.partition("/")[0]

    def end_session() -> None:
        other = KazooClient(hosts=hosts, client_id=client_id, timeout=SESSION_MS / 1_000)
        # A session that has expired already cannot be resumed, and need not be.
        with contextlib.suppress(KazooTimeoutError):
            other.start()
        other.stop()
        other.close()

    await asyncio.to_thread(end_session)


class SessionStates(list[SessionState]):
    """The session states of a store, in order."""

    def __init__(self, store: ZookeeperStore) -> None:
        super().__init__()
        store.watch_session(self.append)


class Listener:
    """Records the calls of a ControllerListener."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.epochs: list[int] = []
        self.live: frozenset[BrokerId] = frozenset()
        self.seen: list[frozenset[BrokerId]] = []

    def elected(self, epoch: int) -> None:
        self.epoch = epoch
        self.epochs.append(epoch)

    def deposed(self) -> None:
        self.epoch = None

    def live_brokers(self, live: frozenset[BrokerId]) -> None:
        self.live = live
        self.seen.append(live)


async def close_all(stores: Sequence[ZookeeperStore]) -> None:
    for store in stores:
        await store.close()


LIMITS = TopicLimits(
    default_partitions=1,
    default_replication_factor=3,
    partitions_per_topic_max=10_000,
    partitions_in_all_max=100_000,
    default_mode=Mode.FETCH,
)


class Member:
    """The cluster part of a broker: a registered store and a controller."""

    def __init__(self, number: int, store: ZookeeperStore) -> None:
        self.number = number
        self.store = store
        self.log_ends: LogEnds = {}
        self.asked: list[TopicPartition] = []
        self.controller = Controller(store, lambda _topic: LeaderPolicy(), self._ask)
        self.running = asyncio.ensure_future(self.controller.run())

    @property
    def leads(self) -> list[TopicPartition]:
        """The partitions that this broker leads under its current broker epoch."""
        image = self.store.image
        return [
            TopicPartition(name, index)
            for name, topic in image.topics.items()
            for index, state in enumerate(topic.partitions)
            if state.leader == self.number and state.leader_broker_epoch == self.store.broker_epoch
        ]

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.store.close()

    async def _ask(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        self.asked.extend(partitions)
        return self.log_ends


async def join(chroot: str, number: int) -> Member:
    store = await open_store(chroot)
    member = Member(number, store)
    store.watch(member.controller.on_image_changed)
    await store.register(broker(number))
    store.campaign(BrokerId(number), member.controller)
    return member


def alone_in_sync(
    name: TopicPartition, member: Member, image: ClusterImage
) -> tuple[Sequence[Change], tuple[()]]:
    """The plan of a leader that counts only itself as in sync."""
    state = image.partition(name)
    assert state is not None
    request = InSyncRequest(
        broker_id=BrokerId(member.number),
        broker_epoch=member.store.broker_epoch or 0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        in_sync=(BrokerId(member.number),),
    )
    return [change_in_sync(image, name, request)], ()

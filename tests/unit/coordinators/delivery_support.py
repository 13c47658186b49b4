"""Delivery on real logs over a disk that crashes: a broker without listeners."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from zhumq.broker.config import BrokerConfig
from zhumq.broker.wiring.delivery import DeliveryCoordinator
from zhumq.broker.wiring.foundation import Foundation
from zhumq.broker.wiring.group_coordinator import GroupCoordinator
from zhumq.broker.wiring.transaction_coordinator import TransactionCoordinator
from zhumq.cluster.local_store import BROKER_EPOCH, LocalStore
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.coordinators.delivery_service import DeliveryService
from zhumq.coordinators.router import LeaderRouter
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.host.clock import SystemClock
from zhumq.metadata.image import Broker
from zhumq.metadata.topics import NewTopic, TopicLimits
from zhumq.model.ids import BrokerId
from zhumq.records.batch import Record, records
from zhumq.records.builder import build_batch
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import Replication
from zhumq.share.acknowledgement import AckKind, Acknowledgement
from zhumq.share.subscription import SubscriptionMode
from zhumq.storage.due_runs import DueRuns
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_manager import LogManager
from zhumq.testing.disk import MemoryDisk

SECONDS_MAX = 30.0
LIMITS = TopicLimits(
    default_partitions=1,
    default_replication_factor=1,
    partitions_per_topic_max=100,
    partitions_in_all_max=1_000,
)
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "delivery.backoff.ms": "0",
}


@dataclass
class World:
    """The parts of a broker that a test uses."""

    coordinator: DeliveryCoordinator
    metadata_client: MetadataClient
    replicas: ReplicaManager
    store: LocalStore

    @property
    def service(self) -> DeliveryService:
        return self.coordinator.service

    async def make_topic(self, name: str = "t", partitions: int = 1, **settings: str) -> None:
        new_topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=1,
            settings={key.replace("_", "."): value for key, value in settings.items()},
        )
        (result,) = await self.metadata_client.create_topics([new_topic])
        assert not isinstance(result, Exception), result

    def fill(self, count: int, *, topic: str = "t", partition: int = 0, batch: int = 10) -> None:
        """Append `count` records whose values are their offsets."""
        served = self.replicas.partition(topic, partition)
        first = served.log_end_offset
        for begin in range(first, first + count, batch):
            end = min(begin + batch, first + count)
            numbers = [Record(value=b"%d" % each, timestamp=1_000) for each in range(begin, end)]
            served.append(build_batch(numbers), 1_000)

    async def open(
        self,
        group: str = "g",
        *,
        partition: int = 0,
        mode: SubscriptionMode = SubscriptionMode.PTP_SHARED,
        **more: object,
    ) -> SharePartitionDelivery:
        return await self.service.open(
            group=group, topic="t", partition=partition, mode=mode, **more
        )

    def partition(self, topic: str, partition: int = 0) -> Partition:
        return self.replicas.partition(topic, partition)

    def dead_letters(self, topic: str = "t.dlq", partition: int = 0) -> list[Record]:
        served = self.replicas.find(topic, partition)
        if served is None:
            return []
        found: list[Record] = []
        offset = served.log_start_offset
        while offset < served.high_watermark:
            data = served.read(offset, 1 << 20).read_bytes()
            of_slice = list(records(data))
            found += of_slice
            offset = of_slice[-1].offset + 1
        return found


@asynccontextmanager
async def broker_without_listeners(
    disk: MemoryDisk, *, crash: bool = False, settings: dict[str, str] | None = None
) -> AsyncIterator[World]:
    """A broker that stops cleanly, or by a crash that loses what was not synced."""
    clock = SystemClock()
    config = BrokerConfig.load(data_dir=Path("/data"), settings=SETTINGS | (settings or {}))
    async with contextlib.AsyncExitStack() as parts:
        logs = LogManager.take("/data", disk=disk, clock=clock, broker_id=0)
        if not crash:
            parts.callback(logs.close)
        store = LocalStore.open(
            Path("/data"), disk=disk, cluster_id=logs.cluster_id, broker_id=BrokerId(0)
        )
        parts.push_async_callback(store.close)
        logs.load(lambda _: config.partition_settings({}).log_config)
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        parts.callback(flusher.close)
        replication = Replication.of_one(BrokerId(0), lambda: store.image, clock)
        replicas = ReplicaManager(
            BrokerId(0), logs, flusher, config.partition_settings, replication
        )
        parts.push_async_callback(replicas.close)
        metadata_client = MetadataClient(store, LIMITS, uuid.uuid4)
        base = Foundation(
            broker_id=BrokerId(0),
            settings=config.settings,
            partition_settings=config.partition_settings,
            store=store,
            metadata_client=metadata_client,
            replication=replication,
            replicas=replicas,
            router=LeaderRouter(store, BrokerId(0), replication),
            clock=clock,
            due_runs=DueRuns(disk, "/data"),
        )
        groups = GroupCoordinator(base, TransactionCoordinator(base).routed)
        delivery = DeliveryCoordinator(base, groups)
        for watcher in (replicas.apply, groups.apply, delivery.apply):
            watcher(store.image)
            store.watch(watcher)
        await store.register(Broker(broker_id=BrokerId(0), host="127.0.0.1", port=1))
        replicas.on_registered(BROKER_EPOCH)
        try:
            yield World(delivery, metadata_client, replicas, store)
        finally:
            if crash:
                # As in a power failure: nothing is sent or written any more.
                disk.bytes_free = 0
                # Record data must survive by its own syncs; storage tests cover the small files beside it.
                disk.crash(lambda path, unsynced: 0 if path.endswith(".log") else unsynced)
            await delivery.close()
            await groups.close()
            disk.bytes_free = None


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario()

    asyncio.run(with_deadline())


async def until(fact: Callable[[], bool]) -> None:
    """Wait until `fact` is true; the scenario has the deadline."""
    while not fact():
        await asyncio.sleep(0.005)


def accept(first: int, last: int) -> Acknowledgement:
    return Acknowledgement(first_offset=first, last_offset=last, kind=AckKind.ACCEPT)


def release(first: int, last: int, reason: str = "") -> Acknowledgement:
    return Acknowledgement(
        first_offset=first, last_offset=last, kind=AckKind.RELEASE, reason=reason
    )


def reject(first: int, last: int, reason: str = "") -> Acknowledgement:
    return Acknowledgement(first_offset=first, last_offset=last, kind=AckKind.REJECT, reason=reason)


def offsets_of(delivered) -> list[int]:
    return [
        offset
        for each in delivered
        for acquired in each.ranges
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    ]

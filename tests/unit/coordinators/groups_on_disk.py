"""A group service on one shard whose log is a real one, on a disk in memory."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.sole_broker import image_of, serve

from zhumq.coordinators.group_service import GroupService, TransactionVerifier
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.requests import GroupRequest, GroupResponse, refusal
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.host.clock import SystemClock
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from zhumq.replication.partition import Partition
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import CleanupPolicy, LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.testing.disk import MemoryDisk

TOPIC_ID = uuid.UUID(int=7)
PARTITIONS_OF_TOPIC = 100
HERE = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
# Small segments, so that loading reads across several of them.
LOG_CONFIG = LogConfig(
    segment_bytes=2_000,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)


class AnyTopic:
    def topic_id(self, name: str) -> uuid.UUID | None:
        return TOPIC_ID

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return "topic"

    def shape(self, name: str) -> TopicShape | None:
        return TopicShape(TOPIC_ID, PARTITIONS_OF_TOPIC)


class RunningGroups:
    """A service, the runtime of its shard, and the partition with the shard's log."""

    def __init__(
        self,
        service: GroupService,
        runtime: CoordinatorRuntime[GroupRequest, GroupResponse],
        partition: Partition,
    ) -> None:
        self.service = service
        self.runtime = runtime
        self.partition = partition


@asynccontextmanager
async def running(disk: MemoryDisk, *, crash: bool = False) -> AsyncIterator[GroupService]:
    """A service on one shard, ended cleanly or by a crash that loses what was not synced."""
    async with running_groups(disk, crash=crash) as groups:
        yield groups.service


@asynccontextmanager
async def running_groups(
    disk: MemoryDisk, *, verifier: TransactionVerifier | None = None, crash: bool = False
) -> AsyncIterator[RunningGroups]:
    clock = SystemClock()
    logs = LogManager.open("/data", disk=disk, clock=clock, broker_id=0)
    logs.load(lambda _: LOG_CONFIG)
    flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
    suffixes = itertools.count()
    runtime: CoordinatorRuntime[GroupRequest, GroupResponse] = CoordinatorRuntime(
        name="group",
        make_shard=lambda: GroupShard(
            GroupSettings(), draw_member_suffix=lambda: str(next(suffixes))
        ),
        refuse=refusal,
        clock=clock,
        batch_bytes_max=1_000,
    )
    image = image_of({HERE.topic: TOPIC_ID})
    replicas = serve(logs, flusher, image, config=LOG_CONFIG)
    partition = replicas.partition(*HERE)
    await runtime.load(0, partition)
    service = GroupService(runtime, partition_count=lambda: 1, topics=AnyTopic(), verifier=verifier)
    try:
        yield RunningGroups(service, runtime, partition)
    finally:
        await runtime.close()
        await replicas.close()
        flusher.close()
        if crash:
            # Record data must survive by its own syncs; storage tests cover the small files beside it.
            disk.crash(lambda path, unsynced: 0 if path.endswith(".log") else unsynced)
        else:
            logs.close()

"""A coordinator's internal topic: created on first use; the shards that this broker leads are loaded."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.coordinators.state_log import StatePartition
from zhumq.metadata.topics import NewTopic
from zhumq.model.errors import BrokerError, TopicAlreadyExists
from zhumq.model.ids import TopicPartition

logger = logging.getLogger(__name__)

LOAD_RETRY_SECONDS: Final = 5.0
LOAD_WAIT_SECONDS_MAX: Final = 1.0


def state_topic(
    name: str, *, partitions: int, replication_factor: int, batch_bytes_max: int, segment_bytes: str
) -> NewTopic:
    """A compacted topic for the records of state machines."""
    return NewTopic(
        name=name,
        is_internal=True,
        partitions=partitions,
        replication_factor=replication_factor,
        settings={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            # Its own: a low message.max.bytes must not limit the size of the state.
            "max.message.bytes": str(batch_bytes_max),
            "segment.bytes": segment_bytes,
        },
    )


class LedPartitions(Protocol):
    """The partitions of this broker, and notification of leadership changes."""

    def find(self, topic: str, partition: int) -> StatePartition | None:
        """The partition, if this broker has a replica of it."""

    def watch_leadership(self, callback: Callable[[TopicPartition, bool, int], None]) -> None:
        """Call back, on the event loop, with a partition, whether this broker leads it now, and its leader epoch.

        Also called for partitions that it leads already.
        """


class InternalTopic:
    """Loads and unloads a runtime's shards with the leadership of the topic's partitions."""

    def __init__(
        self,
        new_topic: NewTopic,
        *,
        store: MetadataStore,
        metadata_client: MetadataClient,
        replicas: LedPartitions,
        runtime: CoordinatorRuntime[Any, Any],
    ) -> None:
        self._new_topic = new_topic
        self._store = store
        self._metadata_client = metadata_client
        self._replicas = replicas
        self._runtime = runtime
        # One task for each shard that is being loaded, with its retries.
        self._loads: dict[int, asyncio.Task[None]] = {}
        # Set when the first attempt to load a shard is over; `ensure` waits for these.
        self._first: dict[int, asyncio.Event] = {}
        replicas.watch_leadership(self._on_leadership_changed)

    @property
    def name(self) -> str:
        return self._new_topic.name

    @property
    def partition_count(self) -> int:
        """How many partitions it has, or will have. A broker with other settings may have created it; after
        that the number never changes, because keys hash to partitions."""
        topic = self._store.image.topics.get(self._new_topic.name)
        return self._new_topic.partitions if topic is None else len(topic.partitions)

    @property
    def loading_count(self) -> int:
        """How many of the partitions that this broker leads it does not coordinate yet."""
        return self._runtime.loading_count

    async def ensure(self) -> None:
        """Create the topic if needed, and wait up to LOAD_WAIT_SECONDS_MAX for the shards led here.

        Raises BrokerError.
        """
        while self._new_topic.name not in self._store.image.topics:
            # No more replicas than there are brokers: groups must work at once.
            copies = min(self._new_topic.replication_factor, len(self._store.image.brokers))
            new_topic = replace(self._new_topic, replication_factor=max(copies, 1))
            (result,) = await self._metadata_client.create_topics([new_topic])
            if isinstance(result, BrokerError) and not isinstance(result, TopicAlreadyExists):
                raise result
        with contextlib.suppress(TimeoutError):
            # The next request finds its shard loaded. A shard whose replicas do not answer delays it only
            # for a short time.
            async with asyncio.timeout(LOAD_WAIT_SECONDS_MAX):
                for first in tuple(self._first.values()):
                    await first.wait()

    async def close(self) -> None:
        tasks = list(self._loads.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._runtime.close()

    def _on_leadership_changed(
        self, topic_partition: TopicPartition, leads: bool, leader_epoch: int
    ) -> None:
        if topic_partition.topic != self._new_topic.name:
            return
        index = topic_partition.partition
        self._unload(index)
        if leads:
            logger.debug("%s is led here in epoch %d", topic_partition, leader_epoch)
            partition = self._replicas.find(*topic_partition)
            assert partition is not None, "this broker leads a partition that it does not have"
            self._runtime.expect(index)
            first = self._first[index] = asyncio.Event()
            load = self._load(index, partition, first)
            self._loads[index] = asyncio.get_running_loop().create_task(load)

    def _unload(self, index: int) -> None:
        """Drop a shard: decisions of an earlier leader epoch may be lost, so it is loaded from its log again."""
        load = self._loads.pop(index, None)
        if load is not None:
            load.cancel()
        first = self._first.pop(index, None)
        if first is not None:
            first.set()
        self._runtime.unload(index)

    async def _load(self, index: int, partition: StatePartition, first: asyncio.Event) -> None:
        while True:
            try:
                await self._runtime.load(index, partition)
            except BrokerError as reason:
                # Requests of its groups are refused with COORDINATOR_NOT_AVAILABLE; other shards serve.
                logger.error(  # noqa: TRY400
                    "cannot load %s-%d: %s", self._new_topic.name, index, reason
                )
            else:
                return
            finally:
                first.set()
            await asyncio.sleep(LOAD_RETRY_SECONDS)

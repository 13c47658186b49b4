"""A coordinator's topic: created on first use, its shards loaded where this broker leads them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.runtime import CoordinatorRuntime, StatePartition
from zhumq.metadata.topics import NewTopic
from zhumq.model.errors import BrokerError, TopicAlreadyExists
from zhumq.model.ids import TopicPartition

logger = logging.getLogger(__name__)

LOAD_RETRY_SECONDS: Final = 5.0
LOAD_WAIT_SECONDS_MAX: Final = 1.0


class LedPartitions(Protocol):
    """The partitions of this broker, and the news of which of them it leads."""

    def find(self, topic: str, partition: int) -> StatePartition | None:
        """The partition, if this broker has a replica of it."""

    def watch_leadership(self, callback: Callable[[TopicPartition, bool, int], None]) -> None:
        """Call back, on the event loop, with a partition that this broker begins to serve, or stops
        to, and the leader's epoch. Called for those that it serves already as well."""


class InternalTopic:
    """Keeps a runtime's shards in step with the partitions of its topic that this broker leads."""

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
        # One for each shard that is on its way, with its later attempts.
        self._loads: dict[int, asyncio.Task[None]] = {}
        # Those for which callers wait: the first attempts.
        self._first: dict[int, asyncio.Event] = {}
        replicas.watch_leadership(self._leadership_changed)

    async def ensure(self) -> None:
        """Done when the topic exists and its shards here have been loaded, or soon will be.

        Raises BrokerError.
        """
        while self._new_topic.name not in self._store.image.topics:
            # As many replicas as there are brokers, where that is less: groups must work at once.
            copies = min(self._new_topic.replication_factor, len(self._store.image.brokers))
            new_topic = replace(self._new_topic, replication_factor=max(copies, 1))
            (result,) = await self._metadata_client.create_topics([new_topic])
            if isinstance(result, BrokerError) and not isinstance(result, TopicAlreadyExists):
                raise result
        with contextlib.suppress(TimeoutError):
            # Whoever asks next finds its shard at work, and not on its way. One whose replicas do
            # not answer holds up nobody for long.
            async with asyncio.timeout(LOAD_WAIT_SECONDS_MAX):
                for first in tuple(self._first.values()):
                    await first.wait()

    async def close(self) -> None:
        tasks = list(self._loads.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._runtime.close()

    def _leadership_changed(
        self, topic_partition: TopicPartition, leads: bool, leader_epoch: int
    ) -> None:
        if topic_partition.topic != self._new_topic.name:
            return
        index = topic_partition.partition
        self._unload(index)
        if leads:
            logger.debug("%s is led here in epoch %d", topic_partition, leader_epoch)
            partition = self._replicas.find(*topic_partition)
            assert partition is not None, "led, but not here"
            self._runtime.expect(index)
            first = self._first[index] = asyncio.Event()
            load = self._load(index, partition, first)
            self._loads[index] = asyncio.get_running_loop().create_task(load)

    def _unload(self, index: int) -> None:
        """Whatever was decided under an earlier leadership may be gone: a shard begins from its log."""
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
                # Its groups are answered COORDINATOR_NOT_AVAILABLE; all the others are served.
                logger.error(  # noqa: TRY400
                    "cannot load %s-%d: %s", self._new_topic.name, index, reason
                )
            else:
                return
            finally:
                first.set()
            await asyncio.sleep(LOAD_RETRY_SECONDS)

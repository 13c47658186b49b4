"""A coordinator's topic: created on first use, its shards loaded where this broker leads them."""

import asyncio
import logging
from typing import Any, Final

from zhumq.cluster.controller_driver import ControllerDriver
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.metadata.controller import TopicWish
from zhumq.metadata.image import ClusterImage
from zhumq.model.errors import BrokerError, TopicAlreadyExists
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

LOAD_RETRY_SECONDS: Final = 5.0


class InternalTopic:
    """Keeps a runtime's shards in step with the partitions of its topic that this broker leads."""

    def __init__(
        self,
        wish: TopicWish,
        *,
        store: MetadataStore,
        controller: ControllerDriver,
        replicas: ReplicaManager,
        runtime: CoordinatorRuntime[Any, Any],
    ) -> None:
        self._wish = wish
        self._store = store
        self._controller = controller
        self._replicas = replicas
        self._runtime = runtime
        # The first attempts, for which callers wait, and the later ones, for which nobody does.
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._retries: set[asyncio.Task[None]] = set()

    async def ensure(self) -> None:
        """Done when the topic exists and its shards here have been loaded. Raises BrokerError."""
        while self._wish.name not in self._store.image.topics:
            (result,) = await self._controller.create_topics([self._wish])
            if isinstance(result, BrokerError) and not isinstance(result, TopicAlreadyExists):
                raise result
        if self._loads:
            await asyncio.wait(self._loads.values())

    def apply(self, image: ClusterImage) -> None:
        """Load the shards of partitions that are new here. Called after the partitions are served."""
        topic = image.topics.get(self._wish.name)
        for index in range(len(topic.partitions) if topic else 0):
            partition = self._replicas.find(self._wish.name, index)
            if partition is not None and index not in self._loads:
                load = self._load(index, partition)
                self._loads[index] = asyncio.get_running_loop().create_task(load)

    async def close(self) -> None:
        tasks = [*self._loads.values(), *self._retries]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._runtime.close()

    async def _load(self, index: int, partition: Partition) -> None:
        try:
            await self._runtime.load(index, partition)
        except BrokerError as reason:
            # Its groups are answered COORDINATOR_NOT_AVAILABLE; all the others are served.
            logger.error("cannot load %s: %s", partition.topic_partition, reason)  # noqa: TRY400
            retry = asyncio.get_running_loop().create_task(self._load_later(index, partition))
            self._retries.add(retry)
            retry.add_done_callback(self._retries.discard)

    async def _load_later(self, index: int, partition: Partition) -> None:
        await asyncio.sleep(LOAD_RETRY_SECONDS)
        await self._load(index, partition)

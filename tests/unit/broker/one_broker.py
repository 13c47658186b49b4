"""The parts below the handlers of one broker: real ones, on a disk in memory and in time that the test moves."""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from broker_support import connection, frame_of, response, responses
from tests.manual_time import ManualClock, run_in_manual_time, until

from zhumq.broker.access import Access
from zhumq.broker.dispatch import Dispatcher, Handler
from zhumq.broker.handlers.produce import ProduceHandler
from zhumq.broker.seen_producers import SeenProducers
from zhumq.broker.settings import BROKER_SETTINGS
from zhumq.broker.wiring.foundation import Foundation
from zhumq.broker.wiring.transaction_coordinator import TransactionCoordinator
from zhumq.cluster.local_store import BROKER_EPOCH, LocalStore
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.coordinators.router import LeaderRouter
from zhumq.metadata.image import Broker
from zhumq.metadata.topics import NewTopic, TopicLimits
from zhumq.model.ids import BrokerId
from zhumq.model.settings import Settings
from zhumq.net.service import Answer
from zhumq.protocol.api import ApiKey
from zhumq.protocol.schema import Message
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import PartitionSettings, Replication
from zhumq.storage.due_runs import DueRuns
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.testing.disk import MemoryDisk

BROKER_ID = BrokerId(1)
FOLDER = "/data"
TOPIC = "t"
LIMITS = TopicLimits(
    default_partitions=1,
    default_replication_factor=1,
    partitions_per_topic_max=100,
    partitions_in_all_max=1_000,
)


class OneBroker:
    """A metadata store and its partitions. Ask it with `ask` for one response, or with `send` for answers."""

    def __init__(self, clock: ManualClock, disk: MemoryDisk, log_config: LogConfig) -> None:
        self.clock = clock
        self.disk = disk
        self.log_config = log_config
        self.min_in_sync_replicas = 1
        self.logs = LogManager.take(
            FOLDER, disk=disk, clock=clock, broker_id=BROKER_ID, cluster_id=None
        )
        self.logs.load(lambda topic: log_config)
        self.store = LocalStore.open(
            Path(FOLDER), disk=disk, cluster_id=self.logs.cluster_id, broker_id=BROKER_ID
        )
        self.flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        self.replication = Replication.of_one(BROKER_ID, lambda: self.store.image, clock)
        self.replicas = ReplicaManager(
            BROKER_ID, self.logs, self.flusher, self._settings_of, self.replication
        )
        self.metadata_client = MetadataClient(self.store, LIMITS, uuid.uuid4)
        self.router = LeaderRouter(self.store, BROKER_ID, self.replication)
        self.transactions = TransactionCoordinator(
            self.foundation({"transaction.state.log.num.partitions": "2"})
        )
        self.seen_producers = SeenProducers(clock, random.SystemRandom().getrandbits)
        self.produce_handler = ProduceHandler(
            self.replicas, self.store, clock, self.transactions.routed, self.seen_producers
        )
        self.dispatcher = self.dispatch(self.produce_handler.handlers())

    def foundation(self, settings: Mapping[str, str]) -> Foundation:
        """What coordinators with these settings stand on."""
        return Foundation(
            broker_id=BROKER_ID,
            settings=Settings(BROKER_SETTINGS, settings),
            partition_settings=self._settings_of,
            store=self.store,
            metadata_client=self.metadata_client,
            replication=self.replication,
            replicas=self.replicas,
            router=self.router,
            clock=self.clock,
            due_runs=DueRuns(self.disk, FOLDER),
        )

    def _settings_of(self, _settings: Mapping[str, str]) -> PartitionSettings:
        return PartitionSettings(
            log_config=self.log_config, min_in_sync_replicas=self.min_in_sync_replicas
        )

    def dispatch(
        self, handlers: Mapping[ApiKey, Handler], access: Access | None = None
    ) -> Dispatcher:
        """Serves these requests from now on."""
        self.dispatcher = Dispatcher(handlers, self.produce_handler.answer_run, access)
        return self.dispatcher

    async def create(self, name: str = TOPIC, partitions: int = 1) -> Partition:
        """A new topic; returns its first partition, which is served."""
        (result,) = await self.metadata_client.create_topics(
            [NewTopic(name=name, partitions=partitions)]
        )
        assert not isinstance(result, Exception), result
        await until(lambda: all(partition.is_current for partition in self.replicas))
        return self.replicas.partition(name, 0)

    def send(self, key: ApiKey, version: int, *bodies: Message) -> list[tuple[int, Answer]]:
        """Sends requests at once: how many were answered together, and their answers."""
        frames = [
            frame_of(key, version, body, correlation_id)
            for correlation_id, body in enumerate(bodies)
        ]
        answers: list[tuple[int, Answer]] = []
        while frames:
            count, answer = self.dispatcher.handle(frames, connection())
            answers.append((count, answer))
            del frames[:count]
        return answers

    async def ask(self, key: ApiKey, version: int, body: Message) -> Any:
        """The response to one request."""
        _, answer = self.dispatcher.handle([frame_of(key, version, body)], connection())
        if isinstance(answer, asyncio.Future):
            await answer
        return response(key, version, answer)

    async def ask_all(self, key: ApiKey, version: int, *bodies: Message) -> list[Any]:
        """The responses to requests that are sent at once."""
        found = []
        for _, answer in self.send(key, version, *bodies):
            if isinstance(answer, asyncio.Future):
                await answer
            found += responses(key, version, answer)
        assert [correlation_id for correlation_id, _ in found] == list(range(len(bodies)))
        return [each for _, each in found]


@contextlib.asynccontextmanager
async def one_broker(
    clock: ManualClock, log_config: LogConfig | None = None
) -> AsyncIterator[OneBroker]:
    broker = OneBroker(clock, MemoryDisk(), log_config or LogConfig())
    broker.store.watch(broker.replicas.apply)
    broker.replicas.apply(broker.store.image)
    await broker.store.register(Broker(broker_id=BROKER_ID, host="127.0.0.1", port=9092))
    broker.replicas.on_registered(BROKER_EPOCH)
    try:
        yield broker
    finally:
        await broker.transactions.close()
        await broker.replicas.close()
        broker.flusher.close()
        await broker.store.close()
        broker.logs.close()


def with_broker(
    scenario: Callable[[OneBroker], Coroutine[Any, Any, None]], log_config: LogConfig | None = None
) -> None:
    """Runs a test with a broker, in time that the test moves."""

    async def run(clock: ManualClock) -> None:
        async with one_broker(clock, log_config) as broker:
            await scenario(broker)

    run_in_manual_time(run)

"""The composition root: builds a broker from its config, starts it, and takes it down."""

import asyncio
import contextlib
import gc
import logging
import random
import resource
import signal
import sys
import uuid
from collections.abc import Mapping
from typing import Final, Self

import uvloop

from zhumq.broker.config import Address, BrokerConfig
from zhumq.broker.config_entries import ConfigEntries
from zhumq.broker.dispatch import Dispatcher, Handler
from zhumq.broker.fetch_sessions import FetchSessions
from zhumq.broker.group_coordinator import GroupCoordinator
from zhumq.broker.handlers.configs import ConfigsHandler
from zhumq.broker.handlers.fetch import FetchHandler
from zhumq.broker.handlers.groups import GroupsHandler
from zhumq.broker.handlers.log_dirs import LogDirsHandler
from zhumq.broker.handlers.metadata import MetadataHandler
from zhumq.broker.handlers.offsets import OffsetsHandler
from zhumq.broker.handlers.produce import ProduceHandler
from zhumq.broker.handlers.producers import ProducersHandler
from zhumq.broker.handlers.topics import TopicsHandler
from zhumq.broker.housekeeping import Chore, do_chores
from zhumq.broker.http import HttpServer, Metric
from zhumq.broker.metrics import broker_metrics
from zhumq.cluster.controller_driver import ControllerDriver
from zhumq.cluster.local_store import LocalStore
from zhumq.cluster.store import MetadataStore
from zhumq.host.clock import Clock, SystemClock
from zhumq.host.disk import Disk, SystemDisk
from zhumq.host.memory import keep_freed_memory
from zhumq.metadata.controller import TopicLimits
from zhumq.metadata.image import Broker
from zhumq.model.errors import SettingInvalid, ZhumqError
from zhumq.net.limits import Limits
from zhumq.net.listener import Listener
from zhumq.protocol.api import ApiKey
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 2.0  # what answers under way get to go out at a stop
FETCH_SESSION_ID_MAX: Final = 2**31 - 1
# Objects more than at the last look: a thousand requests in flight are far below it.
GARBAGE_THRESHOLD: Final = 50_000
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1


class BrokerApp:
    """A running broker. `await BrokerApp.start(config)` returns one that serves."""

    def __init__(
        self,
        config: BrokerConfig,
        kafka_address: Address,
        http_address: Address,
        parts: contextlib.AsyncExitStack,
    ) -> None:
        self.config = config
        self.kafka_address = kafka_address
        self.http_address = http_address
        self._parts = parts

    @classmethod
    async def start(
        cls, config: BrokerConfig, *, disk: Disk | None = None, clock: Clock | None = None
    ) -> Self:
        """Open the data folder, listen, serve. What is opened first is closed last, at a stop as
        well as when the start fails in the middle."""
        clock = clock or SystemClock()
        disk = disk or SystemDisk()
        async with contextlib.AsyncExitStack() as parts:
            logs = LogManager.take(
                str(config.data_dir), disk=disk, clock=clock, broker_id=config.broker_id
            )
            parts.callback(logs.close)
            store = LocalStore.open(
                config.data_dir, disk=disk, cluster_id=logs.cluster_id, broker_id=config.broker_id
            )
            parts.push_async_callback(store.close)
            logs.load(lambda topic: config.partition_settings(_topic_settings(store, topic)).log)
            flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
            parts.callback(flusher.close)
            replicas = ReplicaManager(config.broker_id, logs, flusher, config.partition_settings)
            controller = ControllerDriver(store, _topic_limits(config), uuid.uuid4)
            groups = GroupCoordinator(config.settings, store, controller, replicas, clock)
            parts.push_async_callback(groups.close)
            for watcher in (replicas.apply, groups.apply):
                watcher(store.image)
                store.watch(watcher)
            produce = ProduceHandler(replicas, store, clock)
            dispatcher = Dispatcher(
                _handlers(config, produce, store, controller, replicas, groups, clock),
                produce.answer_run,
            )
            listener = await _listen(config.listen, dispatcher, _limits(config))
            parts.push_async_callback(listener.close, DRAIN_SECONDS)
            http = await _listen_http(config.http, listener, dispatcher, replicas)
            parts.push_async_callback(http.close)
            kafka_address = Address(*listener.address)
            await store.register(_as_clients_see_it(config, kafka_address))
            chores = asyncio.create_task(do_chores(_chores(config, logs, flusher, clock)))
            parts.push_async_callback(_cancel, chores)
            return cls(config, kafka_address, Address(*http.address), parts.pop_all())

    @property
    def ready_line(self) -> str:
        """What programs that start a broker wait for. The push door is not built yet."""
        return (
            f"zhumq ready kafka={self.kafka_address} push=off http={self.http_address}"
            f" broker={self.config.broker_id} data={self.config.data_dir}"
        )

    async def stop(self) -> None:
        """Finish what was begun, write everything down, and let go of the folder."""
        await self._parts.aclose()


def serve(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT. Returns the exit code of the program."""
    keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config))


async def _serve(config: BrokerConfig) -> int:
    _allow_many_open_files()
    _collect_garbage_rarely()
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(stop_signal, asked_to_stop.set)
    try:
        app = await BrokerApp.start(config)
    except ZhumqError as reason:
        sys.stderr.write(f"zhumq: {reason}\n")
        return EXIT_FAILED
    sys.stdout.write(app.ready_line + "\n")
    sys.stdout.flush()
    await asked_to_stop.wait()
    logger.info("stopping")
    await app.stop()
    logger.info("stopped")
    return EXIT_OK


def _allow_many_open_files() -> None:
    """Every partition and every connection is an open file, and systems default to very few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _collect_garbage_rarely() -> None:
    """Requests leave no cycles behind, so looking for some costs more than it ever finds."""
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)


async def _listen(address: Address, dispatcher: Dispatcher, limits: Limits) -> Listener:
    try:
        return await Listener.open(
            address.host,
            address.port,
            service=dispatcher,
            handle_run=dispatcher.handle_run,
            limits=limits,
        )
    except OSError as reason:
        raise _cannot_listen("--listen", address, reason) from None


async def _listen_http(
    address: Address, listener: Listener, dispatcher: Dispatcher, replicas: ReplicaManager
) -> HttpServer:
    def metrics() -> list[Metric]:
        return list(broker_metrics(listener, dispatcher, replicas))

    try:
        return await HttpServer.open(address.host, address.port, metrics)
    except OSError as reason:
        raise _cannot_listen("--http", address, reason) from None


def _cannot_listen(flag: str, address: Address, reason: OSError) -> SettingInvalid:
    # The system's own sentence ends in the address again; its last part says what is wrong.
    why = (reason.strerror or str(reason)).rpartition(": ")[2]
    return SettingInvalid(f"cannot listen on {flag} {address}: {why}; choose another with {flag}")


def _topic_settings(store: MetadataStore, name: str) -> Mapping[str, str]:
    topic = store.image.topics.get(name)
    return topic.settings if topic is not None else {}


def _topic_limits(config: BrokerConfig) -> TopicLimits:
    settings = config.settings
    return TopicLimits(
        default_partitions=settings.integer("num.partitions"),
        default_replication_factor=settings.integer("default.replication.factor"),
        partitions_per_topic_max=settings.integer("topic.partitions.max"),
        partitions_in_all_max=settings.integer("cluster.partitions.max"),
    )


def _limits(config: BrokerConfig) -> Limits:
    settings = config.settings
    return Limits(
        frame_bytes_max=settings.integer("socket.request.max.bytes"),
        request_bytes_total_max=settings.integer("queued.max.request.bytes"),
        connections_max=settings.integer("max.connections"),
        connections_per_address_max=settings.integer("max.connections.per.ip"),
        idle_ms=settings.integer("connections.max.idle.ms"),
    )


def _as_clients_see_it(config: BrokerConfig, bound: Address) -> Broker:
    advertised = config.settings.text("advertised.listeners")
    address = Address.parse(advertised, "advertised.listeners") if advertised else bound
    return Broker(
        broker_id=config.broker_id, host=address.host, port=address.port, rack=config.rack
    )


def _handlers(
    config: BrokerConfig,
    produce: ProduceHandler,
    store: MetadataStore,
    controller: ControllerDriver,
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    clock: Clock,
) -> dict[ApiKey, Handler]:
    settings = config.settings
    entries = ConfigEntries(settings)
    draw = random.SystemRandom()
    sessions = FetchSessions(
        settings.integer("max.incremental.fetch.session.cache.slots"),
        lambda: draw.randint(1, FETCH_SESSION_ID_MAX),
    )
    handlers: dict[ApiKey, Handler] = {}
    families = (
        produce,
        FetchHandler(
            replicas, store, sessions, clock, answer_bytes_max=settings.integer("fetch.max.bytes")
        ),
        OffsetsHandler(replicas),
        MetadataHandler(
            store,
            controller,
            lambda: handlers,
            auto_create_topics=settings.boolean("auto.create.topics.enable"),
        ),
        TopicsHandler(
            store,
            controller,
            entries.of_topic,
            deletion_enabled=settings.boolean("delete.topic.enable"),
        ),
        ConfigsHandler(config.broker_id, store, controller, entries),
        ProducersHandler(controller, replicas),
        LogDirsHandler(replicas, config.data_dir),
        GroupsHandler(groups.service, groups.topic, store),
    )
    for family in families:
        handlers.update(family.handlers())
    return handlers


def _chores(config: BrokerConfig, logs: LogManager, flusher: Flusher, clock: Clock) -> list[Chore]:
    settings = config.settings

    async def checkpoint() -> None:
        for log in logs.logs_to_checkpoint():
            flusher.request(log)
        if moved := logs.begin_checkpoint_if_moved():
            await asyncio.to_thread(moved.run)

    async def retention() -> None:
        logs.retention_pass(clock.now_ms(), lambda log: log.log_end_offset)
        await asyncio.to_thread(logs.empty_trash, logs.take_trash())

    async def compaction() -> None:
        # One log at a time: the heavy part runs in a thread, and disks are shared.
        while work := logs.begin_compaction(clock.now_ms(), lambda log: log.log_end_offset):
            await asyncio.to_thread(work.run)
            logs.finish_compaction(work)

    chores = [
        Chore(
            name="checkpoint",
            interval_ms=settings.integer("log.flush.offset.checkpoint.interval.ms"),
            work=checkpoint,
        ),
        Chore(
            name="retention",
            interval_ms=settings.integer("log.retention.check.interval.ms"),
            work=retention,
        ),
    ]
    if settings.boolean("log.cleaner.enable"):
        interval_ms = settings.integer("log.cleaner.backoff.ms")
        chores.append(Chore(name="compaction", interval_ms=interval_ms, work=compaction))
    return chores


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

"""The composition root: builds a broker from its config, starts it, and stops it."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from zhumq.broker.access import Access
from zhumq.broker.config import BrokerConfig
from zhumq.broker.dispatch import Dispatcher
from zhumq.broker.handlers.produce import ProduceHandler
from zhumq.broker.housekeeping import broker_chores, do_chores
from zhumq.broker.kept_ports import keep_ports, port_name, with_kept_ports
from zhumq.broker.listening import DRAIN_SECONDS, cannot_listen, endpoint_of
from zhumq.broker.quota_settings import quota_sampling
from zhumq.broker.quotas import ClientQuotas
from zhumq.broker.retention_settings import retention_settings
from zhumq.broker.wiring.audit import open_audit
from zhumq.broker.wiring.authentication import open_authentication
from zhumq.broker.wiring.authorization import open_authorization
from zhumq.broker.wiring.cluster_member import ClusterMember, open_ensemble
from zhumq.broker.wiring.coordinators import Coordinators
from zhumq.broker.wiring.foundation import Foundation
from zhumq.broker.wiring.handlers import all_handlers
from zhumq.broker.wiring.http import all_metrics, open_http
from zhumq.broker.wiring.membership import Membership, SoleMember
from zhumq.broker.wiring.observation import Observation
from zhumq.broker.wiring.push import open_push
from zhumq.cluster.local_store import LocalStore
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.router import LeaderRouter
from zhumq.host.clock import Clock, SystemClock, utc_offset_ms
from zhumq.host.disk import Disk, SystemDisk
from zhumq.host.kernel_syncs import KernelSyncs
from zhumq.metadata.image import Broker, Endpoint
from zhumq.metadata.topics import MODE_SETTING, TopicLimits
from zhumq.model.address import Address
from zhumq.model.errors import BrokerError
from zhumq.model.metric import Metric
from zhumq.model.replication_mode import Mode
from zhumq.net.limits import Counters, Limits
from zhumq.net.listener import CannotBind, Listener
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import Replication
from zhumq.storage.disk_room import DiskRoom
from zhumq.storage.due_runs import DueRuns
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_manager import LogManager
from zhumq.storage.retention_pass import Retention
from zhumq.storage.scrub import Scrubber

logger = logging.getLogger(__name__)


class BrokerApp:
    """A running broker. `await BrokerApp.start(config)` returns one that serves."""

    def __init__(
        self,
        config: BrokerConfig,
        kafka_address: Address,
        http_address: Address,
        push_name: str,
        metrics: Callable[[], list[Metric]],
        parts: contextlib.AsyncExitStack,
    ) -> None:
        self.config = config
        self.kafka_address = kafka_address  # of the first listener
        self.http_address = http_address
        self.push_name = push_name  # where push consumers connect, or `off`
        self.metrics = metrics  # the current ones, as at /metrics
        self._parts = parts

    @classmethod
    async def start(
        cls, config: BrokerConfig, *, disk: Disk | None = None, clock: Clock | None = None
    ) -> Self:
        """Open the data folder, listen, serve. Parts close in reverse order, at a stop and when the
        start fails in the middle."""
        clock = clock or SystemClock()
        disk = disk or SystemDisk()
        config = with_kept_ports(config, disk)
        kept = retention_settings(config.settings)
        async with contextlib.AsyncExitStack() as parts:
            logs, member = await _open_folder(config, disk, clock, parts)
            store = member.store
            logs.load(
                lambda topic: config.partition_settings(_topic_settings(store, topic)).log_config
            )
            flusher = Flusher(
                asyncio.get_running_loop().call_soon_threadsafe,
                kernel_syncs=KernelSyncs.open() if disk.syncs_by_descriptor else None,
            )
            parts.callback(flusher.close)
            audit = open_audit(config, clock, parts)
            replicas = ReplicaManager(
                config.broker_id,
                logs,
                flusher,
                config.partition_settings,
                member.replication,
            )
            parts.push_async_callback(replicas.close)
            disk_room = DiskRoom(logs, kept.watermarks)
            retention = Retention(logs, replicas.facts_of, clock, kept, utc_offset_ms)
            base = Foundation(
                broker_id=config.broker_id,
                settings=config.settings,
                partition_settings=config.partition_settings,
                store=store,
                metadata_client=MetadataClient(store, _topic_limits(config), uuid.uuid4),
                replication=member.replication,
                replicas=replicas,
                router=LeaderRouter(store, config.broker_id, member.replication),
                clock=clock,
                due_runs=DueRuns(disk, str(config.data_dir)),
            )
            coordinators = Coordinators.open(base, parts)
            authentication = await open_authentication(config, member, clock, audit.record)
            parts.callback(authentication.close)
            authorization = open_authorization(config, store, audit.record)
            quotas = ClientQuotas(quota_sampling(config.settings), clock)
            quotas.apply(store.image)
            store.watch(quotas.apply)
            push = await open_push(
                config,
                base,
                coordinators,
                authorization,
                authentication,
                quotas,
                retention,
                disk_room,
            )
            parts.push_async_callback(push.close)
            counters = Counters()
            observation = Observation(config.data_dir, base, coordinators, disk_room, counters)
            produce = ProduceHandler(
                replicas,
                store,
                clock,
                coordinators.transactions.routed,
                observation.seen_producers,
            )
            dispatcher = Dispatcher(
                all_handlers(
                    config,
                    base,
                    coordinators,
                    push.bound,
                    produce,
                    authentication,
                    quotas,
                    observation,
                    audit.reader,
                    disk_room,
                    has_authorizer=authorization is not None,
                ),
                produce.answer_run,
                Access(authorization, quotas),
                gate=authentication,
                on_connection_lost=coordinators.delivery.connection_lost,
            )
            parts.callback(_write_high_watermarks, logs, replicas)
            peer_address = await member.listen(parts)
            listener = await _listen(config, dispatcher, quotas, counters)
            parts.push_async_callback(listener.close, DRAIN_SECONDS)
            scrubber = Scrubber(
                logs,
                clock,
                bytes_per_second=config.settings.integer("log.scrub.bytes.per.second"),
                interval_ms=config.settings.integer("log.scrub.interval.ms"),
            )
            metrics = partial(
                all_metrics,
                listener,
                dispatcher,
                replicas,
                coordinators,
                member,
                disk_room,
                retention,
                scrubber,
                authentication,
                observation,
            )
            http = await open_http(
                config.http,
                metrics,
                config.broker_id,
                replicas,
                coordinators,
                member,
                disk_room,
                authentication,
                authorization,
            )
            parts.push_async_callback(http.close)
            addresses = [Address(*address) for address in listener.addresses]
            broker = _registration(config, addresses, peer_address, push.advertised)
            await member.join(broker, replicas)
            chores = broker_chores(
                config.settings, logs, flusher, replicas, clock, disk_room, scrubber, retention
            )
            chores += observation.chores()
            parts.push_async_callback(_cancel, asyncio.create_task(do_chores(chores)))
            http_address = Address(*http.address)
            ports = {"http": http_address.port, "push": push.port}
            for each, address in zip(config.listeners, addresses, strict=True):
                ports[port_name(config, each)] = address.port
            if peer_address is not None:
                ports["inter-broker"] = peer_address.port
            keep_ports(config, disk, {name: port for name, port in ports.items() if port})
            return cls(config, addresses[0], http_address, push.name, metrics, parts.pop_all())

    @property
    def ready_line(self) -> str:
        """The line on stdout that programs which start a broker wait for."""
        return (
            f"zhumq ready kafka={self.kafka_address} push={self.push_name} http={self.http_address}"
            f" broker={self.config.broker_id} data={self.config.data_dir}"
        )

    async def stop(self) -> None:
        """Finish requests in progress, flush everything, and release the data folder."""
        await self._parts.aclose()


async def _listen(
    config: BrokerConfig, dispatcher: Dispatcher, quotas: ClientQuotas, counters: Counters
) -> Listener:
    endpoints = [endpoint_of(listener) for listener in config.listeners]
    try:
        return await Listener.open(
            *endpoints,
            service=dispatcher,
            limits=_limits(config),
            delay_ms_of=quotas.connection_delay_ms,
            counters=counters,
        )
    except CannotBind as reason:
        failed = config.listeners[endpoints.index(reason.endpoint)]
        raise cannot_listen(failed, reason) from None


async def _open_folder(
    config: BrokerConfig, disk: Disk, clock: Clock, parts: contextlib.AsyncExitStack
) -> tuple[LogManager, Membership]:
    """Open the data folder and the metadata store of its cluster."""

    def take(cluster_id: str | None) -> LogManager:
        logs = LogManager.take(
            str(config.data_dir),
            disk=disk,
            clock=clock,
            broker_id=config.broker_id,
            cluster_id=cluster_id,
        )
        parts.callback(logs.close)
        return logs

    if config.zookeeper is None:
        logs = take(None)
        local = LocalStore.open(
            config.data_dir, disk=disk, cluster_id=logs.cluster_id, broker_id=config.broker_id
        )
        parts.push_async_callback(local.close)
        return logs, SoleMember(
            store=local,
            replication=Replication.of_one(config.broker_id, lambda: local.image, clock),
        )
    store = await open_ensemble(config, disk)
    parts.push_async_callback(store.close)
    return take(store.image.cluster_id), ClusterMember(config, store, clock)


def _write_high_watermarks(logs: LogManager, replicas: ReplicaManager) -> None:
    try:
        logs.checkpoint(replicas.high_watermarks())
    except BrokerError as reason:
        logger.warning(
            "high watermarks not checkpointed, the next start uses older ones: %s", reason
        )


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
        virtual_nodes=settings.integer("placement.virtual.nodes"),
        default_mode=Mode(settings.text(MODE_SETTING)),
    )


def _limits(config: BrokerConfig) -> Limits:
    settings = config.settings
    return Limits(
        frame_bytes_max=settings.integer("socket.request.max.bytes"),
        unauthenticated_frame_bytes_max=settings.integer("sasl.server.max.receive.size"),
        authentication_ms=settings.integer("sasl.authentication.timeout.ms"),
        request_bytes_total_max=settings.integer("queued.max.request.bytes"),
        connections_max=settings.integer("max.connections"),
        connections_per_address_max=settings.integer("max.connections.per.ip"),
        idle_ms=settings.integer("connections.max.idle.ms"),
    )


def _registration(
    config: BrokerConfig,
    bound: Sequence[Address],
    peer_address: Address | None,
    push_address: str,
) -> Broker:
    advertised = {
        listener.name: listener.advertised.or_port(address.port)
        for listener, address in zip(config.listeners, bound, strict=True)
    }
    first = advertised[config.listeners[0].name]
    broker = Broker(
        broker_id=config.broker_id,
        host=first.host,
        port=first.port,
        rack=config.rack,
        push_address=push_address,
        endpoints={
            name: Endpoint(host=address.host, port=address.port)
            for name, address in advertised.items()
        },
    )
    if peer_address is None:
        return broker
    replica = config.inter_broker.advertised.or_port(peer_address.port)
    return replace(
        broker,
        replica_host=replica.host,
        replica_port=replica.port,
        replica_tls=config.inter_broker.tls is not None,
    )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

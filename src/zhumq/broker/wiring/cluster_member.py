"""Cluster membership of a broker: ZooKeeper ensemble, inter-broker listener, peers, controller."""

import asyncio
import base64
import contextlib
import logging
import random
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Final

from zhumq.broker.config import BrokerConfig
from zhumq.broker.listening import DRAIN_SECONDS, cannot_listen, endpoint_of
from zhumq.broker.metrics import cluster_metrics, membership_problems, unserved_partitions
from zhumq.broker.settings import MOVE_RATE_SETTING
from zhumq.broker.tls_settings import has_key_store, has_trust_store, tls_config
from zhumq.broker.zookeeper_settings import ensemble_security
from zhumq.cluster.alter_partition_writer import AlterPartitionWriter
from zhumq.cluster.controller import Balance, Controller
from zhumq.cluster.store import SessionState
from zhumq.cluster.zookeeper_store import ZookeeperStore
from zhumq.consensus.contract import ReplicaSettings
from zhumq.host.clock import Clock
from zhumq.host.disk import Disk
from zhumq.metadata.image import Broker, ClusterImage, Topic
from zhumq.metadata.leadership import LeaderPolicy
from zhumq.metadata.topics import MODE_SETTING
from zhumq.model.address import Address
from zhumq.model.errors import SettingInvalid
from zhumq.model.ids import (
    CONSUMER_OFFSETS_TOPIC,
    DELAYED_MESSAGES_TOPIC,
    HALF_MESSAGES_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from zhumq.model.metric import Metric
from zhumq.model.replication_mode import Mode
from zhumq.model.settings import Settings
from zhumq.model.topic_config import topic_settings
from zhumq.net.channel import PeerAddress, PeerUnavailable
from zhumq.net.limits import Limits
from zhumq.net.listener import Endpoint, Listener
from zhumq.net.tls_context import TlsSource
from zhumq.replication.inter_broker.handshake import Identity, Peer
from zhumq.replication.inter_broker.peer_service import PeerService
from zhumq.replication.inter_broker.peers import Peers
from zhumq.replication.log_ends import LogEndsClient
from zhumq.replication.move_throttle import MoveThrottle
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import Replication
from zhumq.storage.checkpoints import META_FILE, read_meta

logger = logging.getLogger(__name__)

# Only brokers connect here, each with a few connections.
PEER_CONNECTIONS_MAX: Final = 10_000
PEER_FRAME_BYTES_MAX: Final = 128 << 20
PEER_REQUEST_BYTES_MAX: Final = 512 << 20
# Followers fetch all the time, so an idle connection is a dead one.
PEER_IDLE_MS: Final = 60_000


_PEER_LIMITS: Final = Limits(
    frame_bytes_max=PEER_FRAME_BYTES_MAX,
    request_bytes_total_max=PEER_REQUEST_BYTES_MAX,
    connections_max=PEER_CONNECTIONS_MAX,
    connections_per_address_max=PEER_CONNECTIONS_MAX,
    idle_ms=PEER_IDLE_MS,
)


async def open_ensemble(config: BrokerConfig, disk: Disk) -> ZookeeperStore:
    """Open the metadata store. The cluster id has to match the data folder, if that has one.

    Raises StoreUnusable with what to do.
    """
    assert config.zookeeper is not None
    meta = read_meta(disk, str(config.data_dir / META_FILE))
    settings = config.settings
    security = ensemble_security(settings)
    if security.sends_password_in_the_clear:
        logger.warning(
            "the password for ZooKeeper at %s is sent in the clear: set zookeeper.ssl.client.enable=true",
            config.zookeeper,
        )
    return await ZookeeperStore.open(
        config.zookeeper,
        new_cluster_id=base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode(),
        expected_cluster_id=None if meta is None else meta.cluster_id,
        session_timeout_ms=settings.integer("zookeeper.session.timeout.ms"),
        connect_ms_max=settings.integer("zookeeper.connection.timeout.ms"),
        create_chroot=settings.boolean("zookeeper.chroot.create"),
        security=security,
    )


class ClusterMember:
    """This broker as a member of a cluster of brokers."""

    def __init__(self, config: BrokerConfig, store: ZookeeperStore, clock: Clock) -> None:
        self._config = config
        self.store = store
        identity = Identity(
            cluster_id=store.image.cluster_id, broker_id=config.broker_id, secret=store.secret
        )
        self._endpoint = endpoint_of(config.inter_broker)
        self._tls = _peer_tls(config, self._endpoint)
        self._peers = Peers(identity, self._address_of)
        self._service = PeerService(identity, is_known=self._is_known)
        log_ends = LogEndsClient(lambda: store.image, self._peers, self._service)
        self._controller_requests = AlterPartitionWriter(
            config.broker_id, store, self._policy_of, log_ends.ask
        )
        balance = _balance(config.settings)
        self._controller = Controller(
            store,
            self._policy_of,
            log_ends.ask,
            balance,
            _internal_replication_factors(config.settings),
        )
        self._throttle = MoveThrottle(clock)
        self._tasks: list[asyncio.Task[None]] = []
        # The broker epoch that the replicas serve in; None without a session.
        self._serving_epoch: int | None = None
        settings = config.settings
        self.replication = Replication(
            peers=self._peers,
            service=self._service,
            log_ends=log_ends,
            controller_requests=self._controller_requests,
            clock=clock,
            # Randomizes election timeouts; it need not be secret.
            draw=random.Random().randint,  # noqa: S311
            throttle=self._throttle,
            settings=ReplicaSettings(
                election_timeout_ms=settings.integer("replica.election.timeout.ms"),
                replica_lag_max_ms=settings.integer("replica.lag.time.max.ms"),
            ),
            balance_seconds=None if balance is None else balance.interval_seconds,
        )

    def secret(self) -> bytes:
        return self.store.secret

    async def listen(self, parts: contextlib.AsyncExitStack) -> Address | None:
        try:
            listener = await Listener.open(
                self._endpoint, service=self._service, limits=_PEER_LIMITS
            )
        except OSError as reason:
            raise cannot_listen(self._config.inter_broker, reason) from None
        parts.push_async_callback(listener.close, DRAIN_SECONDS)
        parts.push_async_callback(self._leave)
        # At a stop, the session ends as soon as clients have their answers.
        parts.push_async_callback(self.store.close)
        return Address(*listener.address)

    async def join(self, broker: Broker, replicas: ReplicaManager) -> None:
        """Register, and take part until the parts of `listen` close. Raises BrokerIdTaken."""
        store = self.store
        for watcher in (self._controller.on_image_changed, self._set_throttle):
            store.watch(watcher)
            watcher(store.image)
        for work in (self._controller_requests.run(), self._controller.run()):
            self._tasks.append(asyncio.get_running_loop().create_task(work))
        await store.register(broker)
        on_session = partial(self._session_changed, replicas)
        store.watch_session(on_session)
        on_session(store.session)
        store.campaign(self._config.broker_id, self._controller)

    def metrics(self, replicas: ReplicaManager) -> Iterable[Metric]:
        store = self.store
        unserved = self._unserved(replicas)
        return cluster_metrics(self._config.broker_id, store.image, store.session, unserved)

    def problems(self, replicas: ReplicaManager) -> Iterable[str]:
        return membership_problems(self.store.session, self._unserved(replicas))

    def _unserved(self, replicas: ReplicaManager) -> list[TopicPartition]:
        return unserved_partitions(self._config.broker_id, self.store.image, replicas)

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._peers.close()

    def _session_changed(self, replicas: ReplicaManager, _state: SessionState) -> None:
        epoch = self.store.broker_epoch
        if epoch == self._serving_epoch:
            # The same session is back: this broker was registered all the time.
            return
        if epoch is not None:
            replicas.on_registered(epoch)
        else:
            replicas.on_session_lost()
        # Set last: if a call above fails, the next session event tries again.
        self._serving_epoch = epoch

    def _set_throttle(self, image: ClusterImage) -> None:
        dynamic = image.broker_setting(self._config.broker_id, MOVE_RATE_SETTING)
        static = self._config.settings.integer(MOVE_RATE_SETTING)
        self._throttle.see(image, static if dynamic is None else int(dynamic))

    def _address_of(self, broker_id: int) -> PeerAddress | None:
        """As the other broker has registered: so brokers change to TLS one after the other."""
        broker = self.store.image.brokers.get(BrokerId(broker_id))
        if broker is None or broker.replica_port == 0:
            return None
        host, port = broker.replica_host, broker.replica_port
        if not broker.replica_tls:
            return PeerAddress(host, port)
        if self._tls is None:
            raise PeerUnavailable("it listens with TLS, and this broker has no TLS settings")
        return PeerAddress(host, port, self._tls.current().client)

    def _is_known(self, peer: Peer) -> bool:
        """Whether a peer may connect: its broker epoch is not older than the registered one."""
        broker = self.store.image.brokers.get(BrokerId(peer.broker_id))
        return broker is None or peer.broker_epoch >= broker.epoch

    def _policy_of(self, topic: Topic) -> LeaderPolicy:
        settings = topic_settings(topic.settings, self._config.settings)
        return LeaderPolicy(
            mode=Mode(settings.text(MODE_SETTING)),
            unclean=settings.boolean("unclean.leader.election.enable"),
            min_in_sync=settings.integer("min.insync.replicas"),
        )


def _peer_tls(config: BrokerConfig, endpoint: Endpoint) -> TlsSource | None:
    """TLS to other brokers. A broker whose own listener has no TLS needs it too, as soon as another one's has."""
    name = config.inter_broker.name
    if endpoint.tls is not None:
        if endpoint.tls.current().client is None:
            raise SettingInvalid(
                f"TLS of listener {name}: brokers verify each other's certificates, so it needs those to"
                " trust: set ssl.truststore.location"
            )
        return endpoint.tls
    if not (has_key_store(config.settings, name) and has_trust_store(config.settings, name)):
        return None
    return TlsSource(name, tls_config(config.settings, name))


def _balance(settings: Settings) -> Balance | None:
    if not settings.boolean("auto.leader.rebalance.enable"):
        return None
    return Balance(
        interval_seconds=settings.integer("leader.imbalance.check.interval.seconds"),
        tolerated_percent=settings.integer("leader.imbalance.per.broker.percentage"),
    )


def _internal_replication_factors(settings: Settings) -> dict[str, int]:
    """Replication factors of internal topics, which may be created before all brokers are up."""
    return {
        CONSUMER_OFFSETS_TOPIC: settings.integer("offsets.topic.replication.factor"),
        SHARE_GROUP_STATE_TOPIC: settings.integer(
            "share.coordinator.state.topic.replication.factor"
        ),
        TRANSACTION_STATE_TOPIC: settings.integer("transaction.state.log.replication.factor"),
        HALF_MESSAGES_TOPIC: settings.integer("half.message.topic.replication.factor"),
        DELAYED_MESSAGES_TOPIC: settings.integer("delayed.message.topic.replication.factor"),
    }

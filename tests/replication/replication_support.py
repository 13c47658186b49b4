"""The replicas of several brokers in one process, with real files, real sockets and a metadata store in memory."""

import asyncio
import contextlib
import random
import uuid
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from zhumq.cluster.alter_partition_writer import AlterPartitionWriter
from zhumq.cluster.store import StoreUnavailable
from zhumq.cluster.znodes import Operation
from zhumq.consensus.contract import ReplicaSettings
from zhumq.host.clock import SystemClock
from zhumq.host.disk import Disk, SystemDisk
from zhumq.metadata.changes import (
    BrokerGone,
    BrokerRegistered,
    Change,
    TopicCreated,
    TopicDeleted,
    apply_changes,
)
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import LeaderPolicy, changed_partition, plan_membership
from zhumq.metadata.modes import plan_steps
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode
from zhumq.net.channel import PeerAddress
from zhumq.net.listener import Endpoint, Listener
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.replication.inter_broker.handshake import Identity
from zhumq.replication.inter_broker.peer_service import PeerService
from zhumq.replication.inter_broker.peers import Peers
from zhumq.replication.log_ends import LogEndsClient
from zhumq.replication.move_throttle import UNLIMITED, MoveThrottle
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import PartitionSettings, Replication
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager

CLUSTER_ID = "replication-test"
SECRET = b"known to all brokers of the cluster"
DEADLINE_SECONDS = 30.0
TOPIC = "t"
T0 = TopicPartition(TOPIC, 0)
Result = TypeVar("Result")


def run(body: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(body, 4 * DEADLINE_SECONDS))


async def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait until a condition is true; returns its value."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        if found := condition():
            return found
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.005)


class Store:
    """The metadata image. Changes reach every node that is not cut off, in order."""

    def __init__(self) -> None:
        self.image = ClusterImage(
            version=0,
            cluster_id=CLUSTER_ID,
            controller_id=NO_BROKER,
            brokers={},
            topics={},
            topics_by_id={},
        )
        self.nodes: dict[int, Node] = {}
        self.writes = 0
        self.min_in_sync = 1
        self.mode = Mode.RAFT
        self._epoch = 100

    def policy_of(self, _: Topic) -> LeaderPolicy:
        return LeaderPolicy(mode=self.mode, min_in_sync=self.min_in_sync)

    def write(self, *changes: Change) -> None:
        self.image = apply_changes(self.image, changes)
        self.writes += 1
        for node in tuple(self.nodes.values()):
            node.apply(self.image)

    def register(self, node: "Node") -> int:
        self._epoch += 1
        host, port = node.listener.address
        broker = Broker(
            broker_id=node.broker_id,
            host="127.0.0.1",
            port=1,
            epoch=self._epoch,
            replica_host=host,
            replica_port=port,
        )
        self.nodes[node.broker_id] = node
        self.write(BrokerRegistered(broker=broker))
        return self._epoch

    def declare_gone(self, broker_id: int) -> None:
        """Do what the controller does when a session ends."""
        live = frozenset(each for each in self.image.brokers if each != broker_id)
        changes = list(plan_membership(self.image, live, self.policy_of))
        assert BrokerGone(broker_id=BrokerId(broker_id)) in changes
        self.write(*changes)

    def repair(self) -> None:
        """Do what the controller does when a broker comes back."""
        changes = list(plan_membership(self.image, frozenset(self.image.brokers), self.policy_of))
        if changes:
            self.write(*changes)

    def step_modes(self) -> None:
        for topic in tuple(self.image.topics.values()):
            if changes := list(plan_steps(self.image, topic, self.policy_of(topic))):
                self.write(*changes)

    def create(
        self,
        name: str = TOPIC,
        *,
        partitions: int = 1,
        replicas: Sequence[int] = (1, 2, 3),
        mode: Mode = Mode.RAFT,
        settings: Mapping[str, str] | None = None,
    ) -> Topic:
        self.mode = mode
        made = []
        for index in range(partitions):
            turn = index % len(replicas)
            order = tuple(BrokerId(each) for each in (*replicas[turn:], *replicas[:turn]))
            made.append(
                PartitionState(
                    replicas=order,
                    leader=order[0],
                    leader_epoch=LeaderEpoch(0),
                    in_sync=order,
                    leader_broker_epoch=self.image.brokers[order[0]].epoch,
                    mode=mode,
                )
            )
        topic = Topic(
            name=name, topic_id=uuid.uuid4(), partitions=tuple(made), settings=settings or {}
        )
        self.write(TopicCreated(topic=topic))
        return topic

    def delete(self, name: str = TOPIC) -> None:
        topic_id = self.image.topics[name].topic_id
        self.write(TopicDeleted(name=name, topic_id=topic_id))

    def change(self, topic_partition: TopicPartition, **fields: Any) -> None:
        state = self.image.partition(topic_partition)
        assert state is not None
        changed = replace(state, partition_epoch=state.partition_epoch + 1, **fields)
        self.write(changed_partition(topic_partition, changed))


class NodeStore:
    """The store as one node uses it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.broker_epoch: int | None = None
        self.is_cut = False

    @property
    def image(self) -> ClusterImage:
        return self._store.image

    async def transact(
        self, plan: Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]
    ) -> ClusterImage:
        if self.is_cut:
            raise StoreUnavailable("cut by the test")
        changes, _ = plan(self._store.image)
        self._store.write(*changes)
        return self._store.image


class Node:
    """The replication half of a broker."""

    def __init__(
        self,
        broker_id: int,
        store: Store,
        data_dir: Path,
        listener: Listener,
        service: PeerService,
        secret: bytes,
        disk: Disk,
        settings: ReplicaSettings,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.broker_id = BrokerId(broker_id)
        self.store = store
        self.own_store = NodeStore(store)
        self.listener = listener
        self.service = service
        self.disk = disk
        self.logs = LogManager.open(
            str(data_dir),
            disk=disk,
            clock=SystemClock(),
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
        )
        self.flusher = Flusher(loop.call_soon_threadsafe)
        identity = Identity(cluster_id=CLUSTER_ID, broker_id=broker_id, secret=secret)
        self.peers = Peers(identity, self.address_of)
        log_ends = LogEndsClient(lambda: store.image, self.peers, service)
        self.controller_requests = AlterPartitionWriter(
            self.broker_id, self.own_store, store.policy_of, log_ends.ask
        )
        self.throttle = MoveThrottle(SystemClock())
        self._move_rate = UNLIMITED
        self.replicas = ReplicaManager(
            self.broker_id,
            self.logs,
            self.flusher,
            self.settings_of,
            Replication(
                peers=self.peers,
                service=service,
                log_ends=log_ends,
                controller_requests=self.controller_requests,
                clock=SystemClock(),
                draw=random.Random(broker_id).randint,
                throttle=self.throttle,
                settings=settings,
            ),
        )
        self.leadership: list[tuple[TopicPartition, bool, int]] = []
        self.replicas.watch_leadership(lambda *change: self.leadership.append(change))
        self.images_held: list[ClusterImage] | None = None
        # Addresses to use instead of the registered ones: a proxy, for example. None: unreachable.
        self.detours: dict[int, tuple[str, int] | None] = {}
        self._requesting = loop.create_task(self.controller_requests.run())

    @classmethod
    async def start(
        cls,
        broker_id: int,
        store: Store,
        data_dir: Path,
        *,
        secret: bytes = SECRET,
        disk: Disk | None = None,
        settings: ReplicaSettings | None = None,
    ) -> "Node":
        identity = Identity(cluster_id=CLUSTER_ID, broker_id=broker_id, secret=secret)
        service = PeerService(identity)
        listener = await Listener.open(
            Endpoint(host="127.0.0.1", port=0, name="REPLICATION"), service=service
        )
        node = cls(
            broker_id,
            store,
            data_dir,
            listener,
            service,
            secret,
            disk or SystemDisk(),
            settings or ReplicaSettings(),
        )
        # As a broker does: its disk should have every replica of the image from before it registers.
        node.apply(store.image)
        node.register()
        return node

    def register(self) -> None:
        self.own_store.is_cut = False
        epoch = self.store.register(self)
        self.own_store.broker_epoch = epoch
        self.replicas.on_registered(epoch)

    def settings_of(self, overrides: Mapping[str, str]) -> PartitionSettings:
        return PartitionSettings(
            log_config=LogConfig(segment_bytes=int(overrides.get("segment.bytes", 1 << 30))),
            min_in_sync_replicas=self.store.min_in_sync,
        )

    def address_of(self, broker_id: int) -> PeerAddress | None:
        if broker_id in self.detours:
            detour = self.detours[broker_id]
            return None if detour is None else PeerAddress(*detour)
        broker = self.store.image.brokers.get(BrokerId(broker_id))
        if broker is None:
            node = self.store.nodes.get(broker_id)
            return PeerAddress(*node.listener.address) if node is not None else None
        return PeerAddress(broker.replica_host, broker.replica_port)

    def apply(self, image: ClusterImage) -> None:
        if self.own_store.is_cut:
            return
        if self.images_held is not None:
            self.images_held.append(image)
        else:
            self.replicas.apply(image)
            self.throttle.see(image, self._move_rate)

    def limit_moves(self, bytes_per_second: int) -> None:
        self._move_rate = bytes_per_second
        self.throttle.see(self.store.image, bytes_per_second)

    def reset_connections(self) -> None:
        """Reset the connections that this node has opened to others."""
        router = self.replicas.lifecycle.router
        for fetcher in router.fetchers:
            fetcher.reconnect("cut by the test")
        for outbox in router.outboxes:
            outbox._channel.reset("cut by the test")

    async def stop(self, *, clean: bool = True) -> None:
        """Stop the node. Unclean: without checkpoints, as after a kill."""
        if self.store.nodes.get(self.broker_id) is self:
            del self.store.nodes[self.broker_id]
        self._requesting.cancel()
        await asyncio.gather(self._requesting, return_exceptions=True)
        high_watermarks = self.replicas.high_watermarks()
        await self.replicas.close()
        self.peers.close()
        await self.listener.close()
        self.flusher.close()
        self.logs.close(clean=clean, high_watermarks=high_watermarks if clean else None)

    def partition(self, topic_partition: TopicPartition = T0) -> Partition:
        return self.replicas.partition(*topic_partition)

    @property
    def fetches_sent(self) -> int:
        return sum(each.fetches_count for each in self.replicas.lifecycle.router.fetchers)


class Nodes:
    """All brokers of a test."""

    def __init__(self, root: Path) -> None:
        self.store = Store()
        self.root = root
        self.up: dict[int, Node] = {}

    def __getitem__(self, broker_id: int) -> Node:
        return self.up[broker_id]

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self.up.values()))

    async def start(self, *broker_ids: int, **options: Any) -> None:
        for broker_id in broker_ids:
            data_dir = self.root / f"broker-{broker_id}"
            self.up[broker_id] = await Node.start(broker_id, self.store, data_dir, **options)

    async def stop(self, broker_id: int, *, clean: bool = True, declare: bool = True) -> None:
        await self.up.pop(broker_id).stop(clean=clean)
        if declare:
            self.store.declare_gone(broker_id)

    def leader(self, topic_partition: TopicPartition = T0) -> Node | None:
        """The node that serves, once the metadata image shows it."""
        state = self.store.image.partition(topic_partition)
        if state is None:
            return None
        node = self.up.get(state.leader)
        if node is None:
            return None
        found = node.replicas.find(*topic_partition)
        if found is None or not found.leads or found.leader_epoch != state.leader_epoch:
            return None
        return node

    async def wait_leader(self, topic_partition: TopicPartition = T0) -> Node:
        found = await until(lambda: self.leader(topic_partition), f"{topic_partition} has a leader")
        assert isinstance(found, Node)
        return found

    async def wait_equal(
        self, topic_partition: TopicPartition = T0, *, nodes: Iterable[int] | None = None
    ) -> int:
        """Wait until all logs have the same end, and everything is committed everywhere."""
        ids = tuple(nodes or self.up)

        def equal() -> tuple[int, ...]:
            each = [self.up[number].partition(topic_partition) for number in ids]
            ends = {one.log_end_offset for one in each} | {one.high_watermark for one in each}
            return tuple(ends) if len(ends) == 1 else ()

        try:
            found = await until(equal, f"the replicas of {topic_partition} are equal")
            return int(found[0])
        except AssertionError as error:
            parts = [self.up[number].partition(topic_partition) for number in ids]
            facts = [
                (
                    one.log_end_offset,
                    one.log.flushed_offset,
                    one.high_watermark,
                    one.driver.core.role,
                )
                for one in parts
            ]
            raise AssertionError(f"{error}: {facts}") from error


@contextlib.asynccontextmanager
async def nodes(
    root: Path, *broker_ids: int, settings: ReplicaSettings | None = None
) -> AsyncIterator[Nodes]:
    made = Nodes(root)
    try:
        await made.start(*(broker_ids or (1, 2, 3)), settings=settings)
        yield made
    finally:
        for node in tuple(made.up.values()):
            await node.stop(clean=False)


def batch(*values: str, producer_id: int = -1, sequence: int = -1) -> bytes:
    return build_batch(
        [Record(value=value.encode(), timestamp=1_700_000_000_000) for value in values],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


async def produce(nodes_up: Nodes, *values: str, topic_partition: TopicPartition = T0) -> int:
    """Produce with acks=-1 and retries. Returns the offset."""
    while True:
        node = await nodes_up.wait_leader(topic_partition)
        partition = node.partition(topic_partition)
        try:
            partition.check_enough_replicas()
            appended = partition.append(batch(*values), 1_700_000_000_000)
            await partition.when_durable(appended.last_offset + 1)
        except BrokerError as reason:
            if not reason.retriable:
                raise
            await asyncio.sleep(0.02)
        else:
            return appended.base_offset


def values_of(node: Node, topic_partition: TopicPartition = T0) -> list[str]:
    """All data records in a node's log, committed or not."""
    found: list[str] = []
    for each in batches(bytes_of(node, topic_partition)):
        if not each.header.is_control:
            found += [(record.value or b"").decode() for record in each.records()]
    return found


def bytes_of(node: Node, topic_partition: TopicPartition = T0) -> bytes:
    log = node.partition(topic_partition).log
    data = b""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 20, up_to_offset=log.log_end_offset)
        assert part.next_offset > offset, f"nothing at {offset}, the end is {log.log_end_offset}"
        data += part.read_bytes()
        offset = part.next_offset
    return data

"""Dependencies of replication: peers, controller requests, clock, randomness; and settings of partitions."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from zhumq.consensus.contract import Draw, ReplicaSettings
from zhumq.host.clock import Clock
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import BrokerId
from zhumq.replication.controller_requests import ControllerRequests, EmbeddedController
from zhumq.replication.inter_broker.handshake import Identity
from zhumq.replication.inter_broker.peer_service import PeerService
from zhumq.replication.inter_broker.peers import Peers
from zhumq.replication.log_ends import LogEndsClient
from zhumq.replication.move_throttle import MoveThrottle
from zhumq.storage.log_config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSettings:
    """What a topic's settings mean for its partitions."""

    log_config: LogConfig
    min_in_sync_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """What a ReplicaManager depends on."""

    peers: Peers
    service: PeerService
    log_ends: LogEndsClient
    controller_requests: ControllerRequests
    clock: Clock
    draw: Draw
    throttle: MoveThrottle
    # Times for all partitions; min_in_sync_replicas comes from each topic's settings.
    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    # How often preferred leaders are elected for raft partitions; None: only on request.
    balance_seconds: float | None = None

    @classmethod
    def of_one(cls, broker_id: BrokerId, image: Callable[[], ClusterImage], clock: Clock) -> Self:
        """For a broker without a cluster: it has no peers, and every partition has one replica."""
        identity = Identity(cluster_id="", broker_id=broker_id, secret=secrets.token_bytes())
        peers = Peers(identity, lambda _: None)
        service = PeerService(identity, is_known=lambda _: False)
        return cls(
            peers=peers,
            service=service,
            log_ends=LogEndsClient(image, peers, service),
            controller_requests=EmbeddedController(),
            clock=clock,
            draw=lambda low, _: low,
            throttle=MoveThrottle(clock),
        )

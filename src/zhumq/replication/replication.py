"""Dependencies of a replicated broker: peers, controller requests, clock, randomness."""

from dataclasses import dataclass, field

from zhumq.consensus.contract import Draw, ReplicaSettings
from zhumq.host.clock import Clock
from zhumq.replication.controller_requests import ControllerRequests
from zhumq.replication.inter_broker.peer_service import PeerService
from zhumq.replication.inter_broker.peers import Peers
from zhumq.replication.move_throttle import MoveThrottle


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """What the ReplicaManager of a broker in a cluster depends on."""

    peers: Peers
    service: PeerService
    controller_requests: ControllerRequests
    clock: Clock
    draw: Draw
    throttle: MoveThrottle
    # Times for all partitions; min_in_sync_replicas comes from each topic's settings.
    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    # How often preferred leaders are elected for raft partitions; None: only on request.
    balance_seconds: float | None = None

"""What a broker needs to be one of several: its peers, its wishes, time and chance."""

from dataclasses import dataclass, field

from zhumq.consensus.contract import Draw, ReplicaSettings
from zhumq.host.clock import Clock
from zhumq.replication.controller_requests import ControllerRequests
from zhumq.replication.inter_broker.peer_service import PeerService
from zhumq.replication.inter_broker.peers import Peers
from zhumq.replication.move_throttle import MoveThrottle


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """Handed to the ReplicaManager of a broker in a cluster."""

    peers: Peers
    service: PeerService
    controller_requests: ControllerRequests
    clock: Clock
    draw: Draw
    throttle: MoveThrottle
    # Times for all partitions; min_in_sync_replicas comes from each topic's settings.
    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    # How often leadership of raft partitions goes back to their first replicas; None: never by itself.
    balance_seconds: float | None = None

"""Wiring of the HTTP listener: metrics, health and readiness of all parts."""

from collections.abc import Callable

from zhumq.broker.authentication import Authentication
from zhumq.broker.authorization import AclAuthorization
from zhumq.broker.dispatch import Dispatcher
from zhumq.broker.http import HttpServer
from zhumq.broker.listener_config import ListenerConfig
from zhumq.broker.listening import cannot_listen, tls_source
from zhumq.broker.metrics import (
    authentication_metrics,
    broker_metrics,
    health_problems,
    retention_metrics,
    unserved_partitions,
)
from zhumq.broker.metrics_guard import metrics_guard
from zhumq.broker.readiness import obstacles_to_service
from zhumq.broker.request_metrics import request_metrics
from zhumq.broker.wiring.coordinators import Coordinators
from zhumq.broker.wiring.membership import Membership
from zhumq.broker.wiring.observation import Observation
from zhumq.model.ids import BrokerId
from zhumq.model.metric import Metric
from zhumq.net.listener import Listener
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.disk_room import DiskRoom
from zhumq.storage.retention_pass import Retention
from zhumq.storage.scrub import Scrubber


def all_metrics(
    listener: Listener,
    dispatcher: Dispatcher,
    replicas: ReplicaManager,
    coordinators: Coordinators,
    member: Membership,
    disk_room: DiskRoom,
    retention: Retention,
    scrubber: Scrubber,
    authentication: Authentication,
    observation: Observation,
) -> list[Metric]:
    """What a broker tells of itself at this moment."""
    return [
        *broker_metrics(listener, dispatcher, replicas, disk_room, scrubber),
        *request_metrics(listener.times),
        *retention_metrics(retention, disk_room),
        *coordinators.metrics(),
        *member.metrics(replicas),
        *authentication_metrics(authentication),
        *observation.metrics(),
    ]


async def open_http(
    config: ListenerConfig,
    metrics: Callable[[], list[Metric]],
    broker_id: BrokerId,
    replicas: ReplicaManager,
    coordinators: Coordinators,
    member: Membership,
    disk_room: DiskRoom,
    authentication: Authentication,
    authorization: AclAuthorization | None,
) -> HttpServer:
    """Serve metrics and health. Raises SettingInvalid if it cannot listen."""

    def obstacles() -> list[str]:
        unserved = unserved_partitions(broker_id, member.store.image, replicas)
        return obstacles_to_service(replicas, disk_room, unserved, coordinators.loading())

    def problems() -> list[str]:
        return [
            *health_problems(replicas, disk_room),
            *member.problems(replicas),
        ]

    try:
        return await HttpServer.open(
            config.bind.host,
            config.bind.port,
            metrics,
            problems,
            obstacles=obstacles,
            tls=tls_source(config),
            guard=metrics_guard(config, authentication, authorization),
        )
    except OSError as reason:
        raise cannot_listen(config, reason) from None

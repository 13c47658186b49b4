"""Wiring of the HTTP listener: metrics and health of all parts."""

from zhumq.broker.authentication import Authentication
from zhumq.broker.authorization import AclAuthorization
from zhumq.broker.dispatch import Dispatcher
from zhumq.broker.http import HttpServer, Metric
from zhumq.broker.listener_config import ListenerConfig
from zhumq.broker.listening import cannot_listen, tls_source
from zhumq.broker.metrics import (
    authentication_metrics,
    broker_metrics,
    health_problems,
    retention_metrics,
)
from zhumq.broker.metrics_guard import metrics_guard
from zhumq.broker.wiring.coordinators import Coordinators
from zhumq.broker.wiring.membership import Membership
from zhumq.net.listener import Listener
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.disk_room import DiskRoom
from zhumq.storage.retention_pass import Retention
from zhumq.storage.scrub import Scrubber


async def open_http(
    config: ListenerConfig,
    listener: Listener,
    dispatcher: Dispatcher,
    replicas: ReplicaManager,
    coordinators: Coordinators,
    member: Membership,
    disk_room: DiskRoom,
    retention: Retention,
    scrubber: Scrubber,
    authentication: Authentication,
    authorization: AclAuthorization | None,
) -> HttpServer:
    """Serve metrics and health. Raises SettingInvalid if it cannot listen."""

    def metrics() -> list[Metric]:
        return [
            *broker_metrics(listener, dispatcher, replicas, disk_room, scrubber),
            *retention_metrics(retention, disk_room),
            *coordinators.metrics(),
            *member.metrics(replicas),
            *authentication_metrics(authentication),
        ]

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
            tls=tls_source(config),
            guard=metrics_guard(config, authentication, authorization),
        )
    except OSError as reason:
        raise cannot_listen(config, reason) from None

"""Wiring of the push listener. Without grpcio the broker logs a hint and serves without push."""

import logging
from functools import partial
from typing import Protocol, Self

from zhumq.broker.authentication import Authentication
from zhumq.broker.authorization import AclAuthorization
from zhumq.broker.config import PUSH_OFF, BrokerConfig
from zhumq.broker.listener_config import ListenerConfig
from zhumq.broker.listening import cannot_listen, tls_source
from zhumq.broker.quotas import ClientQuotas
from zhumq.broker.wiring.coordinators import Coordinators
from zhumq.broker.wiring.foundation import Foundation
from zhumq.model.address import Address
from zhumq.model.settings import Settings
from zhumq.push.settings import PushSettings
from zhumq.share.push_session import SessionPolicy
from zhumq.storage.disk_room import DiskRoom
from zhumq.storage.retention_pass import Retention

logger = logging.getLogger(__name__)

# Imported name and the package to install.
_PACKAGES = {"grpc": "grpcio", "google": "protobuf"}
HINT = "push is off because %s is not installed: pip install 'zhumq[push]'"


class RunningPush(Protocol):
    """A push server that listens."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def close(self) -> None: ...


class PushPart:
    """The push listener of the broker; `name` is `off` without one."""

    def __init__(self, server: RunningPush | None, config: ListenerConfig | None) -> None:
        self._server = server
        self.name = PUSH_OFF
        self.port = 0
        self.advertised = ""
        if server is not None and config is not None:
            bound = Address(*server.address)
            self.name = str(bound)
            self.port = bound.port
            self.advertised = str(config.advertised.or_port(bound.port))
        # What DescribeConfigs shows for this broker.
        self.bound = {"advertised.push.listener": self.advertised or PUSH_OFF}

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        base: Foundation,
        coordinators: Coordinators,
        authorization: AclAuthorization | None,
        authentication: Authentication,
        quotas: ClientQuotas,
        retention: Retention,
        disk_room: DiskRoom,
    ) -> Self:
        """Listen for push consumers, if configured and grpcio is installed. Raises OSError."""
        if config.push is None:
            return cls(None, None)
        try:
            # Imported here: grpcio is an extra, and a broker works without it.
            from zhumq.push.callers import any_caller  # noqa: PLC0415
            from zhumq.push.retention import retention_answer  # noqa: PLC0415
            from zhumq.push.server import PushServer  # noqa: PLC0415
            from zhumq.push.services import PushServices  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            package = _PACKAGES.get((missing.name or "").partition(".")[0])
            if package is None:
                raise
            logger.info(HINT, package)
            return cls(None, None)
        own: dict[int, str] = {}

        def addresses() -> dict[int, str]:
            found = {int(key): each.push_address for key, each in base.store.image.brokers.items()}
            return found | own

        services = PushServices(
            broker_id=config.broker_id,
            store=base.store,
            deliveries=coordinators.delivery.service,
            groups=coordinators.groups.routed,
            half_messages=coordinators.half_messages.service,
            clock=base.clock,
            settings=push_settings(config.settings),
            push_addresses=addresses,
            quotas=quotas,
            prepare_quotas=quotas,
            explain_retention=lambda topic: retention_answer(
                retention.explain(topic, disk_room.usage),
                config.broker_id,
                refuses_writes=bool(disk_room.refusal),
            ),
            caller_of=any_caller
            if authorization is None
            else partial(authorization.caller, config.push.name),
        )
        bind = config.push.bind
        server = await PushServer.open(
            services,
            bind.host,
            bind.port,
            tls=tls_source(config.push),
            authenticate=authentication.of_calls(config.push.name),
        )
        base.store.watch(services.apply)
        part = cls(server, config.push)
        own[config.broker_id] = part.advertised
        return part

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()


async def open_push(
    config: BrokerConfig,
    base: Foundation,
    coordinators: Coordinators,
    authorization: AclAuthorization | None,
    authentication: Authentication,
    quotas: ClientQuotas,
    retention: Retention,
    disk_room: DiskRoom,
) -> PushPart:
    """The push listener. Raises SettingInvalid if it cannot listen."""
    try:
        return await PushPart.open(
            config,
            base,
            coordinators,
            authorization,
            authentication,
            quotas,
            retention,
            disk_room,
        )
    except OSError as reason:
        assert config.push is not None
        raise cannot_listen(config.push, reason) from None


def push_settings(settings: Settings) -> PushSettings:
    return PushSettings(
        ping_interval_ms=settings.integer("push.ping.interval.ms"),
        ping_timeout_ms=settings.integer("push.ping.timeout.ms"),
        ack_timeout_ms=settings.integer("push.ack.timeout.ms"),
        streams_max=settings.integer("push.max.streams"),
        session=SessionPolicy(
            retries_max=settings.integer("push.retries.max"),
            backoff_ms=settings.integer("push.retry.backoff.ms"),
            backoff_ms_max=settings.integer("push.retry.backoff.max.ms"),
        ),
    )

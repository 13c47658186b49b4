"""The push door put together, where grpcio is installed; else a hint, and the broker serves without it."""

import logging
from typing import Protocol, Self

from zhumq.broker.config import PUSH_OFF, BrokerConfig
from zhumq.broker.group_coordinator import GroupCoordinator
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_seam import Deliveries
from zhumq.host.clock import Clock
from zhumq.model.address import Address
from zhumq.model.settings import Settings
from zhumq.push.group_client import GroupClient
from zhumq.push.settings import PushSettings
from zhumq.replication.replication import Replication
from zhumq.share.push_session import SessionPolicy

logger = logging.getLogger(__name__)

# What is imported, and the name by which it is installed.
_PACKAGES = {"grpc": "grpcio", "google": "protobuf"}
HINT = "push is off because %s is not installed: pip install 'zhumq[push]'"


class RunningPush(Protocol):
    """A push door that serves."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def close(self) -> None: ...


class PushPart:
    """The push door as a part of the broker; `name` is `off` where there is none."""

    def __init__(self, server: RunningPush | None, advertised: Address | None) -> None:
        self._server = server
        self.name = PUSH_OFF
        self.port = 0
        self.advertised = ""
        if server is not None and advertised is not None:
            bound = Address(*server.address)
            self.name = str(bound)
            self.port = bound.port
            self.advertised = str(advertised.or_port(bound.port))
        # What clients find in this broker's settings.
        self.bound = {"advertised.push.listener": self.advertised or PUSH_OFF}

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        store: MetadataStore,
        deliveries: Deliveries,
        groups: GroupCoordinator,
        clock: Clock,
        replication: Replication | None,
    ) -> Self:
        """Listen for push consumers, if the config says so and grpcio is there. Raises OSError."""
        if config.push is None:
            return cls(None, None)
        try:
            # Imported here: grpcio is an extra, and a broker without it is a broker all the same.
            from zhumq.push.server import PushServer  # noqa: PLC0415
            from zhumq.push.services import PushServices  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            package = _PACKAGES.get((missing.name or "").partition(".")[0])
            if package is None:
                raise
            logger.info(HINT, package)
            return cls(None, None)
        coordinator = GroupClient(
            groups.service,
            groups.topic,
            store,
            broker_id=config.broker_id,
            peers=None if replication is None else replication.peers,
        )
        if replication is not None:
            coordinator.register(replication.service)
        own: dict[int, str] = {}

        def addresses() -> dict[int, str]:
            found = {int(key): each.push_address for key, each in store.image.brokers.items()}
            return found | own

        services = PushServices(
            broker_id=config.broker_id,
            store=store,
            deliveries=deliveries,
            groups=coordinator,
            clock=clock,
            settings=push_settings(config.settings),
            push_addresses=addresses,
        )
        server = await PushServer.open(services, config.push.host, config.push.port)
        store.watch(services.apply)
        part = cls(server, config.push_advertised)
        own[config.broker_id] = part.advertised
        return part

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()


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

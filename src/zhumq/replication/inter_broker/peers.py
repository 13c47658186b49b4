"""Channels from this broker to the other brokers."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from zhumq.model.errors import BrokerError
from zhumq.net.channel import Channel, ChannelLimits, Exchange, PeerAddress
from zhumq.protocol.peer_api import Answered, Asked, PeerApi
from zhumq.replication.inter_broker.handshake import Identity, greet

logger = logging.getLogger(__name__)

UNKNOWN_BROKER_EPOCH = -1


class Peers:
    """Channels to the other brokers, opened on first use."""

    def __init__(
        self,
        identity: Identity,
        address_of: Callable[[int], PeerAddress | None],
        *,
        limits: ChannelLimits | None = None,
    ) -> None:
        self._identity = identity
        self._address_of = address_of
        self._limits = limits or ChannelLimits()
        self._channels: dict[int, Channel] = {}
        # Of this broker's registration; sent in the handshake.
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    @property
    def broker_id(self) -> int:
        return self._identity.broker_id

    def new_channel(
        self,
        broker_id: int,
        purpose: str,
        on_lost: Callable[[], None] = lambda: None,
        *,
        backoff_max_ms: int | None = None,
    ) -> Channel:
        """A connection that only the caller uses, so a slow request delays no other caller."""
        limits = self._limits
        if backoff_max_ms is not None:
            limits = replace(limits, backoff_max_ms=backoff_max_ms)

        async def introduce(exchange: Exchange) -> None:
            await greet(
                exchange, self._identity, broker_epoch=self.broker_epoch, to_broker_id=broker_id
            )

        return Channel(
            f"broker {broker_id} ({purpose})",
            lambda: self._address_of(broker_id),
            introduce,
            limits=limits,
            on_lost=on_lost,
        )

    async def request(
        self,
        broker_id: int,
        api: PeerApi[Asked, Answered],
        message: Asked,
        *,
        timeout_ms: int | None = None,
    ) -> Answered:
        """Ask another broker. Raises PeerUnavailable, or PeerRefused with its reason."""
        return await self._channel(broker_id).request(api, message, timeout_ms=timeout_ms)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def _channel(self, broker_id: int) -> Channel:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = self.new_channel(broker_id, "requests")
        return channel


class TaskKeeper:
    """Holds tasks until they are done, and logs those that fail."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        """Cancel the remaining tasks and wait for their end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, BrokerError):
            logger.error("%s failed", task.get_name(), exc_info=failure)

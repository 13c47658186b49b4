"""Throttles the deliveries of a stream whose consumer is above its quota."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from zhumq.model.ids import Principal


class DeliveryQuotas(Protocol):
    """What consumers may get in bytes a second, and what they have got."""

    def record_delivery(self, principal: Principal, client_id: str, size: int) -> int:
        """Counts bytes that are sent to a consumer. Returns for how long it is throttled."""

    def delivery_bytes_max(self, principal: Principal, client_id: str) -> float:
        """More than this at once is above the quota even if nothing else is sent."""


class PrepareQuotas(Protocol):
    """What producers of half messages may send in bytes a second."""

    def record_prepared(self, principal: Principal, client_id: str, size: int) -> int:
        """Counts bytes that a producer sends. Returns for how long it is throttled."""


class Throttle:
    """The pause of one stream behind what it has delivered above the quota. `wake` is called at its end."""

    def __init__(
        self,
        quotas: DeliveryQuotas,
        principal: Principal,
        client_id: str,
        wake: Callable[[], None],
    ) -> None:
        self._quotas = quotas
        self._principal = principal
        self._client_id = client_id
        self._wake = wake
        self._pause: asyncio.TimerHandle | None = None

    @property
    def is_pausing(self) -> bool:
        return self._pause is not None

    @property
    def bytes_max(self) -> float:
        """The most to acquire at once."""
        return self._quotas.delivery_bytes_max(self._principal, self._client_id)

    def record(self, size: int) -> None:
        """Count a delivery. What is above the quota is sent, and the pause is behind it: it is acquired already."""
        pause_ms = self._quotas.record_delivery(self._principal, self._client_id, size)
        if pause_ms:
            self.close()
            self._pause = asyncio.get_running_loop().call_later(pause_ms / 1000, self.end)

    def end(self) -> None:
        """The pause is over, or other quotas apply from now on."""
        self.close()
        self._wake()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

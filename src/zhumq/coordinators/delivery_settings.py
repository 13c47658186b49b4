"""What an operator can set about delivery, and what is counted of it."""

from dataclasses import dataclass, field
from typing import Final

from zhumq.coordinators.delivery_window import WindowDelivery
from zhumq.delivery.in_flight import WindowLimits
from zhumq.delivery.redelivery import RedeliveryPolicy
from zhumq.delivery.subscription import SubscriptionMode

# In order there are few runs however many messages are in flight.
IN_ORDER_FACTOR: Final = 4
# Subscriptions that are counted each for itself; those that come later are counted together.
NAMES_MAX: Final = 10_000
OTHERS: Final = ("others", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """What an operator can set about delivery."""

    max_deliveries: int = 16  # delivery.max.deliveries
    lock_ms: int = 30_000  # delivery.lock.ms
    in_flight_max: int = 50_000  # delivery.in.flight.max, of one group on one partition
    backoff_ms: int = 1_000  # delivery.backoff.ms
    backoff_ms_max: int = 10_000  # delivery.backoff.max.ms
    windows_max: int = 100_000  # open at once on this broker

    def limits(self, mode: SubscriptionMode, max_deliveries: int | None) -> WindowLimits:
        """Of a window that the push door opens."""
        in_flight_max = self.in_flight_max * (IN_ORDER_FACTOR if mode.is_ordered else 1)
        return WindowLimits(
            in_flight_max=in_flight_max,
            lock_ms=self.lock_ms,
            redelivery=RedeliveryPolicy(
                max_deliveries=max_deliveries or self.max_deliveries,
                backoff_ms=self.backoff_ms,
                backoff_ms_max=self.backoff_ms_max,
            ),
            is_ordered=mode.is_ordered,
        )


@dataclass(slots=True)
class DeliveryCounters:
    """Sums over windows that are closed by now."""

    acquired: dict[tuple[str, str], int] = field(default_factory=dict)
    acknowledged: dict[tuple[str, str], int] = field(default_factory=dict)
    nacked: dict[tuple[str, str], int] = field(default_factory=dict)
    rejected: dict[tuple[str, str], int] = field(default_factory=dict)
    redeliveries: dict[tuple[str, str], int] = field(default_factory=dict)
    letters: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, window: WindowDelivery) -> None:
        name = (window.group, window.topic)
        if name not in self.acquired and len(self.acquired) >= NAMES_MAX:
            name = OTHERS
        for sums, value in (
            (self.acquired, window.acquired_total),
            (self.acknowledged, window.acknowledged_total),
            (self.nacked, window.nacked_total),
            (self.rejected, window.rejected_total),
            (self.redeliveries, window.redeliveries),
            (self.letters, window.letters_total),
        ):
            sums[name] = sums.get(name, 0) + value

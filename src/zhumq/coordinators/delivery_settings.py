"""Settings and counters of delivery."""

from dataclasses import dataclass, field
from typing import Final

from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.model.isolation import Isolation
from zhumq.share.redelivery import RedeliveryPolicy
from zhumq.share.retry_schedule import with_schedule
from zhumq.share.share_partition import SharePartitionLimits
from zhumq.share.subscription import SubscriptionMode

# An ordered share partition has few runs however many messages are in flight.
IN_ORDER_FACTOR: Final = 4
# Subscriptions with counters of their own; further ones are counted together.
NAMES_MAX: Final = 10_000
OTHERS: Final = ("others", "")
RETRY_SETTING: Final = "zhumq.retry.schedule"  # of a group


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """Delivery settings of a broker."""

    max_deliveries: int = 16  # delivery.max.deliveries
    lock_ms: int = 30_000  # delivery.lock.ms
    in_flight_max: int = 50_000  # delivery.in.flight.max, of one group on one partition
    backoff_ms: int = 1_000  # delivery.backoff.ms
    backoff_ms_max: int = 10_000  # delivery.backoff.max.ms
    share_partitions_max: int = 100_000  # open at once on this broker

    def limits(
        self,
        mode: SubscriptionMode,
        max_deliveries: int | None,
        isolation: Isolation,
        retry_schedule: str = "",
    ) -> SharePartitionLimits:
        """Limits of a share partition that a push consumer opens."""
        in_flight_max = self.in_flight_max * (IN_ORDER_FACTOR if mode.is_ordered else 1)
        return SharePartitionLimits(
            in_flight_max=in_flight_max,
            lock_ms=self.lock_ms,
            redelivery=with_schedule(
                RedeliveryPolicy(
                    max_deliveries=max_deliveries or self.max_deliveries,
                    backoff_ms=self.backoff_ms,
                    backoff_ms_max=self.backoff_ms_max,
                ),
                retry_schedule,
            ),
            is_ordered=mode.is_ordered,
            isolation=isolation,
        )


@dataclass(slots=True)
class DeliveryCounters:
    """Totals of closed share partitions."""

    acquired: dict[tuple[str, str], int] = field(default_factory=dict)
    acknowledged: dict[tuple[str, str], int] = field(default_factory=dict)
    nacked: dict[tuple[str, str], int] = field(default_factory=dict)
    rejected: dict[tuple[str, str], int] = field(default_factory=dict)
    redeliveries: dict[tuple[str, str], int] = field(default_factory=dict)
    dead_letters: dict[tuple[str, str], int] = field(default_factory=dict)
    filtered: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, share_partition: SharePartitionDelivery) -> None:
        name = (share_partition.group, share_partition.topic)
        if name not in self.acquired and len(self.acquired) >= NAMES_MAX:
            name = OTHERS
        for sums, value in (
            (self.acquired, share_partition.acquired_total),
            (self.acknowledged, share_partition.acknowledged_total),
            (self.nacked, share_partition.nacked_total),
            (self.rejected, share_partition.rejected_total),
            (self.redeliveries, share_partition.redeliveries),
            (self.dead_letters, share_partition.dead_letters_total),
            (self.filtered, share_partition.filtered_total),
        ):
            sums[name] = sums.get(name, 0) + value

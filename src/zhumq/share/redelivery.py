"""The redelivery policy: delivery limit and backoff. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

DELAY_DOUBLINGS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """How often, and after which delay, an unacknowledged message is delivered again."""

    max_deliveries: int = 16  # max.deliveries
    # After the first failure; doubled for each one after it. 0: at once, as in Kafka's share groups.
    backoff_ms: int = 0
    backoff_ms_max: int = 60_000
    # In place of the backoff, one for each failure; the last one is repeated.
    delays_ms: tuple[int, ...] = ()
    # After its last delivery a message becomes a dead letter; without dead letters it is archived.
    dead_letters: bool = True

    def is_exhausted(self, delivery_count: int) -> bool:
        return delivery_count >= self.max_deliveries

    def delay_ms(self, delivery_count: int) -> int:
        """Backoff of a message that was delivered this often."""
        if self.delays_ms:
            return self.delays_ms[min(max(delivery_count, 1), len(self.delays_ms)) - 1]
        doublings = min(max(delivery_count - 1, 0), DELAY_DOUBLINGS_MAX)
        return min(self.backoff_ms << doublings, self.backoff_ms_max)


class DeadLetter(NamedTuple):
    """Offsets that become dead letters, and why."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: str


def exhausted_reason(delivery_count: int, last_reason: str) -> str:
    """Reason of a dead letter that reached the delivery limit."""
    verdict = f"delivered {delivery_count} times without success"
    return f"{verdict}: {last_reason}" if last_reason else verdict

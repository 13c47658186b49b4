"""Models many brokers that publish their elected leaders at once, each with its own transactions.

A model in virtual time of `ZookeeperStore.transact`: a transaction succeeds only on the newest metadata
image, and a broker whose transaction is refused reads the newer changes and retries.
"""

import heapq
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from zhumq.cluster.zookeeper_store import conflict_pause_seconds

# Times of an ensemble on a fast network; `tests/integration/zookeeper/store_speed.py` measures a real one.
ROUND_TRIP_MS: Final = 1.0
WRITE_MS: Final = 2.0  # a transaction on the disks of a majority
READ_MS: Final = 0.05  # of the ensemble's time


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The cost until all leaders are published."""

    transactions: int
    attempts: int
    last_ms: float


def publish(won_at_ms: Iterable[Sequence[float]], gather_ms: float) -> Published:
    """Each broker publishes the elections that it won; those won while it waits share a transaction."""
    left = [sorted(each) for each in won_at_ms]
    chance = random.Random(1).random
    version = 0
    attempts = 0
    free_at_ms = 0.0
    known_at_ms = [0.0]  # when each version of the metadata image became readable
    # When a transaction arrives at the ensemble, its broker, and how often it was refused.
    arriving = [
        (moments[0] + gather_ms + ROUND_TRIP_MS / 2, broker, 0)
        for broker, moments in enumerate(left)
    ]
    heapq.heapify(arriving)
    while arriving:
        at_ms, broker, conflicts = heapq.heappop(arriving)
        attempts += 1
        # The broker decided before sending, on the version it had by then, or read after a refusal.
        decided_on = _newest(known_at_ms, at_ms - (1 if conflicts else 2) * ROUND_TRIP_MS)
        start_ms = max(at_ms, free_at_ms)
        if decided_on != version:
            # Refused. The broker reads /version and the newer changes, and retries.
            free_at_ms = start_ms + 3 * READ_MS
            pause_ms = conflict_pause_seconds(conflicts + 1, chance()) * 1e3
            again_ms = start_ms + 3 * ROUND_TRIP_MS + pause_ms
            heapq.heappush(arriving, (again_ms, broker, conflicts + 1))
            continue
        free_at_ms = start_ms + WRITE_MS
        version += 1
        known_at_ms.append(free_at_ms)
        decided_at_ms = at_ms - ROUND_TRIP_MS / 2
        left[broker] = [moment for moment in left[broker] if moment > decided_at_ms]
        if left[broker]:
            next_ms = max(free_at_ms + ROUND_TRIP_MS / 2, left[broker][0]) + gather_ms
            heapq.heappush(arriving, (next_ms + ROUND_TRIP_MS / 2, broker, 0))
    return Published(transactions=version, attempts=attempts, last_ms=known_at_ms[-1])


def _newest(known_at_ms: Sequence[float], at_ms: float) -> int:
    version = len(known_at_ms) - 1
    while version > 0 and known_at_ms[version] > at_ms:
        version -= 1
    return version

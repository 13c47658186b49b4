"""Waits until the next leader of a partition has everything, and resigns in its favour."""

import asyncio
from typing import Final

from zhumq.replication.driver import ReplicaDriver

# How long a leader refuses appends while the next leader catches up: checks times interval.
TRANSFER_CHECKS_MAX: Final = 40
TRANSFER_CHECK_SECONDS: Final = 0.005


async def resigned_in_time(driver: ReplicaDriver, replica_id: int) -> bool:
    """Resign once the replica has everything. False if it does not catch up in time."""
    for _ in range(TRANSFER_CHECKS_MAX):
        if driver.resign_for(replica_id):
            return True
        await asyncio.sleep(TRANSFER_CHECK_SECONDS)
    return False

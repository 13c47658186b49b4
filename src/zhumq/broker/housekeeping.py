"""What a broker does on its own: retention, compaction, checkpoints. Each on its interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Something to do again and again, this long after it was last done."""

    name: str
    interval_ms: int
    work: Callable[[], Awaitable[None]]


async def do_chores(chores: list[Chore]) -> None:
    """Until cancelled. A chore that fails is logged and tried again at its next turn."""
    async with asyncio.TaskGroup() as group:
        for chore in chores:
            group.create_task(_repeat(chore), name=chore.name)


async def _repeat(chore: Chore) -> None:
    while True:
        await asyncio.sleep(chore.interval_ms / 1000)
        try:
            await chore.work()
        except Exception:
            logger.exception("%s failed; next try in %d ms", chore.name, chore.interval_ms)

"""Periodic work of a broker: retention, compaction, checkpoints, scrubbing, each at its interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from zhumq.host.clock import Clock
from zhumq.host.memory import SpareMemory
from zhumq.model.settings import Settings
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.disk_room import LOOK_MS, DiskRoom
from zhumq.storage.flusher import Flusher
from zhumq.storage.log import Log
from zhumq.storage.log_manager import LogManager
from zhumq.storage.retention_pass import Retention
from zhumq.storage.scrub import TURN_MS, Scrubber

logger = logging.getLogger(__name__)

SPARE_MEMORY_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Work that is repeated, each time `interval_ms` after it last ended."""

    name: str
    interval_ms: int
    work: Callable[[], Awaitable[None]]


async def do_chores(chores: list[Chore]) -> None:
    """Runs until cancelled. A chore that fails is logged, and runs again after its interval."""
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


def broker_chores(
    settings: Settings,
    logs: LogManager,
    flusher: Flusher,
    replicas: ReplicaManager,
    clock: Clock,
    disk_room: DiskRoom,
    scrubber: Scrubber,
    retention: Retention,
) -> list[Chore]:
    """The periodic work on the logs of a broker."""

    async def checkpoint() -> None:
        for log in logs.logs_to_checkpoint():
            flusher.request(log)
        if moved := logs.begin_checkpoint_if_moved(replicas.high_watermarks()):
            await asyncio.to_thread(moved.run)

    async def look_for_room() -> None:
        await asyncio.to_thread(disk_room.look)
        replicas.set_write_refusal(disk_room.refusal)
        if not disk_room.is_full:
            replicas.retry_offline()

    async def scrub() -> None:
        if scrubber.begin():
            await asyncio.to_thread(scrubber.read)
            scrubber.finish()

    async def delete_old() -> None:
        usage = await asyncio.to_thread(logs.disk.usage, logs.data_dir)
        if retention.is_pressed(usage) and (waiting := logs.take_trash(at_once=True)):
            # What is deleted already may be enough.
            await asyncio.to_thread(logs.empty_trash, waiting)
            usage = await asyncio.to_thread(logs.disk.usage, logs.data_dir)
        retention.run(usage)
        await asyncio.to_thread(logs.empty_trash, logs.take_trash())

    async def compaction() -> None:
        # One log at a time: the heavy part runs in a thread, and disks are shared.
        failed: list[Log] = []  # skipped until the next run, so that others get compacted
        while work := logs.begin_compaction(clock.now_ms(), replicas.facts_of, failed):
            await asyncio.to_thread(work.run)
            if (log := logs.finish_compaction(work)) is not None:
                failed.append(log)

    spare_memory = SpareMemory()

    async def give_back_memory() -> None:
        await asyncio.to_thread(spare_memory.look)

    chores = [
        Chore(name="spare memory", interval_ms=SPARE_MEMORY_MS, work=give_back_memory),
        Chore(
            name="checkpoint",
            interval_ms=settings.integer("log.flush.offset.checkpoint.interval.ms"),
            work=checkpoint,
        ),
        Chore(name="room on the disk", interval_ms=LOOK_MS, work=look_for_room),
        Chore(
            name="retention",
            interval_ms=settings.integer("log.retention.check.interval.ms"),
            work=delete_old,
        ),
    ]
    if settings.boolean("log.cleaner.enable"):
        interval_ms = settings.integer("log.cleaner.backoff.ms")
        chores.append(Chore(name="compaction", interval_ms=interval_ms, work=compaction))
    if scrubber.bytes_per_turn:
        chores.append(Chore(name="scrub", interval_ms=TURN_MS, work=scrub))
    return chores

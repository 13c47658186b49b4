"""Measures disk writes after a broker's death: persisted votes, and the first record of each new leader."""

import asyncio
import tempfile
import time
import uuid
from pathlib import Path

from zhumq.consensus.contract import QuorumState
from zhumq.host.clock import SystemClock
from zhumq.host.disk import SystemDisk
from zhumq.model.ids import TopicPartition
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.quorum_journal import QuorumJournal
from zhumq.storage.segmented_log import SegmentedLog

PARTITIONS = 1_000
SMALL_PARTITIONS = 5
Figures = dict[str, float]


def disk_figures(*, small: bool) -> Figures:
    count = SMALL_PARTITIONS if small else PARTITIONS
    with tempfile.TemporaryDirectory(prefix="zhumq-scale-") as folder:
        persisted = _persist_votes(Path(folder), count)
        flushed = asyncio.run(_flush_each(Path(folder) / "data", count))
    return {
        "partitions": count,
        "their promises in one write, ms": persisted * 1e3,
        "a record in each log, all flushed, ms": flushed * 1e3,
    }


def _persist_votes(folder: Path, count: int) -> float:
    journal = QuorumJournal(SystemDisk(), str(folder / "votes"))
    topic_id = uuid.uuid4()
    state = QuorumState(epoch=2, voted_for=1)
    began = time.perf_counter()
    journal.write([((topic_id, number), state) for number in range(count)])
    seconds = time.perf_counter() - began
    journal.close()
    return seconds


async def _flush_each(folder: Path, count: int) -> float:
    """The time to append a record to each of many logs and flush all."""
    loop = asyncio.get_running_loop()
    logs = LogManager.open(str(folder), disk=SystemDisk(), clock=SystemClock(), broker_id=1)
    flusher = Flusher(loop.call_soon_threadsafe)
    opened = [
        logs.create_log(TopicPartition("orders", number), uuid.uuid4(), LogConfig())
        for number in range(count)
    ]
    for log in opened:
        _append(log)
    await asyncio.gather(*(_flushed(flusher, log) for log in opened))
    for log in opened:
        _append(log)
    began = time.perf_counter()
    await asyncio.gather(*(_flushed(flusher, log) for log in opened))
    seconds = time.perf_counter() - began
    flusher.close()
    logs.close(clean=False)
    return seconds


def _append(log: SegmentedLog) -> None:
    batch = build_batch([Record(timestamp=0, key=None, value=b"leader")])
    log.append(batch, leader_epoch=0, now_ms=0)


def _flushed(flusher: Flusher, log: SegmentedLog) -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    flusher.request(log, lambda _failure: done.set_result(None))
    return done

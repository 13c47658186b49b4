"""Group commit: waiting requests share the next sync, and callbacks run on the event loop."""

import asyncio
import threading

import pytest
from storage_support import append, open_log

from zhumq.model.errors import BrokerError, StorageFailed
from zhumq.storage.flusher import FLUSH_THREADS, Flusher
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

DEADLINE_S = 10


async def flushed(flusher: Flusher, log: SegmentedLog) -> BrokerError | None:
    future: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    flusher.request(log, future.set_result)
    return await asyncio.wait_for(future, DEADLINE_S)


def run(scenario: "asyncio._CoroutineLike[None]") -> None:
    asyncio.run(scenario)


def test_a_callback_comes_once_the_log_is_on_disk() -> None:
    async def scenario() -> None:
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        log = open_log(MemoryDisk())
        append(log, b"a")
        assert await flushed(flusher, log) is None
        assert log.flushed_offset == 1
        assert (
            await flushed(flusher, log) is None
        )  # the callback runs even if there is nothing to flush
        flusher.close()

    run(scenario())


def test_requests_during_a_sync_share_the_next_one() -> None:
    gate = threading.Event()
    disk = MemoryDisk()

    def slow(path: str) -> bool:
        gate.wait(DEADLINE_S)
        return False

    async def scenario() -> None:
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        log = open_log(disk)
        disk.sync_fails = slow
        append(log, b"first")
        first = asyncio.ensure_future(flushed(flusher, log))
        await asyncio.sleep(0)
        waiting = []
        for _ in range(20):
            append(log, b"more")
            waiting.append(asyncio.ensure_future(flushed(flusher, log)))
        await asyncio.sleep(0)
        gate.set()
        assert await first is None
        assert await asyncio.gather(*waiting) == [None] * 20
        assert log.flushed_offset == 21
        flusher.close()

    run(scenario())
    assert len([path for path in disk.syncs if path.endswith(".log")]) == 2


def test_a_failed_sync_reaches_all_waiting_callbacks() -> None:
    async def scenario() -> None:
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        disk = MemoryDisk()
        log = open_log(disk)
        append(log, b"a")
        disk.sync_fails = lambda path: path.endswith(".log")
        failures = await asyncio.gather(*(flushed(flusher, log) for _ in range(3)))
        assert all(isinstance(failure, StorageFailed) for failure in failures)
        with pytest.raises(StorageFailed):
            append(log, b"b")
        assert isinstance(await flushed(flusher, log), StorageFailed)
        flusher.close()

    run(scenario())


def test_a_log_closed_during_a_sync_answers_with_an_error() -> None:
    gate = threading.Event()
    disk = MemoryDisk()

    def slow(_: str) -> bool:
        gate.wait(DEADLINE_S)
        return False

    async def scenario() -> None:
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        log = open_log(disk)
        append(log, b"a")
        disk.sync_fails = slow
        waiting = asyncio.ensure_future(flushed(flusher, log))
        await asyncio.sleep(0)
        log.close(clean=False)
        gate.set()
        assert isinstance(await waiting, StorageFailed)
        assert isinstance(await flushed(flusher, log), StorageFailed)
        flusher.close()

    run(scenario())


def test_one_failed_log_does_not_touch_the_others() -> None:
    async def scenario() -> None:
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        good, bad = MemoryDisk(), MemoryDisk()
        logs = [open_log(good), open_log(bad)]
        for log in logs:
            append(log, b"a")
        bad.sync_fails = lambda _: True
        results = await asyncio.gather(*(flushed(flusher, log) for log in logs))
        assert results[0] is None
        assert isinstance(results[1], StorageFailed)
        flusher.close()

    run(scenario())


def test_a_slow_log_does_not_hold_up_another() -> None:
    gate = threading.Event()

    def slow(_: str) -> bool:
        gate.wait(DEADLINE_S)
        return False

    async def scenario() -> None:
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        stuck, quick = MemoryDisk(), MemoryDisk()
        logs = [open_log(stuck), open_log(quick)]
        for log in logs:
            append(log, b"a")
        stuck.sync_fails = slow
        waiting = asyncio.ensure_future(flushed(flusher, logs[0]))
        await asyncio.sleep(0)
        assert await flushed(flusher, logs[1]) is None
        assert not waiting.done()
        gate.set()
        assert await waiting is None
        flusher.close()

    run(scenario())


def test_other_work_runs_beside_the_syncs_and_may_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        done = threading.Event()
        for _ in range(2 * FLUSH_THREADS):  # none of the threads may die of it
            flusher.submit(lambda: 1 / 0)
        flusher.submit(done.set)
        assert await asyncio.to_thread(done.wait, DEADLINE_S)
        flusher.close()

    run(scenario())
    assert "disk work failed in a flush thread" in caplog.text

"""Group commit: waiting requests share the next sync, and callbacks run on the event loop."""

import asyncio
import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from storage_support import append, open_log

from zhumq.host.disk import SystemDisk
from zhumq.host.kernel_aio import KernelAio, system_calls
from zhumq.host.kernel_syncs import KernelSyncs
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


# Syncs by the kernel

CALLS = system_calls()
with_kernel_syncs = pytest.mark.skipif(CALLS is None, reason="this system has no asynchronous I/O")


class FailingAio(KernelAio):
    """A kernel that takes syncs only if `takes`, and fails them with an errno."""

    def __init__(self, *, takes: bool = True, code: int = 0) -> None:
        assert CALLS is not None
        super().__init__(CALLS)
        self.takes = takes
        self.code = code
        self.submitted = 0

    def submit(self, first_number: int, descriptors: Sequence[int]) -> int:
        if not self.takes:
            raise OSError(errno.EINVAL, "not taken")
        self.submitted += len(descriptors)
        return super().submit(first_number, descriptors)

    def ended(self) -> list[tuple[int, int]]:
        return [(number, self.code or code) for number, code in super().ended()]


def kernel_flusher(aio: KernelAio) -> Flusher:
    return Flusher(asyncio.get_running_loop().call_soon_threadsafe, kernel_syncs=KernelSyncs(aio))


def two_logs(folder: Path) -> list[SegmentedLog]:
    return [open_log(SystemDisk(), folder=str(folder / f"t-{number}")) for number in range(2)]


async def all_flushed(flusher: Flusher, logs: list[SegmentedLog]) -> list[BrokerError | None]:
    for log in logs:
        append(log, b"a")
    return list(await asyncio.gather(*(flushed(flusher, log) for log in logs)))


@with_kernel_syncs
def test_the_kernel_syncs_logs_beside_another_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        aio = FailingAio()
        flusher, logs = kernel_flusher(aio), two_logs(tmp_path)
        assert await all_flushed(flusher, logs) == [None, None]
        assert aio.submitted == 0  # their names are new as well
        for number in range(1, 4):
            assert await all_flushed(flusher, logs[:1]) == [None]  # in a thread: it is alone
            assert await all_flushed(flusher, logs) == [None, None]
            assert [log.flushed_offset for log in logs] == [2 * number + 1, number + 1]
            assert aio.submitted == number
        flusher.close()
        for log in logs:
            log.close()

    run(scenario())


@with_kernel_syncs
def test_a_thread_syncs_what_the_kernel_does_not_take(tmp_path: Path) -> None:
    async def scenario() -> None:
        flusher, logs = kernel_flusher(FailingAio(takes=False)), two_logs(tmp_path)
        for number in range(1, 4):
            assert await all_flushed(flusher, logs) == [None, None]
            assert [log.flushed_offset for log in logs] == [number, number]
        flusher.close()
        for log in logs:
            log.close()

    run(scenario())


@with_kernel_syncs
def test_a_sync_that_fails_in_the_kernel_takes_the_log_offline(tmp_path: Path) -> None:
    async def scenario() -> None:
        flusher, logs = kernel_flusher(FailingAio(code=errno.EIO)), two_logs(tmp_path)
        assert await all_flushed(flusher, logs) == [None, None]
        by_thread, by_kernel = await all_flushed(flusher, logs)
        assert by_thread is None
        assert isinstance(by_kernel, StorageFailed)
        assert "Input/output error" in str(by_kernel)
        assert [log.flushed_offset for log in logs] == [2, 1]
        with pytest.raises(StorageFailed):
            append(logs[1], b"c")
        flusher.close()
        logs[0].close()

    run(scenario())

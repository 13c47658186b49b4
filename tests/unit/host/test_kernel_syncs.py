"""Syncs by the kernel: many at once, more than fit, failed and refused ones, and where there are none."""

import asyncio
import errno
import os
import platform
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from zhumq.host import kernel_syncs
from zhumq.host.disk import SystemFile
from zhumq.host.kernel_aio import IN_FLIGHT_MAX, KernelAio, system_calls
from zhumq.host.kernel_syncs import Aio, KernelSyncs, SyncedFile

SECONDS_MAX = 30
CALLS = system_calls()
MakeFiles = Callable[[int], list[SystemFile]]

pytestmark = pytest.mark.skipif(CALLS is None, reason="this system has no asynchronous I/O")


def kernel() -> KernelAio:
    assert CALLS is not None
    return KernelAio(CALLS)


def run(
    scenario: Callable[[KernelSyncs], Awaitable[None]], make_aio: Callable[[], Aio] = kernel
) -> None:
    async def main() -> None:
        syncs = KernelSyncs(make_aio())
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario(syncs)
        finally:
            syncs.close()

    asyncio.run(main())


def synced(syncs: KernelSyncs, *files: SyncedFile) -> "asyncio.Future[int | None]":
    future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    syncs.sync(files, future.set_result)
    return future


@pytest.fixture
def files(tmp_path: Path) -> Iterator[MakeFiles]:
    made: list[SystemFile] = []

    def make(count: int) -> list[SystemFile]:
        for _ in range(count):
            file = SystemFile(str(tmp_path / str(len(made))), create=True)
            file.append([b"x" * 100])
            made.append(file)
        return made[-count:]

    yield make
    for file in made:
        file.close()


def test_one_callback_for_all_files_of_a_sync(files: MakeFiles) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        first, second = synced(syncs, *files(3)), synced(syncs, *files(1))
        assert (await first, await second) == (0, 0)
        assert await synced(syncs, *files(1)) == 0

    run(scenario)


def test_a_callback_that_fails_stops_no_other_sync(
    files: MakeFiles, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int | None] = []
    all_called = asyncio.Event()

    def broken(code: int | None) -> None:
        calls.append(code)
        if len(calls) == 3:
            all_called.set()
        raise RuntimeError("a bug")

    async def scenario(syncs: KernelSyncs) -> None:
        for file in files(3):
            syncs.sync([file], broken)
        assert await synced(syncs, *files(2)) == 0
        await all_called.wait()  # The kernel ends syncs in any order.

    run(scenario)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3


def test_more_syncs_than_fit_at_once(files: MakeFiles) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        each = [synced(syncs, file) for file in files(3 * IN_FLIGHT_MAX + 1)]
        assert set(await asyncio.gather(*each)) == {0}

    run(scenario)


def test_what_the_kernel_does_not_take_is_refused_alone(files: MakeFiles) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        good, closed, beside = files(3)
        reader, writer = os.pipe()
        with open(reader, "rb") as pipe, open(writer, "wb"):
            ends = [
                synced(syncs, good),
                synced(syncs, closed),
                synced(syncs, beside, pipe),  # a pipe cannot be synced
                synced(syncs, good),
            ]
            closed.close()  # before the turn of the event loop ends
            assert await asyncio.gather(*ends) == [0, None, None, 0]

    run(scenario)


class FailingAio(KernelAio):
    """A kernel that has no room for the first submissions, and cannot write the files with these numbers."""

    def __init__(self, *, refusals: int = 0, bad: Sequence[int] = ()) -> None:
        assert CALLS is not None
        super().__init__(CALLS)
        self.refusals = refusals
        self.bad = bad

    def submit(self, first_number: int, descriptors: Sequence[int]) -> int:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EAGAIN, "no room")
        return super().submit(first_number, descriptors)

    def ended(self) -> list[tuple[int, int]]:
        return [
            (number, errno.EIO if number in self.bad else code) for number, code in super().ended()
        ]


def test_without_room_in_the_kernel_it_tries_again(files: MakeFiles) -> None:
    aio: list[FailingAio] = []

    def make_aio() -> FailingAio:
        aio.append(FailingAio(refusals=3))
        return aio[0]

    async def scenario(syncs: KernelSyncs) -> None:
        assert await asyncio.gather(*(synced(syncs, file) for file in files(5))) == [0] * 5
        assert aio[0].refusals == 0

    run(scenario, make_aio)


def test_a_failed_sync_counts_though_others_of_its_files_were_refused(files: MakeFiles) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        bad, closed, good = files(3)
        ends = [synced(syncs, bad, closed), synced(syncs, good)]
        closed.close()
        assert await asyncio.gather(*ends) == [errno.EIO, 0]

    run(scenario, lambda: FailingAio(bad=[0]))


def test_closing_waits_for_the_kernel_and_drops_the_callbacks(files: MakeFiles) -> None:
    ends: list[asyncio.Future[int | None]] = []

    async def scenario(syncs: KernelSyncs) -> None:
        ends.extend(synced(syncs, file) for file in files(2 * IN_FLIGHT_MAX))
        await asyncio.sleep(0)  # the first of them are submitted

    run(scenario)
    assert not any(each.done() for each in ends)


def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (platform, "machine", lambda: "vax"),
        (sys, "platform", "darwin"),
        (sys, "maxsize", 2**31 - 1),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert system_calls() is None
            assert KernelSyncs.open() is None


def test_a_system_that_forbids_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(_calls: object) -> KernelAio:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(kernel_syncs, "KernelAio", forbidden)
    with caplog.at_level("INFO"):
        assert KernelSyncs.open() is None
    assert "threads sync the files" in caplog.text

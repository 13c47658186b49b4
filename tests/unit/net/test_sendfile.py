"""File regions reach the peer byte for byte, between other answers, or the connection ends."""

import asyncio
import hashlib
import os
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from net_support import Region, ScriptedService, connected, framed, listening, until

from zhumq.net.answers import SENDFILE_BYTES_MIN
from zhumq.net.sendfile import RegionCutOff, read_region
from zhumq.net.service import Answer

Run = Callable[[Coroutine[Any, Any, None]], None]

FILE_BYTES = 24 * 1024 * 1024  # far more than two socket buffers hold


@pytest.fixture(scope="module")
def content() -> bytes:
    return b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(FILE_BYTES // 32))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> Path:
    path = tmp_path_factory.mktemp("regions") / "file"
    path.write_bytes(content)
    return path


def descriptors_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def region_answer(region: Region, prefix: bytes = b"", suffix: bytes = b"") -> list[Any]:
    size = len(prefix) + len(region) + len(suffix)
    return [struct.pack(">i", size) + prefix, region, suffix]


def test_a_large_region_arrives_byte_for_byte_between_small_answers(
    run: Run, path: Path, content: bytes
) -> None:
    async def scenario() -> None:
        with path.open("rb") as file:

            def script(frame: bytes) -> Answer:
                if frame.startswith(b"small"):
                    return [framed(frame)]
                position, length = struct.unpack(">ii", frame)
                region = Region(file=file, position=position, length=length)
                return region_answer(region, b"head", b"tail")

            async with (
                listening(ScriptedService(script)) as listener,
                connected(listener) as client,
            ):
                regions = [(0, FILE_BYTES), (7, 100), (1_000, SENDFILE_BYTES_MIN), (11, 5_000_011)]
                for position, length in regions:
                    await client.send(framed(struct.pack(">ii", position, length)))
                    await client.send(framed(b"small %d" % length))
                for position, length in regions:
                    expected = b"head" + content[position : position + length] + b"tail"
                    assert await client.read_frame() == expected
                    assert await client.read_frame() == b"small %d" % length
                assert listener.counters.bytes_sent_by_sendfile == sum(
                    length for _, length in regions if length >= SENDFILE_BYTES_MIN
                )
                assert listener.counters.answer_bytes_queued == 0

    run(scenario())


def test_many_regions_in_one_answer_arrive_in_order(run: Run, path: Path, content: bytes) -> None:
    async def scenario() -> None:
        with path.open("rb") as file:
            lengths = [10, 40_000, 40_000, 31_000, 31_000, 2_000_000, 1, 500_000, 10] * 3
            parts: list[Any] = [struct.pack(">i", sum(lengths) + 3 * len(lengths))]
            expected = b""
            for number, length in enumerate(lengths):
                parts += [Region(file=file, position=number * 3, length=length), b"---"]
                expected += content[number * 3 : number * 3 + length] + b"---"
            service = ScriptedService(lambda frame: list(parts))
            async with listening(service) as listener, connected(listener) as client:
                assert await client.ask(b"all") == expected

    run(scenario())


def test_a_slow_reader_of_a_large_region_holds_no_memory_and_stops_no_one_else(
    run: Run, path: Path, content: bytes
) -> None:
    async def scenario() -> None:
        with path.open("rb") as file:
            whole = Region(file=file, position=0, length=FILE_BYTES)

            def script(frame: bytes) -> Answer:
                return region_answer(whole) if frame == b"file" else [framed(frame)]

            service = ScriptedService(script)
            async with (
                listening(service) as listener,
                connected(listener, receive_bytes=65_536) as slow,
                connected(listener) as healthy,
            ):
                await slow.send(framed(b"file") * 50)
                await until(lambda: listener.counters.reading_paused == 1)
                assert await healthy.ask(b"alive") == b"alive"
                # The second request is not served while the first answer is being sent.
                assert service.frames.count(b"file") == 1
                assert await slow.read_frame() == content
                await until(lambda: service.frames.count(b"file") == 2)

    run(scenario())


@pytest.mark.parametrize("reset", [False, True])
def test_a_peer_that_leaves_in_the_middle_of_a_region_leaves_nothing_behind(
    run: Run, path: Path, reset: bool
) -> None:
    async def scenario() -> None:
        with path.open("rb") as file:
            whole = Region(file=file, position=0, length=FILE_BYTES)
            service = ScriptedService(lambda frame: region_answer(whole))
            async with listening(service) as listener:
                open_before = descriptors_open()
                for count in range(1, 4):
                    async with connected(listener, receive_bytes=65_536) as client:
                        await client.send(framed(b"file"))
                        await client.read(100_000)
                        client.close(reset=reset)
                        await until(lambda: len(service.lost) == count)  # noqa: B023 (awaited at once)
                assert listener.counters.answer_bytes_queued == 0
                assert listener.counters.connections_failed == 0
                # A closed transport gives its descriptor back in a later turn of the loop.
                await until(lambda: descriptors_open() <= open_before)

    run(scenario())


@pytest.mark.parametrize("length", [SENDFILE_BYTES_MIN // 2, 4_000_000])
def test_a_file_cut_off_under_a_region_ends_the_connection(
    run: Run, tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        path = tmp_path / "short"
        path.write_bytes(b"x" * (length - 1))
        with path.open("rb") as file:
            region = Region(file=file, position=0, length=length)

            def script(frame: bytes) -> Answer:
                return region_answer(region) if frame == b"file" else [framed(frame)]

            service = ScriptedService(script)
            async with (
                listening(service) as listener,
                connected(listener) as client,
                connected(listener) as healthy,
            ):
                await client.send(framed(b"file"))
                assert await client.is_closed_by_server()
                assert await healthy.ask(b"alive") == b"alive"
                assert listener.counters.connections_failed == 1

    run(scenario())
    assert "could not be read" in caplog.text


def test_a_file_closed_under_a_region_ends_the_connection(run: Run, path: Path) -> None:
    async def scenario() -> None:
        file = path.open("rb")
        promise: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()
        service = ScriptedService(lambda frame: promise)
        async with (
            listening(service) as listener,
            connected(listener, receive_bytes=65_536) as client,
        ):
            await client.send(framed(b"file"))
            await until(lambda: len(service.frames) == 1)
            promise.set_result(region_answer(Region(file=file, position=0, length=FILE_BYTES)))
            await until(lambda: listener.counters.bytes_sent_by_sendfile > 0)
            file.close()
            assert await client.is_closed_by_server()
            assert listener.counters.connections_failed == 1

    run(scenario())


def test_closing_the_listener_waits_for_a_region_under_way(
    run: Run, path: Path, content: bytes
) -> None:
    async def scenario() -> None:
        with path.open("rb") as file:
            whole = Region(file=file, position=0, length=FILE_BYTES)
            service = ScriptedService(lambda frame: region_answer(whole))
            async with (
                listening(service) as listener,
                connected(listener, receive_bytes=65_536) as client,
            ):
                await client.send(framed(b"file"))
                await until(lambda: listener.counters.answer_bytes_queued > 0)
                closing = asyncio.create_task(listener.close(drain_seconds=20.0))
                assert await client.read_frame() == content
                assert await client.is_closed_by_server()
                await closing

    run(scenario())


def test_a_region_beyond_its_file_cannot_be_read(path: Path, content: bytes) -> None:
    with path.open("rb") as file:
        assert read_region(Region(file=file, position=5, length=9)) == content[5:14]
        with pytest.raises(RegionCutOff):
            read_region(Region(file=file, position=FILE_BYTES - 5, length=6))

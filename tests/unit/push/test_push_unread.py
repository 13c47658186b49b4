"""Unread frames are bounded over all streams; the longest unread streams end when others wait."""

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack

from zhumq.push.frames import Refusal
from zhumq.push.unread import UNREAD_BYTES_MAX, UNREAD_SECONDS_MIN, UnreadFrames


class FakeStream:
    def __init__(self, port: int) -> None:
        self.peer = f"ipv6:%5B::1%5D:{port}"
        self.refusals: list[Refusal] = []

    def end(self, why: Refusal) -> None:
        self.refusals.append(why)


def test_a_stream_that_is_not_read_ends_once_others_wait_for_room() -> None:
    now = 100.0
    cut_off: list[tuple[str, int]] = []

    def cut(peers: Collection[tuple[str, int]]) -> None:
        cut_off.extend(peers)

    async def scenario() -> None:
        nonlocal now
        unread = UnreadFrames(lambda: now, cut)
        old, young = FakeStream(1), FakeStream(2)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(unread.writing(old, UNREAD_BYTES_MAX - 1))
            assert unread.has_room, "a frame is written whole"
            now += UNREAD_SECONDS_MIN
            await stack.enter_async_context(unread.writing(young, 1_000_000))
            assert not unread.has_room
            await unread.wait_for_room()
            assert (len(old.refusals), len(young.refusals)) == (1, 0)
            assert cut_off == [("::1", 1)]
            await unread.wait_for_room()
            assert len(old.refusals) == 1, "its stream is ended once"
        assert unread.bytes == 0

    asyncio.run(scenario())


def test_a_stream_that_waits_for_room_continues_when_a_frame_is_read() -> None:
    async def scenario() -> None:
        unread = UnreadFrames(lambda: 0.0, lambda peers: None)
        reading = asyncio.Event()

        async def write() -> None:
            async with unread.writing(FakeStream(1), UNREAD_BYTES_MAX):
                await reading.wait()

        writing = asyncio.create_task(write())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(unread.wait_for_room())
        await asyncio.sleep(0)
        assert not unread.has_room
        reading.set()
        await asyncio.gather(writing, waiting)
        assert unread.has_room

    asyncio.run(scenario())

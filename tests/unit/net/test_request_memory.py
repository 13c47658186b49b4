"""Request memory is shared fairly: small requests go on, connections that hold it too long are cut off."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from net_support import (
    READ_BYTES,
    Client,
    ScriptedService,
    connected,
    echo,
    framed,
    listening,
    until,
)

from zhumq.net.limits import Limits
from zhumq.net.request_memory import (
    CONTENDED_PARKED_MS_MAX,
    LARGE_FRAME_BYTES,
    SMALL_SHARE_BYTES,
    TINY_FRAME_BYTES,
    RequestMemory,
)
from zhumq.net.service import Answer
from zhumq.net.unread import SMALL_ANSWER_BYTES, UnreadAnswers

Run = Callable[[Coroutine[Any, Any, None]], None]
MIB = 1024 * 1024


class FakeReader:
    """A connection that records the calls of the request memory."""

    def __init__(
        self, address: str = "a", held_bytes: int = 0, *, proven_bytes: int = 1000 * MIB
    ) -> None:
        self.address = address
        self.held_bytes = held_bytes
        self.proven_bytes = proven_bytes
        self.reserved_bytes = 0
        self.is_reading = True
        self.quiet_ms = 0
        self.granted: list[int] = []
        self.reasons: list[str] = []
        self.memory: RequestMemory | None = None

    def memory_granted(self, reserved_bytes: int) -> None:
        self.granted.append(reserved_bytes)
        self.reserved_bytes = reserved_bytes
        self.held_bytes += reserved_bytes

    def cut_off(self, reason: str) -> None:
        self.reasons.append(reason)
        if self.memory is not None:
            self.memory.forget(self, held_bytes=self.held_bytes)


def memory_of(bytes_max: int, *readers: FakeReader) -> RequestMemory:
    memory = RequestMemory(bytes_max, lambda: readers)
    for reader in readers:
        reader.memory = memory
        memory.bytes_used += reader.held_bytes
    return memory


def reserved(memory: RequestMemory, reader: FakeReader, size: int) -> bool:
    """Reserves as a connection does: reserved bytes count as held."""
    if memory.reserve(reader, size, size):
        reader.reserved_bytes = size
        reader.held_bytes += size
        return True
    return False


def test_a_frame_waits_until_all_of_it_fits() -> None:
    first, second, third = FakeReader(), FakeReader(), FakeReader()
    memory = memory_of(MIB, first, second, third)
    assert reserved(memory, first, 600_000)
    assert not reserved(memory, second, 500_000)
    assert not reserved(memory, third, 100_000)  # it fits, and yet it came later
    assert memory.readers_waiting == 2
    memory.forget(first, held_bytes=first.held_bytes)
    assert (second.granted, third.granted) == ([500_000], [100_000])
    assert memory.bytes_used == 600_000


def test_a_tiny_frame_never_waits() -> None:
    holder, waiting, tiny = FakeReader(), FakeReader(), FakeReader()
    memory = memory_of(MIB, holder, waiting, tiny)
    assert reserved(memory, holder, MIB)
    assert not reserved(memory, waiting, TINY_FRAME_BYTES + 1)
    assert reserved(memory, tiny, TINY_FRAME_BYTES)


def test_large_frames_leave_a_quarter_of_the_memory_to_the_others() -> None:
    readers = [FakeReader() for _ in range(3)]
    memory = memory_of(8 * MIB, *readers)
    assert reserved(memory, readers[0], 4 * MIB)
    assert not reserved(memory, readers[1], 3 * MIB)
    assert reserved(memory, readers[2], MIB)


def test_one_large_frame_is_read_however_small_the_memory_is() -> None:
    reader = FakeReader()
    assert reserved(memory_of(MIB, reader), reader, 100 * MIB)


def test_new_clients_leave_half_of_the_memory_to_those_that_have_sent_requests() -> None:
    crowd = [FakeReader(proven_bytes=0) for _ in range(12)]
    known = FakeReader(proven_bytes=500_000)
    memory = memory_of(8 * MIB, *crowd, known)
    admitted = [reserved(memory, each, 1_000_000) for each in crowd]
    # Half of it, and an eighth if they hold no more than that between them.
    assert admitted == [True] * 4 + [False] * 8
    assert reserved(memory, known, 1_000_000)
    memory.frame_completed(known)
    # A frame of more than twice the size is as new as if it were the first.
    assert not reserved(memory, known, 1_000_001)


def test_new_clients_have_an_eighth_of_a_memory_that_others_use() -> None:
    busy = FakeReader(held_bytes=5 * MIB)
    crowd = [FakeReader(proven_bytes=0) for _ in range(2)]
    memory = memory_of(8 * MIB, busy, *crowd)
    assert [reserved(memory, each, 1_000_000) for each in crowd] == [True, False]
    memory.frame_completed(crowd[0])
    assert crowd[1].granted == [1_000_000]


def test_proven_clients_go_before_new_ones_that_wait_longer() -> None:
    holder = FakeReader(held_bytes=MIB)
    crowd = [FakeReader(proven_bytes=0) for _ in range(10)]
    known = FakeReader(proven_bytes=100_000)
    memory = memory_of(MIB, holder, *crowd, known)
    assert not any(reserved(memory, each, 100_000) for each in (*crowd, known))
    memory.release(100_000)
    assert known.granted == [100_000]
    assert not any(each.granted for each in crowd)


def test_new_clients_are_cut_off_when_a_proven_client_waits() -> None:
    crowd = [FakeReader(held_bytes=200_000, proven_bytes=0) for _ in range(6)]
    parked = FakeReader(held_bytes=100_000)
    known = FakeReader()
    memory = memory_of(MIB, *crowd, parked, known)
    memory.relieve_proven()
    assert not any(each.reasons for each in crowd), "no reader waits"
    assert not reserved(memory, known, 400_000)
    memory.relieve_proven()
    assert sum(len(each.reasons) for each in crowd) == 4
    assert known.granted == [400_000]
    assert not parked.reasons


def test_no_reader_is_cut_off_for_a_large_frame_that_waits_for_another_large_one() -> None:
    large, waiting, new = FakeReader(), FakeReader(), FakeReader(held_bytes=MIB, proven_bytes=0)
    memory = memory_of(16 * MIB, large, waiting, new)
    assert reserved(memory, large, 10 * MIB)
    assert not reserved(memory, waiting, 4 * MIB)
    memory.relieve_proven()
    assert not new.reasons
    memory.forget(large, held_bytes=large.held_bytes)
    assert waiting.granted == [4 * MIB]


def test_a_reader_that_waited_between_two_frames_waits_once_for_the_next_one() -> None:
    holder, reader = FakeReader(held_bytes=MIB), FakeReader(held_bytes=MIB, proven_bytes=0)
    memory = memory_of(MIB, holder, reader)
    assert not memory.admits(reader)
    assert not reserved(memory, reader, 100_000)
    assert memory.readers_waiting == 1
    memory.forget(holder, held_bytes=MIB)
    memory.release(MIB)
    assert reader.granted == [100_000]
    assert memory.readers_waiting == 0


def test_a_frame_that_arrives_slowly_is_cut_off_once_others_wait_for_its_memory() -> None:
    slow, fast = FakeReader(), FakeReader()
    memory = memory_of(16 * MIB, slow, fast)
    assert reserved(memory, slow, 6 * MIB)
    assert reserved(memory, fast, 6 * MIB)
    for now_ms in range(0, 60_000, 1_000):
        memory.relieve(now_ms)
    assert not slow.reasons, "no reader waits for the memory it holds"
    waiting = FakeReader()
    assert not reserved(memory, waiting, LARGE_FRAME_BYTES * 2)
    memory.relieve(60_000)
    slow.reserved_bytes -= 100_000
    fast.reserved_bytes -= 300_000
    memory.relieve(61_000)
    assert (len(slow.reasons), len(fast.reasons)) == (1, 0)
    assert waiting.granted == [LARGE_FRAME_BYTES * 2]


def test_requests_that_wait_for_their_answers_are_cut_off_once_others_wait_for_their_memory() -> (
    None
):
    parked = FakeReader(held_bytes=MIB)
    memory = memory_of(MIB, parked)
    waiting = FakeReader()
    assert not reserved(memory, waiting, 100_000)
    parked.quiet_ms = CONTENDED_PARKED_MS_MAX - 1
    memory.relieve(1_000)
    assert not parked.reasons
    parked.quiet_ms = CONTENDED_PARKED_MS_MAX
    memory.relieve(2_000)
    assert len(parked.reasons) == 1
    assert waiting.granted == [100_000]


def test_the_largest_holders_of_the_address_that_holds_most_go_first() -> None:
    lone = FakeReader("lone", 900_000)
    crowd = [FakeReader("crowd", size) for size in (300_000, 400_000, 500_000)]
    small = FakeReader("crowd", SMALL_SHARE_BYTES - 1)
    memory = memory_of(1_500_000, lone, *crowd, small)
    assert memory.is_overdrawn
    memory.relieve_at_once()
    assert [len(each.reasons) for each in (lone, *crowd, small)] == [0, 0, 1, 1, 0]
    assert memory.bytes_used <= memory.bytes_max


def test_a_reader_that_holds_little_reads_on_when_the_memory_is_full() -> None:
    large, small = FakeReader(held_bytes=2 * MIB), FakeReader(held_bytes=SMALL_SHARE_BYTES - 1)
    memory = memory_of(MIB, large, small)
    assert not memory.admits(large)
    assert memory.admits(small)
    memory.release(MIB + SMALL_SHARE_BYTES)
    assert large.granted == [0]


def test_beginnings_of_frames_that_fill_the_memory_do_not_wait_for_each_other_for_ever() -> None:
    readers = [FakeReader(held_bytes=200_000) for _ in range(6)]
    memory = memory_of(MIB, *readers)
    assert [reserved(memory, reader, 800_000) for reader in readers] == [False] * 6
    memory.relieve(1_000)
    assert not any(reader.reasons for reader in readers)
    memory.relieve(2_000)
    assert sum(len(reader.reasons) for reader in readers) == 1
    assert memory.bytes_used <= memory.bytes_max


def test_unread_answers_are_bounded_and_the_longest_unread_go_first() -> None:
    unread = UnreadAnswers(10 * SMALL_ANSWER_BYTES)
    readers = [FakeReader() for _ in range(12)]
    unread.add(readers[0], SMALL_ANSWER_BYTES - 1)
    for reader in readers[1:]:
        unread.add(reader, SMALL_ANSWER_BYTES)
    assert [len(each.reasons) for each in readers] == [0, 1, 1] + [0] * 9
    assert unread.bytes_used <= unread.bytes_max
    for reader in readers:
        unread.discard(reader)
    assert unread.bytes_used == 0


async def trickle(client: Client) -> None:
    """Sends a byte again and again, until the connection is closed."""
    with suppress(ConnectionError):
        while True:
            await client.send(b"x")
            await asyncio.sleep(0.01)


def test_a_frame_that_comes_byte_by_byte_has_an_end(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        limits = Limits(half_frame_ms=200, frame_bytes_per_second_min=1_000_000_000)
        async with listening(ScriptedService(echo), limits) as listener:
            async with connected(listener) as client:
                assert await client.ask(b"hello") == b"hello"
                await client.send(framed(b"x" * MIB)[:1_000])
                await trickle(client)
            assert listener.counters.connections_expired == 1
            assert listener.memory.bytes_used == 0

    run(scenario())
    assert "closed 127.0.0.1" in caplog.text
    assert "too slowly" in caplog.text


def test_a_slow_frame_that_keeps_the_least_rate_is_served(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(half_frame_ms=200, frame_bytes_per_second_min=10_000)
        frame = framed(b"y" * 20_000)
        async with (
            listening(ScriptedService(echo), limits) as listener,
            connected(listener) as client,
        ):
            start = asyncio.get_running_loop().time()
            for position in range(0, len(frame), 400):
                await client.send(frame[position : position + 400])
                await asyncio.sleep(0.02)
            assert await client.read_frame() == frame[4:]
            # Five times longer than a frame that stops is given.
            assert asyncio.get_running_loop().time() - start >= 1.0

    run(scenario())


def test_a_half_frame_behind_a_request_that_waits_has_an_end_too(run: Run) -> None:
    def park(frame: bytes) -> Answer:
        return asyncio.get_running_loop().create_future()

    async def scenario() -> None:
        limits = Limits(half_frame_ms=200)
        async with listening(ScriptedService(park), limits) as listener:
            async with connected(listener) as client:
                await client.send(framed(b"park") + framed(b"half")[:-1])
                assert await client.is_closed_by_server()
            assert listener.counters.connections_expired == 1

    run(scenario())


def test_a_client_without_memory_does_not_wait_for_ever(run: Run) -> None:
    def park(frame: bytes) -> Answer:
        return asyncio.get_running_loop().create_future()

    async def scenario() -> None:
        limits = Limits(request_bytes_total_max=MIB, memory_wait_ms=200)
        async with listening(ScriptedService(park), limits) as listener:
            async with connected(listener) as holder, connected(listener) as client:
                await holder.send(framed(b"x" * 900_000))
                await until(lambda: listener.counters.requests_in_flight == 1)
                await client.send(framed(b"y" * 200_000)[:100_000])
                await until(lambda: listener.memory.readers_waiting == 1)
                assert await client.is_closed_by_server()
            assert listener.counters.connections_expired == 1

    run(scenario())


def test_six_large_frames_that_stop_do_not_stop_the_others(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    frame = framed(b"z" * (20 * MIB))

    async def hold(client: Client) -> None:
        with suppress(ConnectionError):
            await client.send(frame[: 19 * MIB])
        await trickle(client)

    async def scenario() -> None:
        # The tick, which is also the interval of memory checks, is a quarter of the shortest deadline.
        limits = Limits(request_bytes_total_max=32 * MIB, close_ms=400)
        async with listening(ScriptedService(echo), limits) as listener, AsyncExitStack() as stack:
            holders = []
            for _ in range(6):
                client = await stack.enter_async_context(connected(listener))
                holders.append(asyncio.create_task(hold(client)))
            await until(lambda: listener.memory.readers_waiting > 0)
            async with connected(listener) as honest:
                half = framed(b"h" * 500_000)
                while listener.counters.connections_cut_off < 5:
                    assert await honest.ask(b"hello") == b"hello"
                    await honest.send(half[:200_000])
                    await honest.send(half[200_000:])
                    assert await honest.read_frame() == half[4:]
                    assert listener.memory.bytes_used <= 32 * MIB + 7 * READ_BYTES
            for holder in holders:
                holder.cancel()

    run(scenario())
    assert "others waited for the memory" in caplog.text

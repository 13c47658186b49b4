"""One timer for the deadlines of all replicas."""

import asyncio

from zhumq.replication.timers import CATCH_UP_MS, LATE_MS, Timers

DEADLINE_SECONDS = 10.0


class Clock:
    """A monotonic clock that a test can move forward."""

    def __init__(self) -> None:
        self.jump_ms = 0
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000) + self.jump_ms


class Member:
    def __init__(self, again_ms: int | None = None, *, fails: bool = False) -> None:
        self.check_at_ms: int | None = None
        self.checks: list[int] = []
        self.again_ms = again_ms
        self.fails = fails

    def deadline_passed(self, now_ms: int) -> int | None:
        self.checks.append(now_ms)
        if self.fails:
            raise RuntimeError("a bug of one replica")
        return None if self.again_ms is None else now_ms + self.again_ms


def test_each_member_is_checked_at_its_deadline() -> None:
    async def body() -> None:
        clock = Clock()
        timers = Timers(clock)
        start_ms = clock.monotonic_ms()
        late, early, never = Member(), Member(), Member()
        timers.set(late, start_ms + 60)
        timers.set(early, start_ms + 20)
        timers.set(never, None)
        while not late.checks:
            await asyncio.sleep(0.005)
        assert early.checks
        assert start_ms + 20 <= early.checks[0] <= late.checks[0]
        assert late.checks[0] >= start_ms + 60
        assert never.checks == []
        timers.close()

    asyncio.run(asyncio.wait_for(body(), DEADLINE_SECONDS))


def test_an_earlier_deadline_replaces_a_later_one() -> None:
    async def body() -> None:
        clock = Clock()
        timers = Timers(clock)
        start_ms = clock.monotonic_ms()
        member = Member()
        timers.set(member, start_ms + 60_000)
        timers.set(member, start_ms + 10)
        timers.set(member, start_ms + 30_000)
        while not member.checks:
            await asyncio.sleep(0.005)
        assert member.check_at_ms is None
        assert len(member.checks) == 1
        timers.close()
        timers.set(member, start_ms)
        assert member.check_at_ms is None

    asyncio.run(asyncio.wait_for(body(), DEADLINE_SECONDS))


def test_members_are_checked_at_their_next_deadlines_and_a_bug_stops_only_one() -> None:
    async def body() -> None:
        clock = Clock()
        timers = Timers(clock)
        bad, good = Member(fails=True), Member(again_ms=5)
        timers.set(bad, clock.monotonic_ms())
        timers.set(good, clock.monotonic_ms())
        while len(good.checks) < 3:
            await asyncio.sleep(0.005)
        assert len(bad.checks) == 1
        timers.close()

    asyncio.run(asyncio.wait_for(body(), DEADLINE_SECONDS))


def test_a_paused_process_reads_messages_before_it_checks_deadlines() -> None:
    async def body() -> None:
        clock = Clock()
        timers = Timers(clock)
        member = Member()
        due_ms = clock.monotonic_ms() + 30
        timers.set(member, due_ms)
        # As if the process had been paused for a long time.
        clock.jump_ms = 10 * LATE_MS
        resumed_ms = clock.monotonic_ms()
        while not member.checks:
            await asyncio.sleep(0.005)
        assert member.checks[0] >= resumed_ms + CATCH_UP_MS
        timers.close()

    asyncio.run(asyncio.wait_for(body(), DEADLINE_SECONDS))

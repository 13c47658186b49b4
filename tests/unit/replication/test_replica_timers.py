"""One timer for the deadlines of all replicas."""

from tests.manual_time import ManualClock, advance, run_in_manual_time

from zhumq.replication.timers import CATCH_UP_MS, LATE_MS, Timers


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
    async def body(clock: ManualClock) -> None:
        timers = Timers(clock)
        start_ms = clock.monotonic_ms()
        late, early, never = Member(), Member(), Member()
        timers.set(late, start_ms + 600)
        timers.set(early, start_ms + 200)
        timers.set(never, None)
        await advance(199)
        assert early.checks == []
        await advance(400)
        assert len(early.checks) == 1
        assert late.checks == []
        await advance(10_000)
        assert start_ms + 200 <= early.checks[0] <= late.checks[0]
        assert late.checks[0] >= start_ms + 600
        assert never.checks == []
        timers.close()

    run_in_manual_time(body)


def test_an_earlier_deadline_replaces_a_later_one() -> None:
    async def body(clock: ManualClock) -> None:
        timers = Timers(clock)
        start_ms = clock.monotonic_ms()
        member = Member()
        timers.set(member, start_ms + 60_000)
        timers.set(member, start_ms + 10)
        timers.set(member, start_ms + 30_000)
        await advance(100)
        assert len(member.checks) == 1
        await advance(100_000)
        assert member.check_at_ms is None
        assert len(member.checks) == 1
        timers.close()
        timers.set(member, start_ms)
        assert member.check_at_ms is None

    run_in_manual_time(body)


def test_members_are_checked_at_their_next_deadlines_and_a_bug_stops_only_one() -> None:
    async def body(clock: ManualClock) -> None:
        timers = Timers(clock)
        bad, good = Member(fails=True), Member(again_ms=200)
        timers.set(bad, clock.monotonic_ms())
        timers.set(good, clock.monotonic_ms())
        await advance(2_000)
        assert len(good.checks) >= 3
        assert len(bad.checks) == 1
        timers.close()

    run_in_manual_time(body)


def test_a_paused_process_reads_messages_before_it_checks_deadlines() -> None:
    async def body(clock: ManualClock) -> None:
        timers = Timers(clock)
        member = Member()
        timers.set(member, clock.monotonic_ms() + 30)
        # The process was paused for a long time.
        clock.ms += 10 * LATE_MS
        resumed_ms = clock.monotonic_ms()
        await advance(CATCH_UP_MS - 1)
        assert member.checks == []
        await advance(1_000)
        assert member.checks[0] >= resumed_ms + CATCH_UP_MS
        timers.close()

    run_in_manual_time(body)
